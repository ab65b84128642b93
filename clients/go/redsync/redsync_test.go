package redsync_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"dlock/internal/testserver"
	"dlock/redsync"
)

func lock(t *testing.T, mutex *redsync.Mutex) {
	t.Helper()
	if err := mutex.Lock(); err != nil {
		t.Fatal(err)
	}
}

func waitForExpiry(t *testing.T, mutex *redsync.Mutex) {
	t.Helper()
	testserver.Eventually(t, "it expires", func() bool {
		isValid, err := mutex.Valid()
		return !isValid && err == nil
	})
}

func TestMutex_others_are_excluded_for_all_tries(t *testing.T) {
	rs := redsync.New(testserver.Start(t).Client())
	mutex := rs.NewMutex("k")
	lock(t, mutex)
	if left := time.Until(mutex.Until()); left < 7*time.Second || mutex.Name() != "k" || mutex.Value() == "" {
		t.Fatal(left, mutex.Name(), mutex.Value())
	}
	var taken *redsync.ErrTaken
	if err := mutex.TryLock(); !errors.As(err, &taken) {
		t.Fatal(err)
	}
	began := time.Now()
	err := rs.NewMutex("k", redsync.WithTries(4), redsync.WithRetryDelay(50*time.Millisecond)).Lock()
	if waited := time.Since(began); !errors.As(err, &taken) || waited < 140*time.Millisecond || waited > 5*time.Second {
		t.Fatal(err, waited)
	}
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer stop()
	if err := rs.NewMutex("k").LockContext(ctx); err != redsync.ErrFailed {
		t.Fatal(err)
	}
	if ok, err := mutex.Unlock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	lock(t, rs.NewMutex("k"))
}

func TestMutex_tries_without_delay_do_not_wait(t *testing.T) {
	rs := redsync.New(testserver.Start(t).Client())
	lock(t, rs.NewMutex("k"))
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
	defer stop()
	var taken *redsync.ErrTaken
	if err := rs.NewMutex("k", redsync.WithRetryDelay(0)).LockContext(ctx); !errors.As(err, &taken) {
		t.Fatal(err)
	}
}

func TestMutex_waiting_ends_with_Unlock(t *testing.T) {
	rs := redsync.New(testserver.Start(t).Client())
	first, second := rs.NewMutex("k"), rs.NewMutex("k", redsync.WithRetryDelay(time.Minute)) // if it polled
	lock(t, first)
	time.AfterFunc(20*time.Millisecond, func() { _, _ = first.Unlock() })
	began := time.Now()
	lock(t, second)
	if waited := time.Since(began); waited > 5*time.Second {
		t.Fatal(waited)
	}
}

func TestMutex_expired_lock_can_be_neither_extended_nor_unlocked(t *testing.T) {
	rs := redsync.New(testserver.Start(t).Client())
	mutex := rs.NewMutex("k", redsync.WithExpiry(time.Second))
	lock(t, mutex)
	until := mutex.Until()
	time.Sleep(50 * time.Millisecond)
	if ok, err := mutex.Extend(); !ok || err != nil || !mutex.Until().After(until) {
		t.Fatal(ok, err, mutex.Until(), until)
	}
	if ok, err := mutex.Valid(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	waitForExpiry(t, mutex)
	if ok, err := mutex.Extend(); ok || err != redsync.ErrExtendFailed {
		t.Fatal(ok, err)
	}
	if ok, err := mutex.Unlock(); ok || err != redsync.ErrLockAlreadyExpired {
		t.Fatal(ok, err)
	}
	if ok, err := mutex.Valid(); ok || err != nil {
		t.Fatal(ok, err)
	}
}

func TestMutex_SetNXOnExtend_locks_again_with_the_same_value(t *testing.T) {
	rs := redsync.New(testserver.Start(t).Client())
	mutex := rs.NewMutex("k", redsync.WithExpiry(500*time.Millisecond), redsync.WithSetNXOnExtend())
	lock(t, mutex)
	value := mutex.Value()
	waitForExpiry(t, mutex)
	if ok, err := mutex.Extend(); !ok || err != nil || mutex.Value() != value {
		t.Fatal(ok, err)
	}
	waitForExpiry(t, mutex)
	lock(t, rs.NewMutex("k"))
	if ok, err := mutex.Extend(); ok || err == nil {
		t.Fatal(ok, err)
	}
}

func TestMutex_value_transfers_the_lock(t *testing.T) {
	rs := redsync.New(testserver.Start(t).Client())
	mutex := rs.NewMutex("k", redsync.WithGenValueFunc(func() (string, error) { return "unique", nil }))
	lock(t, mutex)
	other := rs.NewMutex("k", redsync.WithValue("unique"))
	if ok, err := other.Extend(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := other.Unlock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := other.Unlock(); ok || err != redsync.ErrLockAlreadyExpired {
		t.Fatal(ok, err)
	}
}
