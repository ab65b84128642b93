package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"dlock"
	"dlock/internal/testserver"

	"github.com/redis/go-redis/v9"
)

var background = context.Background()

func newLocker(t *testing.T, client redis.UniversalClient) *dlock.Locker {
	locker := dlock.New(client)
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(background, 30*time.Second)
		defer stop()
		if err := locker.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return locker
}

func lock(t *testing.T, locker *dlock.Locker, key string, options ...dlock.Option) (context.Context, *dlock.Held) {
	t.Helper()
	ctx, stop := context.WithTimeout(background, time.Minute)
	t.Cleanup(stop)
	ctx, held, err := locker.Lock(ctx, key, options...)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, held
}

// lockAndUnlock waits for a lock in the background, and releases it at once.
func lockAndUnlock(locker *dlock.Locker, key string) <-chan error {
	done := make(chan error, 1)
	go func() {
		ctx, held, err := locker.Lock(background, key)
		if err == nil {
			err = held.Unlock(ctx)
		}
		done <- err
	}()
	return done
}

func unlock(t *testing.T, held *dlock.Held) {
	t.Helper()
	if err := held.Unlock(background); err != nil {
		t.Fatal(err)
	}
}

func TestLock_free_lock_is_granted_with_growing_fences(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	last := int64(0)
	for range 3 {
		ctx, held := lock(t, locker, "k")
		if held.Fence() <= last || held.Remaining() < 29*time.Second || ctx.Err() != nil {
			t.Fatal(held.Fence(), last, held.Remaining(), ctx.Err())
		}
		last = held.Fence()
		unlock(t, held)
		if held.Remaining() != 0 || context.Cause(ctx) != context.Canceled {
			t.Fatal(held.Remaining(), context.Cause(ctx))
		}
	}
	if server.Info("acquired") != "3" || server.Info("released") != "3" {
		t.Fatal("not each hold was released once")
	}
}

func TestTryLock_held_lock_fails_with_ErrBusy(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	_, held := lock(t, locker, "k")
	if _, _, err := locker.TryLock(background, "k"); !errors.Is(err, dlock.ErrBusy) {
		t.Fatal(err)
	}
	unlock(t, held)
	_, held, err := locker.TryLock(background, "k")
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, held)
}

func TestTryLock_options_of_the_caller_are_not_changed(t *testing.T) {
	locker := newLocker(t, testserver.Start(t).Client())
	options := make([]dlock.Option, 1, 2)
	options[0] = dlock.WithShared()
	_, held, err := locker.TryLock(background, "k", options...)
	if err != nil || options[:2][1] != nil {
		t.Fatal(err, "the array is changed")
	}
	unlock(t, held)
}

func TestLock_done_context_sends_nothing(t *testing.T) {
	server := testserver.Start(t)
	ctx, cancel := context.WithCancel(background)
	cancel()
	if _, _, err := newLocker(t, server.Client()).Lock(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if calls := server.Calls("dlock.acquire") + server.Calls("dlock.release"); calls != 0 {
		t.Fatal(calls)
	}
}

func TestLock_error_of_the_server_is_returned(t *testing.T) {
	server := testserver.Start(t)
	client := server.Client()
	client.Set(background, "k", "text", 0)
	var reply redis.Error
	if _, _, err := newLocker(t, client).Lock(background, "k"); !errors.As(err, &reply) ||
		!strings.HasPrefix(reply.Error(), "WRONGTYPE") {
		t.Fatal(err)
	}
}

func TestLock_refused_connection_fails_at_once(t *testing.T) {
	locker := newLocker(t, testserver.ClientOf(t, testserver.FreeAddress(t)))
	began := time.Now()
	if _, _, err := locker.Lock(background, "k"); err == nil || time.Since(began) > time.Second {
		t.Fatal(err, time.Since(began))
	}
}

func TestLock_waiting_goroutines_are_granted_in_order_on_two_connections(t *testing.T) {
	server := testserver.Start(t)
	client := server.Client()
	locker := newLocker(t, server.Client())
	_, held := lock(t, locker, "k")
	const count = 1000
	var order []int
	var group sync.WaitGroup
	for number := range count {
		group.Add(1)
		go func() {
			defer group.Done()
			_, held, err := locker.Lock(background, "k")
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, number) // the lock guards it
			if err := held.Unlock(background); err != nil {
				t.Error(err)
			}
		}()
		if number < 20 {
			queued := fmt.Sprint(number + 1)
			testserver.Eventually(t, "it is queued", func() bool { return server.Info("waiters") == queued })
		}
	}
	testserver.Eventually(t, "all wait", func() bool { return server.Info("waiters") == fmt.Sprint(count) })
	clients, err := client.ClientList(background).Result()
	if err != nil {
		t.Fatal(err)
	}
	if connections := strings.Count(clients, "cmd=dlock"); connections != 2 {
		t.Fatal(connections, clients)
	}
	unlock(t, held)
	group.Wait()
	if len(order) != count {
		t.Fatal(len(order))
	}
	for number := range 20 {
		if order[number] != number {
			t.Fatal(order[:20])
		}
	}
}

