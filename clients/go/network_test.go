package dlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"dlock"
	"dlock/internal/testserver"
)

// lockAll acquires that many locks at once.
func lockAll(t *testing.T, locker *dlock.Locker, count int, options ...dlock.Option) (works []context.Context, all []*dlock.Held) {
	works, all = make([]context.Context, count), make([]*dlock.Held, count)
	var group sync.WaitGroup
	for number := range count {
		group.Add(1)
		go func() {
			defer group.Done()
			var err error
			if works[number], all[number], err = locker.Lock(background, fmt.Sprint("k", number), options...); err != nil {
				t.Error(err)
			}
		}()
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return works, all
}

func TestLocker_many_locks_over_a_slow_network_are_acquired_together(t *testing.T) {
	const count, roundTrip = 1000, 80 * time.Millisecond
	proxy := testserver.StartSlowProxy(t, testserver.Start(t).Address, roundTrip)
	locker := newLocker(t, testserver.ClientOf(t, proxy.Address))
	began := time.Now()
	_, all := lockAll(t, locker, count)
	if took := time.Since(began); took > count*roundTrip/10 {
		t.Fatal("they are acquired one after the other:", took)
	} else {
		t.Log(took)
	}
	var group sync.WaitGroup
	for _, held := range all {
		group.Add(1)
		go func() {
			defer group.Done()
			if err := held.Unlock(background); err != nil {
				t.Error(err)
			}
		}()
	}
	group.Wait()
}

func TestHeld_many_locks_over_a_slow_network_are_renewed_in_time(t *testing.T) {
	const count, roundTrip, lease = 300, 80 * time.Millisecond, 6 * time.Second
	server := testserver.Start(t)
	proxy := testserver.StartSlowProxy(t, server.Address, roundTrip)
	locker := newLocker(t, testserver.ClientOf(t, proxy.Address))
	works, all := lockAll(t, locker, count, dlock.WithLease(lease))
	// One after the other, they would take a round trip each: four leases for all.
	testserver.Eventually(t, "each is renewed twice", func() bool { return server.Calls("dlock.extend") >= 2*count })
	for number, held := range all {
		if works[number].Err() != nil || held.Remaining() == 0 {
			t.Fatal(number, context.Cause(works[number]))
		}
	}
}
