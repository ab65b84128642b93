package dlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"dlock"
	"dlock/internal/testserver"

	"github.com/redis/go-redis/v9"
)

func TestLock_lost_replies_count_once(t *testing.T) {
	for _, command := range []string{"ACQUIRE", "RELEASE"} {
		t.Run(command, func(t *testing.T) {
			server := testserver.Start(t)
			proxy := testserver.StartProxy(t, server.Address)
			locker := newLocker(t, testserver.ClientOf(t, proxy.Address))
			_, held := lock(t, locker, "warm-up")
			unlock(t, held)
			proxy.LoseReply(command)
			_, held = lock(t, locker, "k")
			err := held.Unlock(background)
			// A release without a reply was repeated, and found the lock released.
			if command == "RELEASE" && !errors.Is(err, dlock.ErrLost) || command == "ACQUIRE" && err != nil {
				t.Fatal(err)
			}
			if !proxy.HasLost() || server.Info("acquired") != "2" || server.Info("reentered") != "0" {
				t.Fatal("lost:", proxy.HasLost(), "acquired:", server.Info("acquired"))
			}
			server.HasNothing()
		})
	}
}

func TestTryLock_lost_reply_is_repeated(t *testing.T) {
	server := testserver.Start(t)
	proxy := testserver.StartProxy(t, server.Address)
	locker := newLocker(t, testserver.ClientOf(t, proxy.Address))
	_, held := lock(t, locker, "warm-up")
	unlock(t, held)
	proxy.LoseReply("ACQUIRE")
	_, held, err := locker.TryLock(background, "k")
	if err != nil || server.Info("acquired") != "2" {
		t.Fatal(err)
	}
	unlock(t, held)
}

func TestHeld_renewals_are_repeated_after_cuts(t *testing.T) {
	server := testserver.Start(t)
	proxy := testserver.StartProxy(t, server.Address)
	ctx, held := lock(t, newLocker(t, testserver.ClientOf(t, proxy.Address)), "k", dlock.WithLease(3*time.Second))
	for range 3 {
		proxy.LoseReply("EXTEND")
		testserver.Eventually(t, "a reply is lost", proxy.HasLost)
		testserver.Eventually(t, "it is renewed", func() bool { return held.Remaining() > 2500*time.Millisecond })
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
	}
	proxy.Cut()
	unlock(t, held)
}

func TestHeld_Do_is_not_repeated_after_a_lost_reply(t *testing.T) {
	server := testserver.Start(t)
	proxy := testserver.StartProxy(t, server.Address)
	client := redis.NewClient(&redis.Options{Addr: proxy.Address}) // which repeats commands
	defer client.Close()
	_, held := lock(t, newLocker(t, client), "{k}")
	proxy.LoseReply("INCR")
	if err := held.Do(background, "INCR", "{k}:n").Err(); err == nil || !proxy.HasLost() {
		t.Fatal(err)
	}
	if count := server.Client().Get(background, "{k}:n").Val(); count != "1" {
		t.Fatal(count)
	}
	unlock(t, held)
}

func TestLock_lost_answers_are_asked_for_again(t *testing.T) {
	server := testserver.Start(t)
	proxy := testserver.StartProxy(t, server.Address)
	locker := newLocker(t, testserver.ClientOf(t, proxy.Address))
	_, held := lock(t, newLocker(t, server.Client()), "k")
	granted := lockAndUnlock(locker, "k")
	testserver.Eventually(t, "it waits", func() bool { return server.Info("waiters") == "1" })
	calls := server.Calls("dlock.acquire")
	proxy.LoseReply("GRANTS")
	testserver.Eventually(t, "a reply is lost", proxy.HasLost)
	unlock(t, held)
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	if again := server.Calls("dlock.acquire") - calls; again != 0 {
		t.Fatal("requests were repeated:", again)
	}
}

