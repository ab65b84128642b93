package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"dlock"
	"dlock/internal/testserver"

	"github.com/redis/go-redis/v9"
)

// wordsOf returns the table of errors in the documentation: what follows from each word for each kind of request.
func wordsOf(t *testing.T) map[string][]string {
	page, err := os.ReadFile("../../docs/client-authors.md")
	if err != nil {
		t.Skip(err)
	}
	_, section, _ := strings.Cut(string(page), "## Errors")
	table := map[string][]string{}
	for _, line := range strings.Split(section, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 6 || cells[0] == "first word" || cells[0] == "no reply" {
			continue
		}
		for _, word := range strings.Split(cells[0], ", ") {
			table[word] = cells[1:]
		}
	}
	if len(table) < 20 {
		t.Fatal("the table is not found:", table)
	}
	return table
}

func TestErrors_have_the_consequences_of_the_table(t *testing.T) {
	proxy := testserver.StartProxy(t, testserver.Start(t).Address)
	client := testserver.ClientOf(t, proxy.Address)
	locker := newLocker(t, client)
	held := func() *dlock.Held {
		_, held := lock(t, locker, "k")
		return held
	}
	acquire := func(lock func(context.Context, string, ...dlock.Option) (context.Context, *dlock.Held, error)) error {
		_, held, err := lock(background, "k")
		if err == nil {
			err = held.Unlock(background)
		}
		return err
	}
	kinds := []struct {
		command string
		run     func() error
	}{
		{"DLOCK.ACQUIRE", func() error { return acquire(locker.Lock) }},
		{"DLOCK.ACQUIRE", func() error { return acquire(locker.TryLock) }},
		{"DLOCK.EXTEND", func() error {
			held := held()
			defer held.Unlock(background)
			return held.Extend(background, time.Minute)
		}},
		{"DLOCK.RELEASE", func() error { return held().Unlock(background) }},
		{"DLOCK.GUARD", func() error {
			held := held()
			defer held.Unlock(background)
			return held.Do(background, "PING").Err()
		}},
	}
	if err := acquire(locker.Lock); err != nil { // the connection is open
		t.Fatal(err)
	}
	for word, consequences := range wordsOf(t) {
		if word == "every other word" {
			word = "OTHER"
		}
		for number, kind := range kinds {
			expected := consequences[number]
			if expected == "never" {
				continue
			}
			if word == "MOVED" || word == "ASK" {
				expected = "told" // this is no cluster
			}
			// The lock stays held in the server if its release is refused for good, or is released in the background.
			client.Del(background, "k")
			if err := acquire(locker.Lock); err != nil {
				t.Fatal(err)
			}
			proxy.Refuse(kind.command, word+" as the test says")
			seen := consequenceOf(kind.run(), word)
			if seen != expected || !proxy.HasRefused() {
				t.Errorf("%s in reply to %s (column %d): %s instead of %s", word, kind.command, number+1, seen, expected)
			}
		}
	}
}

func consequenceOf(err error, word string) string {
	var lost *dlock.LostError
	var reply redis.Error
	switch {
	case err == nil:
		return "again"
	case errors.As(err, &lost) && lost.Reason == word:
		return "lost"
	case errors.As(err, &reply) && strings.HasPrefix(reply.Error(), word):
		return "told"
	}
	return err.Error()
}

func TestErrors_arguments_that_make_no_sense_are_refused_before_anything_is_sent(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	for name, options := range map[string][]dlock.Option{
		"lease":    {dlock.WithLease(0)},
		"negative": {dlock.WithLease(-1)},
		"timeout":  {dlock.WithTimeout(-1)},
		"hold":     {dlock.WithMaxHold(0)},
		"both":     {dlock.WithShared(), dlock.WithLimit(2)},
		"limit":    {dlock.WithLimit(0)},
		"large":    {dlock.WithLimit(1 << 31)},
		"owner":    {dlock.WithOwner("")},
		"long":     {dlock.WithOwner(strings.Repeat("x", 513))},
	} {
		if _, _, err := locker.Lock(background, "k", options...); !errors.Is(err, dlock.ErrInvalid) {
			t.Error(name, err)
		}
	}
	if _, _, err := locker.Lock(background, ""); !errors.Is(err, dlock.ErrInvalid) {
		t.Error("an empty key:", err)
	}
	if _, _, err := locker.TryLock(background, "k", dlock.WithTimeout(time.Second)); !errors.Is(err, dlock.ErrInvalid) {
		t.Error("a timeout that TryLock does not have:", err)
	}
	if calls := server.Calls("dlock.acquire"); calls != 0 {
		t.Fatal(calls, "requests were sent")
	}
	_, held := lock(t, locker, "k", dlock.WithLease(time.Nanosecond*1_500_000_001)) // rounded up
	if err := held.Extend(background, 0); !errors.Is(err, dlock.ErrInvalid) {
		t.Error(err)
	}
	unlock(t, held)
}

