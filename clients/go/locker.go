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

	mu                  sync.Mutex // guards what follows, inboxes, and entries
	entries             map[uint64]*entry
	last                uint64            // number of an entry
	inboxes             map[string]*inbox // by address
	isClosing, isClosed bool
}

// New returns a Locker for a [redis.Client], also one of Sentinels, or a [redis.ClusterClient]. It opens connections of
// its own with the client's options; [Held.Do] uses the client itself.
func New(client redis.UniversalClient) *Locker {
	host, _ := os.Hostname()
	owner := fmt.Sprintf("%s:%d:%s-", host, os.Getpid(), randomName())
	l := &Locker{client: client, owner: owner, entries: map[uint64]*entry{}, inboxes: map[string]*inbox{}}
	l.requests = l.connect()
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
		var stop context.CancelFunc
		waiting, stop = context.WithTimeout(ctx, settings.timeout)
		defer stop()
	}
	for {
		work, cancel := context.WithCancelCause(ctx)
		e := &entry{settings: settings, locker: l, key: key, cancel: cancel, settled: make(chan struct{})}
		err := e.acquire(waiting)
		if err == nil {
			return work, &Held{e}, nil
		}
		cancel(err)
		if !waits || !errors.Is(err, ErrLost) { // granted too late otherwise
			return ctx, nil, fmt.Errorf("dlock: %q is not acquired: %w", key, err)
		}
	}
}

// enter enters an entry into the table, before it is sent: its answer may overtake the reply.
func (l *Locker) enter(e *entry, b *inbox) {
	l.entries[e.number] = e
	l.running.Add(1)
	e.inbox = b
	b.enqueue(e)
}

// Close ends waiting calls with [ErrClosed], releases all locks and closes the connections. If ctx is done before, that
// goes on in the background. Locks of a process that ends without it are free when their leases expire.
func (l *Locker) Close(ctx context.Context) error {
	l.mu.Lock()
	l.isClosing = true
	for _, e := range l.entries {
		e.abandon(ErrClosed)
	}
	l.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		l.running.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.isClosed = true
		for _, b := range l.inboxes {
			b.hasUnsent.Signal()
			if b.cursor != 0 {
				b.node.Do(context.Background(), "DLOCK.GRANTS", b.name, b.cursor, "TTL", 0)
			}
		}
		_ = l.requests.Close()
		done <- nil
	}()
	return await(ctx, done)
}

// await waits for the end of an action, which goes on if ctx is done before.
func await(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("dlock: not confirmed by the server yet: %w", ctx.Err())
	}
}

// randomName returns 128 random bits.
func randomName() string { return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()) }

// safeDeadline returns until when a lease certainly lasts that is in the reply to a request sent at t.
func safeDeadline(t, leaseMs int64) int64 { return t + leaseMs*999_000 - 2_000_000 }
