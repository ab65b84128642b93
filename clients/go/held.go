package dlock

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// How long Unlock waits for the server by default.
const unlockTimeout = 10 * time.Second

// Held is a lock that was acquired. Any goroutine may call its methods.
type Held struct{ entry *entry }

// Key returns the key of the lock.
func (h *Held) Key() string { return h.entry.key }

// Owner returns the name of this holder in the server.
func (h *Held) Owner() string { return h.entry.owner }

// Fence returns the fencing token: later grants of the lock have larger ones. Send it with every write.
func (h *Held) Fence() int64 { return h.entry.fence }

// Remaining returns how long the lock is certainly held without another renewal, 0 if it may be lost.
func (h *Held) Remaining() time.Duration {
	h.entry.locker.mu.Lock()
	defer h.entry.locker.mu.Unlock()
	if h.entry.check(nil) != nil {
		return 0
	}
	return time.Duration(h.entry.deadline - now())
}

// Extend makes the lease at least this long from now on.
func (h *Held) Extend(ctx context.Context, lease time.Duration) error {
	return h.entry.locker.await(ctx, nil, func() error { return h.entry.extend(lease) })
}

// Do runs a command in the server only while the lock is held under its fence (DLOCK.GUARD): after [ErrLost] nothing was
// written. In a cluster, lock and data must share a hash tag. It is sent once: after a lost connection it may have run.
func (h *Held) Do(ctx context.Context, command ...any) *redis.Cmd {
	e := h.entry
	cmd := redis.NewCmd(ctx, append([]any{"DLOCK.GUARD", e.key, e.owner, e.fence}, command...)...)
	err := h.check(nil)
	if err == nil {
		err = h.check(e.locker.client.Process(ctx, once{cmd}))
	}
	cmd.SetErr(err)
	return cmd
}

// once is a command that go-redis does not repeat.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// Unlock releases the lock. It returns nil if the lock was held until then, and [ErrLost] if it may have been lost.
//
// The release is sent whatever becomes of ctx, whose end only ends the waiting for the reply. If ctx is done at the
// beginning, as the context of Lock then is, Unlock waits up to 10 s.
func (h *Held) Unlock(ctx context.Context) error {
	e := h.entry
	e.locker.mu.Lock()
	err := e.check(nil)
	if err == nil {
		e.drop(lostError{e.key, "RELEASED"})
	}
	e.locker.mu.Unlock()
	if err != nil {
		return err
	}
	e.cancel(nil)
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return e.locker.await(ctx, time.After(unlockTimeout), e.release)
}

func (h *Held) check(err error) error {
	h.entry.locker.mu.Lock()
	defer h.entry.locker.mu.Unlock()
	return h.entry.check(err)
}