func TestErrors_clients_of_another_kind_are_refused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), ring} {
		locker := dlock.New(client)
		_, _, err := locker.Lock(background, "k")
		if !errors.Is(err, dlock.ErrInvalid) || !strings.Contains(err.Error(), "redis.NewClusterClient") {
			t.Error(err)
		}
		if err := locker.Close(background); err != nil {
			t.Error(err)
		}
	}
}

func TestErrors_server_without_the_module_is_named(t *testing.T) {
	server := testserver.StartWithoutModule(t)
	_, _, err := newLocker(t, server.Client()).Lock(background, "k")
	if err == nil || !strings.Contains(err.Error(), server.Address+" does not have the DLOCK module") {
		t.Fatal(err)
	}
}

func TestErrors_lease_longer_than_allowed_is_the_error_of_the_server(t *testing.T) {
	_, _, err := newLocker(t, testserver.Start(t).Client()).Lock(background, "k", dlock.WithLease(1<<63-1))
	if reply := redis.Error(nil); !errors.As(err, &reply) || !strings.HasPrefix(reply.Error(), "ERR") {
		t.Fatal(err)
	}
}

func TestErrors_lease_shorter_than_the_network_is_lost_after_ten_grants(t *testing.T) {
	server := testserver.Start(t)
	proxy := testserver.StartSlowProxy(t, server.Address, 40*time.Millisecond)
	locker := newLocker(t, testserver.ClientOf(t, proxy.Address))
	_, _, err := locker.Lock(background, "k", dlock.WithLease(10*time.Millisecond))
	var lost *dlock.LostError
	if !errors.As(err, &lost) || lost.Reason != "EXPIRED" {
		t.Fatal(err)
	}
	if calls := server.Calls("dlock.acquire"); calls != 10 {
		t.Fatal(calls)
	}
	server.HasNothing()
}

func TestErrors_renewal_that_is_not_permitted_is_the_last_error_of_the_loss(t *testing.T) {
	server := testserver.Start(t)
	rules := []any{"ACL", "SETUSER", "app", "on", ">secret", "~*", "+dlock.acquire", "+dlock.release"}
	if err := server.Client().Do(background, rules...).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Address, Username: "app", Password: "secret"})
	defer client.Close()
	ctx, _ := lock(t, newLocker(t, client), "k", dlock.WithLease(500*time.Millisecond))
	<-ctx.Done()
	var lost *dlock.LostError
	if cause := context.Cause(ctx); !errors.As(cause, &lost) || lost.Reason != "EXPIRED" ||
		!strings.Contains(fmt.Sprint(lost.Last), "NOPERM") || !strings.Contains(cause.Error(), "NOPERM") {
		t.Fatal(cause)
	}
}

func TestTimeout_of_a_lock_that_others_hold_says_so(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	_, held := lock(t, locker, "k")
	for _, timeout := range []time.Duration{0, 50 * time.Millisecond} {
		_, _, err := locker.Lock(background, "k", dlock.WithTimeout(timeout))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, dlock.ErrBusy) {
			t.Fatal(timeout, err)
		}
	}
	unlock(t, held)
	_, held = lock(t, locker, "k", dlock.WithTimeout(0))
	unlock(t, held)
}

func TestTimeout_in_a_grace_period_says_so(t *testing.T) {
	server := testserver.Start(t, "--dlock.startup-grace-ms", "20000")
	_, _, err := newLocker(t, server.Client()).Lock(background, "k", dlock.WithTimeout(200*time.Millisecond))
	reply := redis.Error(nil)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &reply) || !strings.HasPrefix(reply.Error(), "GRACE") {
		t.Fatal(err)
	}
}

func TestTimeout_without_a_reply_does_not_say_that_others_hold_the_lock(t *testing.T) {
	server := testserver.Start(t)
	locker := newLocker(t, server.Client())
	_, held := lock(t, locker, "warm-up")
	unlock(t, held)
	server.Pause()
	defer server.Resume()
	_, _, err := locker.Lock(background, "k", dlock.WithTimeout(100*time.Millisecond))
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, dlock.ErrNoReply) || errors.Is(err, dlock.ErrBusy) {
		t.Fatal(err)
	}
}

func TestTimeout_after_an_error_that_is_over_does_not_name_it(t *testing.T) {
	server := testserver.Start(t)
	proxy := testserver.StartProxy(t, server.Address)
	locker := newLocker(t, testserver.ClientOf(t, proxy.Address))
	_, held := lock(t, locker, "k")
	proxy.Refuse("DLOCK.ACQUIRE", "TRYAGAIN as the test says")
	_, _, err := locker.Lock(background, "k", dlock.WithTimeout(500*time.Millisecond))
	if !errors.Is(err, dlock.ErrBusy) || strings.Contains(err.Error(), "TRYAGAIN") || !proxy.HasRefused() {
		t.Fatal(err)
	}
	unlock(t, held)
}