func TestLock_grant_for_an_unknown_request_is_given_back(t *testing.T) {
	server := testserver.Start(t)
	monitor, err := net.Dial("tcp", server.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	fmt.Fprint(monitor, "MONITOR\r\n")
	locker := newLocker(t, server.Client())
	_, held := lock(t, newLocker(t, server.Client()), "k")
	granted := lockAndUnlock(locker, "k")
	inbox, lines := "", bufio.NewScanner(monitor)
	for inbox == "" && lines.Scan() {
		if _, call, isGrants := strings.Cut(lines.Text(), `"DLOCK.GRANTS" "`); isGrants {
			inbox, _, _ = strings.Cut(call, `"`)
		}
	}
	testserver.Eventually(t, "it waits", func() bool { return server.Info("waiters") == "1" })
	unknown := []any{"DLOCK.ACQUIRE", "k", "unknown", 30000, "QUEUE", inbox, 0, "REQID", 1000}
	if err := server.Client().Do(background, unknown...).Err(); err != nil {
		t.Fatal(err)
	}
	unlock(t, held)
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	server.HasNothing()
}

func TestLock_waiting_survives_cuts_of_all_connections(t *testing.T) {
	server := testserver.Start(t)
	proxy := testserver.StartProxy(t, server.Address)
	locker := newLocker(t, testserver.ClientOf(t, proxy.Address))
	_, held := lock(t, newLocker(t, server.Client()), "k")
	var group sync.WaitGroup
	for range 50 {
		group.Add(1)
		go func() {
			defer group.Done()
			ctx, held, err := locker.Lock(background, "k")
			if err == nil {
				err = held.Unlock(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		}()
	}
	testserver.Eventually(t, "all wait", func() bool { return server.Info("waiters") == "50" })
	for range 3 {
		proxy.Cut()
		time.Sleep(50 * time.Millisecond)
	}
	unlock(t, held)
	group.Wait()
	server.HasNothing()
}

func TestLock_grant_whose_answer_is_lost_is_kept(t *testing.T) {
	server := testserver.Start(t)
	proxy := testserver.StartProxy(t, server.Address)
	locker := newLocker(t, testserver.ClientOf(t, proxy.Address))
	_, first := lock(t, newLocker(t, server.Client()), "k")
	granted := make(chan *dlock.Held)
	go func() {
		_, held, _ := locker.Lock(background, "k")
		granted <- held
	}()
	testserver.Eventually(t, "it waits", func() bool { return server.Info("waiters") == "1" })
	proxy.IsDown.Store(true)
	proxy.Cut()
	unlock(t, first)
	testserver.Eventually(t, "it is granted", func() bool { return server.Info("acquired") == "2" })
	proxy.IsDown.Store(false)
	held := <-granted
	// The inbox that has the answer is not read again.
	testserver.Eventually(t, "it ended", func() bool { return server.Info("inboxes_ended") != "0" })
	unlock(t, held)
}

func TestLock_waiting_survives_a_restart(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	lock(t, locker, "k")
	granted := lockAndUnlock(locker, "k")
	testserver.Eventually(t, "it waits", func() bool { return server.Info("waiters") == "1" })
	server.Kill()
	server.Run()
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	server.HasNothing()
}

func TestLock_cancelled_while_the_server_hangs_leaves_nothing(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	_, held := lock(t, locker, "warm-up")
	unlock(t, held)
	server.Pause()
	ctx, stop := context.WithTimeout(background, 50*time.Millisecond)
	defer stop()
	began := time.Now()
	if _, _, err := locker.Lock(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
		t.Fatal(err, time.Since(began))
	}
	server.Resume()
	server.HasNothing()
}

func TestLock_many_goroutines_with_cuts_exclude_each_other(t *testing.T) {
	server := testserver.Start(t)
	proxy := testserver.StartProxy(t, server.Address)
	locker := newLocker(t, testserver.ClientOf(t, proxy.Address))
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
		proxy.Cut()
	}
	group.Wait()
	server.HasNothing()
}
