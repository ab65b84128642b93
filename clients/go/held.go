package dlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Held is a lock that was acquired. Any goroutine may call its methods.
type Held struct{ entry *entry }

// Key returns the key of the lock.
func (h *Held) Key() string { return h.entry.key }

// Owner returns the name of this holder in the server.
func (h *Held) Owner() string { return h.entry.owner }

// Fence returns the fencing token: later grants of the lock have larger ones. Send it with every write.
func (h *Held) Fence() int64 { return h.entry.fence }

// Holds returns how many holds its owner had after the grant: more than 1 only with [WithOwner].
func (h *Held) Holds() int64 { return h.entry.holds }

// Remaining returns how long the lock is certainly held without another renewal, 0 if it may be lost.
func (h *Held) Remaining() time.Duration {
	h.entry.core.mu.Lock()
	defer h.entry.core.mu.Unlock()
	return h.entry.remaining()
}

// Extend makes the lease at least this long from now on. Until the deadline, it is repeated after errors that may pass.
func (h *Held) Extend(ctx context.Context, lease time.Duration) error {
	if lease <= 0 {
		return fmt.Errorf("dlock: %q is not extended: %w", h.entry.key, invalid("the lease is %v: it must be longer than 0", lease))
	}
	return h.await(ctx, func(done func(error)) { h.entry.extend(wholeMs(lease), done) })
}

// Do runs a command in the server only while the lock is held under its fence (DLOCK.GUARD): after [ErrLost] nothing was
// written. In a cluster, lock and data must share a hash tag. It is sent once: after a lost connection it may have run.
func (h *Held) Do(ctx context.Context, command ...any) *redis.Cmd {
	e := h.entry
	cmd := redis.NewCmd(ctx, append([]any{"DLOCK.GUARD", e.key, e.owner, e.fence}, command...)...)
	err := h.check(nil)
	if err == nil {
		err = e.locker.client.Process(ctx, once{cmd})
		if wordOf(err) == noReply {
			e.locker.reload()
		}
		err = h.check(explained(err, e.locker.server()))
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
// beginning, as the context of Lock may be, Unlock waits up to 10 s.
func (h *Held) Unlock(ctx context.Context) error {
	e := h.entry
	e.core.mu.Lock()
	err := e.check(nil, releasing)
	if err == nil {
		e.drop(&LostError{Key: e.key, Reason: "RELEASED"})
	}
	e.core.mu.Unlock()
	if err != nil {
		return err
	}
	e.cancel(nil)
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return h.await(ctx, e.release)
}

// await begins an action with the mutex, and waits for it. If ctx is done before, it goes on.
func (h *Held) await(ctx context.Context, action func(done func(error))) error {
	done := make(chan error, 1)
	h.entry.core.mu.Lock()
	action(func(err error) { done <- err })
	h.entry.core.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("dlock: not confirmed by the server yet: %w", ctx.Err())
	}
}

func (h *Held) check(err error) error {
	h.entry.core.mu.Lock()
	defer h.entry.core.mu.Unlock()
	return h.entry.check(err, guarding)
}
