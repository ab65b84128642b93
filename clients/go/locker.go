// Package dlock holds distributed locks of DLOCK, a module for Redis and Valkey, with go-redis.
package dlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Locker acquires locks. Share one per client: any number of goroutines wait on two connections to each primary.
type Locker struct {
	client, requests redis.UniversalClient
	owner            string      // how owners begin
	isConnected      atomic.Bool // there was a connection
	running          sync.WaitGroup
	actions          chan func() // for a goroutine that is kept
	closing          context.Context
	close            context.CancelFunc

	mu      sync.Mutex // guards what follows, inboxes, and fields of entries
	entries map[uint64]*entry
	inboxes map[string]*inbox // by address
	last    uint64            // number of an entry
}

// New returns a Locker for a [redis.Client], also one of Sentinels, or a [redis.ClusterClient]. It opens connections of
// its own with the client's options; [Held.Do] uses the client itself.
func New(client redis.UniversalClient) *Locker {
	host, _ := os.Hostname()
	owner := fmt.Sprintf("%s:%d:%s-", host, os.Getpid(), randomName())
	l := &Locker{client: client, owner: owner, entries: map[uint64]*entry{}, inboxes: map[string]*inbox{}}
	l.requests, l.actions = l.connect(), make(chan func())
	l.closing, l.close = context.WithCancel(context.Background())
	go l.work()
	return l
}

// An Option changes an acquisition.
type Option func(*settings)

type settings struct {
	owner          string
	mode           []any
	lease, timeout time.Duration
	waits, renews  bool
}

// WithLease sets the lease, 30 s by default: how long the lock stays held if the process dies or loses the server.
func WithLease(lease time.Duration) Option { return func(s *settings) { s.lease = lease } }

// WithTimeout limits the waiting, not the work. After it the error is [context.DeadlineExceeded].
func WithTimeout(timeout time.Duration) Option { return func(s *settings) { s.timeout = timeout } }

// WithShared shares the lock with all others that do, as a reader.
func WithShared() Option { return func(s *settings) { s.mode = []any{"SHARED"} } }

// WithLimit makes the lock a semaphore, which this many may hold at once.
func WithLimit(limit int) Option { return func(s *settings) { s.mode = []any{"LIMIT", limit} } }

// WithOwner sets the owner. Those with the same one hold the lock together. By default each acquisition has its own.
func WithOwner(owner string) Option { return func(s *settings) { s.owner = owner } }

// WithoutRenewal leaves it to [Held.Extend] to extend the lease.
func WithoutRenewal() Option { return func(s *settings) { s.renews = false } }

// Lock waits for the lock in the server's queue until ctx is done. Then call Unlock, also after a loss.
//
// The context that it returns is cancelled when the lock is lost, with a cause that is [ErrLost], and by Unlock. It is
// derived from ctx, whose deadline limits the work too: see [WithTimeout].
func (l *Locker) Lock(ctx context.Context, key string, options ...Option) (context.Context, *Held, error) {
	return l.acquire(ctx, key, true, options)
}

// TryLock does not wait: it fails with [ErrBusy] if others hold the lock or wait for it.
func (l *Locker) TryLock(ctx context.Context, key string, options ...Option) (context.Context, *Held, error) {
	return l.acquire(ctx, key, false, options)
}

func (l *Locker) acquire(ctx context.Context, key string, waits bool, options []Option) (context.Context, *Held, error) {
	settings := settings{lease: 30 * time.Second, waits: waits, renews: true}
	for _, option := range options {
		option(&settings)
	}
	if !waits {
		settings.timeout = tryTimeout
	}
	waiting := ctx
	if settings.timeout > 0 {
		limited, stop := context.WithTimeout(ctx, settings.timeout)
		defer stop()
		waiting = limited
	}
	work, cancel := context.WithCancelCause(ctx)
	for {
		e := &entry{settings: settings, key: key, cancel: cancel}
		err := e.acquire(l, waiting)
		if err == nil {
			return work, &Held{e}, nil
		}
		if !waits || !errors.Is(err, ErrLost) { // granted too late otherwise
			cancel(nil)
			return ctx, nil, fmt.Errorf("dlock: %q is not acquired: %w", key, err)
		}
	}
}

// Close ends waiting calls with [ErrClosed], releases all locks and closes the connections. If ctx is done before, that
// goes on in the background. Locks of a process that ends without it are free when their leases expire.
func (l *Locker) Close(ctx context.Context) error {
	l.mu.Lock()
	l.close()
	for _, e := range l.entries {
		e.settle(ErrClosed, false)
		e.lose(ErrClosed)
	}
	l.mu.Unlock()
	return l.await(ctx, nil, func() error {
		l.running.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, b := range l.inboxes {
			if b.cursor != 0 {
				b.node.Do(ctx, "DLOCK.GRANTS", b.name, b.cursor, "TTL", 0)
			}
		}
		_ = l.requests.Close()
		return nil
	})
}

// work runs actions until Close.
func (l *Locker) work() {
	for {
		select {
		case action := <-l.actions:
			action()
		case <-l.closing.Done():
			return
		}
	}
}

// run has an action run in the background: if possible by the goroutine that is kept, whose stack has grown already.
func (l *Locker) run(action func()) {
	select {
	case l.actions <- action:
	default:
		go action()
	}
}

// await waits for an action, which goes on if ctx is done before, or it is late.
func (l *Locker) await(ctx context.Context, late <-chan time.Time, action func() error) error {
	done, err := make(chan error, 1), context.DeadlineExceeded
	l.run(func() { done <- action() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-late:
	}
	return fmt.Errorf("dlock: not confirmed by the server yet: %w", err)
}

// randomName returns 128 random bits.
func randomName() string { return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()) }

// safeDeadline returns until when a lease certainly lasts that is in the reply to a request sent at t.
func safeDeadline(t, leaseMs int64) int64 { return t + leaseMs*999_000 - 2_000_000 }
