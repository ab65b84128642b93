package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"dlock"
)

func TestLock_lost_replies_count_once(t *testing.T) {
	for _, command := range []string{"ACQUIRE", "RELEASE"} {
		t.Run(command, func(t *testing.T) {
			server := start(t)
			proxy := startProxy(t, server.address)
			locker := newLocker(t, clientOf(t, proxy.address))
			_, held := lock(t, locker, "warm-up")
			unlock(t, held)
			proxy.loseReply(command)
			_, held = lock(t, locker, "k")
			err := held.Unlock(background)
			// A release without a reply was repeated, and found the lock released.
			if command == "RELEASE" && !errors.Is(err, dlock.ErrLost) || command == "ACQUIRE" && err != nil {
				t.Fatal(err)
			}
			if !proxy.hasLost() || server.info("acquired") != "2" || server.info("reentered") != "0" {
				t.Fatal("lost:", proxy.hasLost(), "acquired:", server.info("acquired"))
			}
			server.hasNothing()
		})
	}
}

func TestTryLock_lost_reply_is_repeated(t *testing.T) {
	server := start(t)
	proxy := startProxy(t, server.address)
	locker := newLocker(t, clientOf(t, proxy.address))
	_, held := lock(t, locker, "warm-up")
	unlock(t, held)
	proxy.loseReply("ACQUIRE")
	_, held, err := locker.TryLock(background, "k")
	if err != nil || server.info("acquired") != "2" {
		t.Fatal(err)
	}
	unlock(t, held)
}

func TestHeld_renewals_are_repeated_after_cuts(t *testing.T) {
	server := start(t)
	proxy := startProxy(t, server.address)
	ctx, held := lock(t, newLocker(t, clientOf(t, proxy.address)), "k", dlock.WithLease(300*time.Millisecond))
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(30 * time.Millisecond) {
		proxy.loseReply("EXTEND")
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
	}
	proxy.cut()
	unlock(t, held)
}

func TestLock_waiting_survives_cuts_of_all_connections(t *testing.T) {
	server := start(t)
	proxy := startProxy(t, server.address)
	locker := newLocker(t, clientOf(t, proxy.address))
	_, held := lock(t, newLocker(t, server.client()), "k")
	var group sync.WaitGroup
	for range 50 {
		group.Add(1)
		go func() {
			defer group.Done()
			ctx, held := lock(t, locker, "k", dlock.WithLease(5*time.Second))
			if ctx.Err() != nil {
				t.Error(context.Cause(ctx))
			}
			unlock(t, held)
		}()
	}
	eventually(t, "all wait", func() bool { return server.info("waiters") == "50" })
	for range 3 {
		proxy.cut()
		time.Sleep(50 * time.Millisecond)
	}
	unlock(t, held)
	group.Wait()
	server.hasNothing()
}

func TestLock_grant_whose_answer_is_lost_is_kept(t *testing.T) {
	server := start(t)
	proxy := startProxy(t, server.address)
	locker := newLocker(t, clientOf(t, proxy.address))
	_, first := lock(t, newLocker(t, server.client()), "k")
	granted := make(chan *dlock.Held)
	go func() {
		_, held := lock(t, locker, "k")
		granted <- held
	}()
	eventually(t, "it waits", func() bool { return server.info("waiters") == "1" })
	proxy.loseReply("GRANTS") // of the next call; this one is cut below
	proxy.cut()
	unlock(t, first)
	held := <-granted
	// The first inbox ends without having delivered the grant.
	eventually(t, "that inbox ended", func() bool { return server.info("inboxes_ended") != "0" })
	if err := held.Unlock(background); err != nil {
		t.Fatal(err)
	}
}

func TestLock_waiting_survives_a_restart(t *testing.T) {
	server := start(t)
	locker := newLocker(t, server.client())
	ctx, _ := lock(t, locker, "k")
	granted := make(chan error)
	go func() {
		_, held, err := locker.Lock(background, "k")
		if err == nil {
			err = held.Unlock(background)
		}
		granted <- err
	}()
	eventually(t, "it waits", func() bool { return server.info("waiters") == "1" })
	server.kill()
	server.run()
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	_ = ctx
	server.hasNothing()
}

func TestLock_cancelled_while_the_server_hangs_leaves_nothing(t *testing.T) {
	server := start(t)
	locker := newLocker(t, server.client())
	_, held := lock(t, locker, "warm-up")
	unlock(t, held)
	server.pause()
	ctx, stop := context.WithTimeout(background, 50*time.Millisecond)
	defer stop()
	began := time.Now()
	if _, _, err := locker.Lock(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
		t.Fatal(err, time.Since(began))
	}
	server.resume()
	server.hasNothing()
}

func TestLock_many_goroutines_with_cuts_exclude_each_other(t *testing.T) {
	server := start(t)
	proxy := startProxy(t, server.address)
	locker := newLocker(t, clientOf(t, proxy.address))
	end := time.Now().Add(3 * time.Second)
	var group sync.WaitGroup
	var holders [3]int
	for number := range 30 {
		group.Add(1)
		go func() {
			defer group.Done()
			for time.Now().Before(end) {
				key := number % 3
				_, held, err := locker.Lock(background, fmt.Sprint("k", key), dlock.WithLease(10*time.Second))
				if err != nil {
					t.Error(err)
					return
				}
				holders[key]++ // which the race detector watches, too
				if holders[key] != 1 {
					t.Error("two holders")
				}
				holders[key]--
				_ = held.Unlock(background)
			}
		}()
	}
	for time.Now().Before(end) {
		time.Sleep(100 * time.Millisecond)
		proxy.cut()
	}
	group.Wait()
	server.hasNothing()
}
