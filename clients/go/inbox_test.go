package dlock

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
)

// newWaiting returns a request that is about to be sent. The caller has the mutex of the core.
func newWaiting(t *testing.T, locker *Locker, key string) *entry {
	e := &entry{locker: locker, core: locker.core, key: key, settled: make(chan struct{}), pause: minPause}
	e.waits = true
	if err := locker.enroll(e); err != nil {
		t.Fatal(err)
	}
	return e
}

// sentBy returns the keys of the commands in the next batch, and their requests.
func sentBy(k *link) (keys []string, sent []request) {
	for _, r := range k.take() {
		if command := r.command(); command != nil {
			keys, sent = append(keys, command[1].(string)), append(sent, r)
		}
	}
	return keys, sent
}

func TestInbox_new_requests_are_sent_after_those_that_have_waited_for_it(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	locker := New(client)
	c := locker.core
	c.mu.Lock()
	b := c.inboxAt(client)
	// The test sends, and reads.
	b.link.isRunning, b.isRead = true, true
	newWaiting(t, locker, "older").ask()
	c.mu.Unlock()
	_, sent := sentBy(b.link)
	c.mu.Lock()
	b.renew()
	c.mu.Unlock()
	sent[0].done(reply{err: serverError{"NOINBOX no such inbox"}})
	c.mu.Lock()
	b.received(now(), b.name, 0, []any{int64(1), int64(0), []any{}})
	newWaiting(t, locker, "newer").ask()
	c.mu.Unlock()
	var order []string
	for range 3 {
		keys, _ := sentBy(b.link)
		order = append(order, keys...)
	}
	if !slices.Equal(order, []string{"older", "newer"}) {
		t.Fatal(order)
	}
}
