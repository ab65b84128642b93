package dlock

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// transmit sends a command once, to the server that has the key now. It is called with the mutex of the core, as its
// functions are. The inbox is nil if no server is known.
func (e *entry) transmit(command func(*inbox) []any, done func(*inbox, reply)) {
	e.locker.route(e.key, func(b *inbox, err error) {
		if err != nil {
			done(nil, reply{err: err})
			return
		}
		e.transmitTo(b, command, done)
	})
}

// transmitTo sends a command once, to the server of this inbox.
func (e *entry) transmitTo(b *inbox, command func(*inbox) []any, done func(*inbox, reply)) {
	mu, args := &e.core.mu, []any(nil)
	// Already now: if the inbox is opened before it is sent, it has its place among the others.
	e.inbox = b
	b.link.send(request{
		command: func() []any {
			mu.Lock()
			defer mu.Unlock()
			args = command(b)
			return args
		},
		done: func(r reply) {
			mu.Lock()
			defer mu.Unlock()
			if word := wordOf(r.err); e.locker.cluster != nil && (word == "MOVED" || word == "ASK") {
				go e.redirect(b, args, done)
				return
			}
			e.received(b, r, done)
		},
	})
}

func (e *entry) received(b *inbox, r reply, done func(*inbox, reply)) {
	word := wordOf(r.err)
	if word == noReply && !isUnsent(r.err) {
		e.hasCopies = true
	}
	if again[word]&releasing != 0 { // another server may have the lock now
		e.locker.reload()
	}
	done(b, r)
}

// redirect has go-redis send a command to the server that another one has named.
func (e *entry) redirect(b *inbox, args []any, done func(*inbox, reply)) {
	t, command := now(), redis.NewCmd(background, args...)
	err := e.locker.cluster.Process(background, once{command})
	e.core.mu.Lock()
	defer e.core.mu.Unlock()
	e.received(b, reply{t, command.Val(), explained(err, e.locker.server())}, done)
}

// repeat sends a command until it has a reply, or another error than those after which it is sent again.
func (e *entry) repeat(k kind, isOver func() bool, command []any, done func(reply)) {
	pause := minPause
	var send func()
	send = func() {
		e.transmit(func(*inbox) []any { return command }, func(_ *inbox, r reply) {
			if !e.isAgain(wordOf(r.err), k) || isOver() {
				done(r)
				return
			}
			e.problem = r.err
			e.later(pause, send)
			pause = min(2*pause, maxPause)
		})
	}
	send()
}

// isAgain reports whether a request is sent again after an error with this word.
func (e *entry) isAgain(word string, k kind) bool {
	switch word {
	case noReply: // before the first connection, the address may be wrong
		return e.core.isConnected.Load() && again[word]&k != 0
	case "MOVED", "ASK":
		return e.locker.cluster != nil
	}
	return again[word]&k != 0
}

// told returns an error as the caller is told it.
func (e *entry) told(err error) error {
	if word := wordOf(err); e.locker.cluster == nil && (word == "MOVED" || word == "ASK") {
		return serverError{err.Error() + ": the server belongs to a cluster: use redis.NewClusterClient"}
	}
	return err
}

// later calls a function with the mutex.
func (e *entry) later(after time.Duration, action func()) *time.Timer {
	return time.AfterFunc(after, func() {
		e.core.mu.Lock()
		defer e.core.mu.Unlock()
		action()
	})
}
