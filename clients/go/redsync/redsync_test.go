package redsync_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"dlock/internal/testserver"
	"dlock/redsync"

	"github.com/redis/go-redis/v9"
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

func TestMutex_value_in_use_is_no_reentry(t *testing.T) {
	server := testserver.Start(t)
	rs := redsync.New(server.Client())
	newMutex := func(options ...redsync.Option) *redsync.Mutex {
		options = append(options, redsync.WithGenValueFunc(func() (string, error) { return "pod-7", nil }))
		return rs.NewMutex("k", options...)
	}
	first := newMutex(redsync.WithExpiry(2 * time.Second))
	lock(t, first)
	var taken *redsync.ErrTaken
	for range 3 {
		if err := newMutex(redsync.WithExpiry(time.Minute)).TryLock(); !errors.As(err, &taken) {
			t.Fatal(err)
		}
	}
	if server.Calls("dlock.acquire") != 1 {
		t.Fatal("a request has extended the lease of the first")
	}
	err := newMutex(redsync.WithTries(3), redsync.WithRetryDelay(20*time.Millisecond)).Lock()
	if !errors.As(err, &taken) {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _, _ = first.Unlock() })
	second := newMutex()
	lock(t, second)
	if ok, err := second.Unlock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	server.HasNothing()
}

func TestMutex_one_of_many_with_the_same_value_has_the_lock(t *testing.T) {
	rs := redsync.New(testserver.Start(t).Client())
	results := make(chan error)
	for range 30 {
		go func() {
			value := redsync.WithGenValueFunc(func() (string, error) { return "pod-7", nil })
			results <- rs.NewMutex("k", value).TryLock()
		}()
	}
	locked := 0
	for range 30 {
		var taken *redsync.ErrTaken
		if err := <-results; err == nil {
			locked++
		} else if !errors.As(err, &taken) {
			t.Error(err)
		}
	}
	if locked > 1 {
		t.Fatal(locked, "have the lock")
	}
}

func TestMutex_outage_is_an_error_of_the_node(t *testing.T) {
	server := testserver.Start(t)
	rs := redsync.New(server.Client())
	mutex := rs.NewMutex("k", redsync.WithTries(2), redsync.WithRetryDelay(200*time.Millisecond))
	lock(t, mutex)
	if ok, err := mutex.Unlock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	server.Pause()
	defer server.Resume()
	var taken *redsync.ErrTaken
	var failure *redsync.RedisError
	if err := mutex.Lock(); !errors.As(err, &failure) || failure.Node != 0 || errors.As(err, &taken) {
		t.Fatal(err)
	}
}

func TestMutex_expiry_longer_than_allowed_is_the_error_of_the_server(t *testing.T) {
	mutex := redsync.New(testserver.Start(t).Client()).NewMutex("k", redsync.WithExpiry(time.Hour))
	var reply redis.Error
	if err := mutex.Lock(); !errors.As(err, &reply) || !strings.HasPrefix(reply.Error(), "ERR") {
		t.Fatal(err)
	}
}

func TestNew_costs_nothing(t *testing.T) {
	server := testserver.Start(t)
	client := server.Client()
	for range 300 {
		mutex := redsync.New(client).NewMutex("k")
		lock(t, mutex)
		if ok, err := mutex.Unlock(); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if count := strings.Count(server.Client().ClientList(context.Background()).Val(), "name=dlock "); count != 1 {
		t.Fatal(count, "connections")
	}
}