func TestLock_shared_and_limited_locks_have_several_holders(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	for _, option := range []dlock.Option{dlock.WithShared(), dlock.WithLimit(2)} {
		_, first := lock(t, locker, "k", option)
		_, second := lock(t, locker, "k", option)
		if _, _, err := locker.TryLock(background, "k"); !errors.Is(err, dlock.ErrBusy) {
			t.Fatal(err)
		}
		unlock(t, first)
		unlock(t, second)
	}
}

func TestLock_timeout_ends_the_waiting_and_leaves_nothing(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	_, held := lock(t, locker, "k")
	_, _, err := locker.Lock(background, "k", dlock.WithTimeout(50*time.Millisecond))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	testserver.Eventually(t, "it left the queue", func() bool { return server.Info("waiters") == "0" })
	unlock(t, held)
	ctx, held := lock(t, locker, "k", dlock.WithTimeout(50*time.Millisecond))
	time.Sleep(100 * time.Millisecond)
	if ctx.Err() != nil {
		t.Fatal("the timeout limits the work")
	}
	unlock(t, held)
}

func TestLock_cancellation_storm_leaves_nothing(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	var group sync.WaitGroup
	for number := range 500 {
		group.Add(1)
		go func() {
			defer group.Done()
			ctx, cancel := context.WithTimeout(background, time.Duration(number%50)*time.Millisecond)
			defer cancel()
			_, held, err := locker.Lock(ctx, fmt.Sprint("k", number%5))
			if err == nil {
				time.Sleep(time.Millisecond)
				err = held.Unlock(ctx)
			}
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}()
	}
	group.Wait()
	server.HasNothing()
}

func TestHeld_lease_is_renewed_until_unlock(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	ctx, held := lock(t, locker, "k", dlock.WithLease(time.Second))
	for range 50 {
		time.Sleep(60 * time.Millisecond)
		if ctx.Err() != nil || held.Remaining() == 0 {
			t.Fatal(context.Cause(ctx), held.Remaining())
		}
	}
	unlock(t, held)
	if server.Info("expired") != "0" || server.Info("locks") != "0" {
		t.Fatal("the lease expired")
	}
}

func TestHeld_without_renewal_expires_unless_extended(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	ctx, held := lock(t, locker, "k", dlock.WithLease(time.Second), dlock.WithoutRenewal())
	if err := held.Extend(background, 3*time.Second); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond)
	if ctx.Err() != nil || held.Remaining() == 0 {
		t.Fatal("it was not extended")
	}
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), dlock.ErrLost) {
		t.Fatal(context.Cause(ctx))
	}
	for _, err := range []error{held.Extend(background, time.Second), held.Unlock(background)} {
		if !errors.Is(err, dlock.ErrLost) {
			t.Fatal(err)
		}
	}
}

func TestHeld_deleted_lock_is_lost_at_the_next_renewal(t *testing.T) {
	server := testserver.Start(t)
	client := server.Client()
	ctx, held := lock(t, newLocker(t, client), "k", dlock.WithLease(6*time.Second))
	client.Del(background, "k")
	began := time.Now()
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, dlock.ErrLost) || time.Since(began) > 4*time.Second {
		t.Fatal(cause, time.Since(began))
	}
	if err := held.Unlock(ctx); !errors.Is(err, dlock.ErrLost) || held.Remaining() != 0 {
		t.Fatal(err, held.Remaining())
	}
}

