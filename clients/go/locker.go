// Package dlock holds distributed locks of DLOCK, a module for Redis and Valkey, with go-redis.
package dlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// How often a lock is asked for again that was granted too late for its lease.
const maxLateGrants = 10

// process is how the owners of this process begin.
var process = func() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s:%d:", host, os.Getpid())
}()

// A Locker acquires locks. Any number of goroutines wait on two connections to each primary, which all Lockers of a
// client share. They are opened for the first lock and closed when none was used for 30 s.
type Locker struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // the same, if it is one
	core    *core
	invalid error // why the client cannot be used
	events  events
	running sync.WaitGroup

	isClosed bool // guarded by the mutex of the core
}

// A LockerOption changes a Locker.
type LockerOption func(*Locker)

// WithEvents calls a function with each [Event] of the locks, one after the other. They do not wait for it.
func WithEvents(onEvent func(Event)) LockerOption {
	return func(l *Locker) { l.events.onEvent = onEvent }
}

// New returns a Locker for a [redis.Client], also one of Sentinels, or a [redis.ClusterClient]. With another client, each
// of its methods fails with [ErrInvalid]. It costs nothing and need not be closed. It uses connections of its own with
// the client's options; [Held.Do] uses the client itself.
func New(client redis.UniversalClient, options ...LockerOption) *Locker {
	l := &Locker{client: client}
	for _, option := range options {
		option(l)
	}
	single, _ := client.(*redis.Client)
	cluster, _ := client.(*redis.ClusterClient)
	switch {
	case single != nil:
		l.core = coreOf(single)
	case cluster != nil:
		l.core, l.cluster = coreOf(cluster), cluster
	default:
		l.invalid = invalid("dlock.New takes a client of redis.NewClient, redis.NewFailoverClient or "+
			"redis.NewClusterClient, not nil, nor another one: this is a %T", client)
	}
	return l
}

// Lock waits for the lock in the server's queue until ctx is done. Then call Unlock, also after a loss.
//
// The context that it returns is cancelled when the lock is lost, with a cause that is [ErrLost], and by Unlock. It is
// derived from ctx, whose deadline limits the work too: see [WithTimeout]. When ctx is done, the lease is not renewed any
// more: the lock stays held while the work ends, until Unlock, but not longer than the lease.
func (l *Locker) Lock(ctx context.Context, key string, options ...Option) (context.Context, *Held, error) {
	return l.acquire(ctx, key, true, options)
}

// TryLock does not wait: it fails with [ErrBusy] if others hold the lock or wait for it. If the server does not reply, it
// is repeated for up to 9 s.
func (l *Locker) TryLock(ctx context.Context, key string, options ...Option) (context.Context, *Held, error) {
	return l.acquire(ctx, key, false, options)
}

func (l *Locker) acquire(ctx context.Context, key string, waits bool, options []Option) (context.Context, *Held, error) {
	began := now()
	s, err := settingsOf(key, waits, options)
	if err == nil {
		err = l.invalid
	}
	if err == nil {
		var e *entry
		if e, err = l.ask(ctx, key, s, began); err == nil {
			return e.work, &Held{e}, nil
		}
		err = outcomeOf(ctx, waits, err)
		l.events.add(Event{Kind: NotAcquired, Key: key, Owner: s.owner, Took: time.Duration(now() - began), Err: err})
	}
	return ctx, nil, fmt.Errorf("dlock: %q is not acquired: %w", key, err)
}

// ask waits for a grant, and asks again for one that came too late.
func (l *Locker) ask(ctx context.Context, key string, s settings, began int64) (e *entry, err error) {
	limit, limited := s.timeout, ctx
	if !s.waits {
		limit = tryTimeout
	}
	if limit < noLimit {
		withLimit, stop := context.WithTimeout(ctx, limit)
		defer stop()
		limited = withLimit
	}
	held := hold{}
	held.work, held.cancel = context.WithCancelCause(ctx)
	for range maxLateGrants {
		e = &entry{settings: s, locker: l, core: l.core, key: key, began: began, hold: held}
		if err = e.acquire(limited); !errors.Is(err, ErrLost) {
			break
		}
	}
	if err != nil {
		held.cancel(nil)
	}
	return e, err
}

// outcomeOf returns the error of Lock or TryLock: only Lock, and a ctx with a deadline, can time out.
func outcomeOf(ctx context.Context, waits bool, err error) error {
	timeout, isTimeout := err.(timeoutError)
	switch {
	case isTimeout && !waits && ctx.Err() == nil:
		return timeout.cause
	case err == ErrBusy && waits:
		return timeoutError{err}
	}
	return err
}

// enroll enters an entry into the table of the core, unless the Locker is closed.
func (l *Locker) enroll(e *entry) error {
	if l.isClosed {
		return ErrClosed
	}
	l.core.enroll(e)
	l.running.Add(1)
	return nil
}

// route calls a function with the inbox in the server that has the key, or why that is not known. It is called with the
// mutex of the core, as the function is.
func (l *Locker) route(key string, use func(*inbox, error)) {
	if l.cluster == nil {
		use(l.core.inboxAt(l.client.(*redis.Client)), nil)
		return
	}
	go func() {
		node, err := l.cluster.MasterForKey(background, key)
		l.core.mu.Lock()
		defer l.core.mu.Unlock()
		if err != nil {
			use(nil, explained(err, l.server()))
		} else {
			use(l.core.inboxAt(node), nil)
		}
	}()
}

// server returns what messages call it.
func (l *Locker) server() string {
	if l.cluster != nil {
		return "the cluster"
	}
	return serverOf(l.client.(*redis.Client).Options())
}

// reload has a client of a cluster find out which servers have which keys.
func (l *Locker) reload() {
	if l.cluster != nil {
		l.cluster.ReloadState(background)
	}
}

// Close ends waiting calls with [ErrClosed] and releases all locks of this Locker. If ctx is done before, that goes on in
// the background. Then connections are closed, unless another Locker of the client uses them. Locks of a process that ends
// without it are free when their leases expire.
func (l *Locker) Close(ctx context.Context) error {
	if l.invalid != nil {
		return nil
	}
	l.core.mu.Lock()
	l.isClosed = true
	for _, e := range l.core.entries {
		if e.locker == l {
			e.settle(ErrClosed, false)
			e.lose(&LostError{Key: e.key, Reason: "CLOSED"})
		}
	}
	l.core.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		l.running.Wait()
		l.core.disconnectIfUnused()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("dlock: not closed yet: %w", ctx.Err())
	}
}

// randomName returns 128 random bits.
func randomName() string { return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()) }