func TestHeld_silent_server_loses_the_lock_at_the_deadline(t *testing.T) {
	server := testserver.Start(t)
	ctx, held := lock(t, newLocker(t, server.Client()), "k", dlock.WithLease(time.Second))
	server.Pause()
	defer server.Resume()
	remaining, began := held.Remaining(), time.Now()
	<-ctx.Done()
	late := time.Since(began) - remaining
	if !errors.Is(context.Cause(ctx), dlock.ErrLost) || late > time.Second || late < -time.Millisecond {
		t.Fatal(context.Cause(ctx), late)
	}
}

func TestHeld_extension_that_a_silent_server_does_not_confirm_ends_with_the_lease(t *testing.T) {
	server := testserver.Start(t)
	_, held := lock(t, newLocker(t, server.Client()), "k", dlock.WithLease(time.Second), dlock.WithoutRenewal())
	server.Pause()
	defer server.Resume()
	began := time.Now()
	if err := held.Extend(background, time.Minute); !errors.Is(err, dlock.ErrLost) || time.Since(began) > 2500*time.Millisecond {
		t.Fatal(err, time.Since(began))
	}
}

func TestHeld_Unlock_works_with_a_cancelled_context(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	parent, cancel := context.WithCancel(background)
	ctx, held, err := locker.Lock(parent, "k")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := held.Unlock(ctx); err != nil || server.Info("locks") != "0" {
		t.Fatal(err, server.Info("locks"))
	}
	if err := held.Unlock(ctx); !errors.Is(err, dlock.ErrLost) {
		t.Fatal("released twice:", err)
	}
}

func TestHeld_Unlock_returns_when_its_context_ends_and_releases_later(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	_, held := lock(t, locker, "k")
	server.Pause()
	ctx, stop := context.WithTimeout(background, 50*time.Millisecond)
	defer stop()
	if err := held.Unlock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	server.Resume()
	server.HasNothing()
}

func TestHeld_Do_runs_a_command_only_while_the_lock_is_held(t *testing.T) {
	server := testserver.Start(t)
	client := server.Client()
	_, held := lock(t, newLocker(t, client), "{k}")
	if text, err := held.Do(background, "SET", "{k}:d", "1").Text(); text != "OK" || err != nil {
		t.Fatal(text, err)
	}
	if err := held.Do(background, "GET", "{k}:none").Err(); err != redis.Nil {
		t.Fatal(err)
	}
	client.Del(background, "{k}")
	if err := held.Do(background, "SET", "{k}:d", "2").Err(); !errors.Is(err, dlock.ErrLost) {
		t.Fatal(err)
	}
	if client.Get(background, "{k}:d").Val() != "1" || held.Remaining() != 0 {
		t.Fatal("written after the loss")
	}
}

func TestClose_leaves_locks_of_other_lockers(t *testing.T) {
	client := testserver.Start(t).Client()
	_, held := lock(t, newLocker(t, client), "k")
	other := dlock.New(client)
	_, ended := lock(t, other, "other")
	if err := other.Close(background); err != nil {
		t.Fatal(err)
	}
	if err := ended.Unlock(background); !errors.Is(err, dlock.ErrClosed) || !errors.Is(err, dlock.ErrLost) {
		t.Fatal(err)
	}
	unlock(t, held)
}

func TestHeld_lock_of_a_done_context_is_held_until_its_lease_ends(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	parent, cancel := context.WithCancel(background)
	_, held, err := locker.Lock(parent, "k", dlock.WithLease(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, _, err := locker.TryLock(background, "k"); !errors.Is(err, dlock.ErrBusy) {
		t.Fatal("others get it while the work ends:", err)
	}
	testserver.Eventually(t, "its lease ends", func() bool { return server.Info("locks") == "0" })
	if err := held.Unlock(background); !errors.Is(err, dlock.ErrLost) || server.Calls("dlock.extend") != 0 {
		t.Fatal(err)
	}
}

func TestHeld_longest_hold_ends_with_a_loss_and_a_release(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	ctx, held := lock(t, locker, "k", dlock.WithMaxHold(300*time.Millisecond))
	if left := held.Remaining(); left > 300*time.Millisecond {
		t.Fatal(left)
	}
	<-ctx.Done()
	var lost *dlock.LostError
	if cause := context.Cause(ctx); !errors.As(cause, &lost) || lost.Reason != "MAXHOLD" {
		t.Fatal(cause)
	}
	server.HasNothing()
}

func TestWithOwner_two_processes_of_one_owner_have_a_hold_each(t *testing.T) {
	server := testserver.Start(t)
	_, first := lock(t, newLocker(t, server.Client()), "k", dlock.WithOwner("alice"))
	_, second := lock(t, newLocker(t, server.Client()), "k", dlock.WithOwner("alice"))
	if first.Holds() != 1 || second.Holds() != 2 || first.Fence() != second.Fence() {
		t.Fatal(first.Holds(), second.Holds())
	}
	unlock(t, first)
	if server.Info("locks") != "1" {
		t.Fatal("the other hold is released, too")
	}
	unlock(t, second)
}

func TestWithEvents_each_lock_tells_what_happens_to_it(t *testing.T) {
	server := testserver.Start(t)
	client := server.Client()
	told := make(chan dlock.Event, 100)
	locker := dlock.New(client, dlock.WithEvents(func(event dlock.Event) { told <- event }))
	expect := func(kind dlock.EventKind) dlock.Event {
		t.Helper()
		if event := <-told; event.Kind != kind || event.Key != "k" {
			t.Fatal(event, "instead of", kind)
		} else {
			return event
		}
		return dlock.Event{}
	}
	_, held := lock(t, locker, "k")
	expect(dlock.Acquired)
	if _, _, err := locker.Lock(background, "k", dlock.WithTimeout(100*time.Millisecond)); err == nil {
		t.Fatal("two hold it")
	}
	expect(dlock.Queued)
	if event := expect(dlock.NotAcquired); event.Took < 100*time.Millisecond || !errors.Is(event.Err, dlock.ErrBusy) {
		t.Fatal(event)
	}
	unlock(t, held)
	if event := expect(dlock.Released); event.Took < 100*time.Millisecond {
		t.Fatal(event)
	}
	_, held = lock(t, locker, "k")
	expect(dlock.Acquired)
	client.Del(background, "k")
	if err := held.Unlock(background); !errors.Is(err, dlock.ErrLost) {
		t.Fatal(err)
	}
	if event := expect(dlock.Lost); !errors.Is(event.Err, dlock.ErrLost) {
		t.Fatal(event)
	}
}

func TestClose_ends_waiting_releases_and_leaves_no_goroutine_or_connection(t *testing.T) {
	server := testserver.Start(t)
	client := server.Client()
	client.Ping(background)
	goroutines := runtime.NumGoroutine()
	locker := dlock.New(client)
	ctx, _ := lock(t, locker, "k")
	failed := lockAndUnlock(locker, "k")
	testserver.Eventually(t, "it waits", func() bool { return server.Info("waiters") == "1" })
	if err := locker.Close(background); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, dlock.ErrClosed) {
		t.Fatal(err)
	}
	if !errors.Is(context.Cause(ctx), dlock.ErrClosed) || server.Info("locks") != "0" {
		t.Fatal(context.Cause(ctx))
	}
	if _, _, err := locker.TryLock(background, "k"); !errors.Is(err, dlock.ErrClosed) {
		t.Fatal(err)
	}
	testserver.Eventually(t, "the inbox has ended", func() bool { return server.Info("inboxes") == "0" })
	testserver.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
	if err := locker.Close(background); err != nil {
		t.Fatal("closed twice:", err)
	}
}

func TestClose_returns_with_its_context_and_goes_on(t *testing.T) {
	server := testserver.Start(t)
	locker := dlock.New(server.Client())
	lock(t, locker, "k")
	waited := lockAndUnlock(locker, "k")
	testserver.Eventually(t, "it waits", func() bool { return server.Info("waiters") == "1" })
	server.Pause()
	ctx, stop := context.WithTimeout(background, 50*time.Millisecond)
	defer stop()
	began := time.Now()
	if err := locker.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
		t.Fatal(err, time.Since(began))
	}
	if err := <-waited; !errors.Is(err, dlock.ErrClosed) {
		t.Fatal(err)
	}
	server.Resume()
	server.HasNothing()
}

func TestLocker_reader_ends_when_nobody_waits(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	_, held := lock(t, locker, "k")
	waited := lockAndUnlock(locker, "k")
	testserver.Eventually(t, "it waits", func() bool { return server.Info("waiters") == "1" })
	unlock(t, held)
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	testserver.Eventually(t, "its connection is closed", func() bool {
		return !strings.Contains(client.ClientList(background).Val(), "cmd=dlock.grants")
	})
}
