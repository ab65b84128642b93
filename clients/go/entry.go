package dlock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	minPause, maxPause = 10 * time.Millisecond, time.Second // before a repetition
	tryTimeout         = 9 * time.Second                    // of requests that do not wait, without a reply
	explainTimeout     = 200 * time.Millisecond             // how late a timeout may be because of its cause
	giveBackTimeout    = 30 * time.Second                   // at least: a server that hangs may grant a lock late
	lateCopies         = 500 * time.Millisecond             // within which lost connections deliver what they had

	tellAfter, tellEvery = time.Second, 10 * time.Second // that a lock is waited for
)

// An entry is one request for a lock, from its first copy to the last reply. The mutex of the core guards what changes.
type entry struct {
	settings
	locker    *Locker
	core      *core
	key, id   string
	number    uint64        // the older, the smaller
	began     int64         // of the acquisition, which may have several of them
	settled   chan struct{} // closed when it is granted or waits no more
	isSettled bool
	outcome   error // of the waiting

	inFlight   bool          // an ACQUIRE has no reply yet
	asked      int           // the newest copy: older ones are not sent any more
	asksAgain  bool          // after the reply
	sends      int           // of ACQUIRE
	pause      time.Duration // before the next
	problem    error         // the last error, if nothing better came since
	hasCopies  bool          // lost connections may yet deliver a copy of a command, or have done so
	inbox      *inbox        // in which it waits
	sentName   string        // the name of the inbox in the last copy
	queuedIn   string        // the name that the server has for it
	isRefused  bool          // by an answer, which may overtake the reply: it is to be sent again
	wasQueued  bool
	notice     *time.Timer // tells that it waits
	afterReply func()      // to an ACQUIRE in flight

	hold
}

// acquire waits for the grant.
func (e *entry) acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e.core.mu.Lock()
	defer e.core.mu.Unlock()
	if err := e.locker.enroll(e); err != nil {
		return err
	}
	e.settled, e.pause = make(chan struct{}), minPause
	e.ask()
	e.core.mu.Unlock()
	select {
	case <-e.settled:
	case <-ctx.Done():
	}
	e.core.mu.Lock()
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		e.settle(err, false)
	} else if !e.isSettled {
		e.settle(timeoutError{e.explain()}, false)
	}
	return e.outcome
}

// ask sends ACQUIRE, once the copy on its way has a reply.
func (e *entry) ask() {
	if e.inFlight {
		e.asksAgain = true
		return
	}
	e.asksAgain = false
	e.asked++
	nth := e.asked
	e.transmit(func(b *inbox) []any { return e.acquireIn(b, nth) }, e.onReply)
}

// askIn sends ACQUIRE to the server of this inbox, unless a copy is on its way.
func (e *entry) askIn(b *inbox) {
	if e.inFlight {
		e.asksAgain = true
		return
	}
	e.asked++
	nth := e.asked
	e.transmitTo(b, func(b *inbox) []any { return e.acquireIn(b, nth) }, e.onReply)
}

// acquireIn returns ACQUIRE, if this copy is wanted. While an inbox is being opened, it is not: a newer request must not
// be queued before older ones, which found no inbox.
func (e *entry) acquireIn(b *inbox, nth int) []any {
	if e.isSettled || nth != e.asked || e.inFlight {
		return nil
	}
	if e.waits && (b.isOpening || e.isQueued(b)) {
		return nil
	}
	e.sends++
	e.inFlight, e.isRefused, e.sentName = true, false, b.name
	command := append(make([]any, 0, 11), "DLOCK.ACQUIRE", e.key, e.owner, e.lease.Milliseconds(), "REQID", e.id)
	command = append(command, e.mode()...)
	if e.waits {
		command = append(command, "QUEUE", b.name, 0)
	}
	return command
}

func (e *entry) isQueued(b *inbox) bool { return e.queuedIn == b.name && !e.isRefused }

// onReply takes the reply to ACQUIRE, or the error that it cannot be sent to any server.
func (e *entry) onReply(b *inbox, r reply) {
	if b == nil {
		e.refused(r.err)
		return
	}
	e.inFlight = false
	numbers, _ := r.value.([]any)
	switch {
	case len(numbers) >= 4:
		e.granted(r.t, numbers[0].(int64), numbers[1].(int64), numbers[2].(int64), numbers[3].(int64))
	case r.err == nil:
		e.queued(b, numbers[0].(int64))
	case wordOf(r.err) == "NOINBOX":
		e.foundNoInbox(b)
	default:
		e.refused(r.err)
	}
	if after := e.afterReply; after != nil {
		e.afterReply = nil
		after()
	} else if e.asksAgain && !e.isSettled {
		e.ask()
	}
}

// queued notes that the server has queued it, behind others.
func (e *entry) queued(b *inbox, ahead int64) {
	e.queuedIn, e.problem, e.pause = e.sentName, nil, minPause
	if b.read(); !e.isQueued(b) && !b.isOpening {
		e.asksAgain = true
	}
	if !e.wasQueued && !e.isSettled {
		e.wasQueued = true
		e.tell(Event{Kind: Queued, Ahead: ahead})
		e.notice = e.later(tellAfter-time.Duration(now()-e.began), e.askForHolder)
	}
}

// askForHolder tells who holds the lock that it waits for. Seldom, so that a crowd costs the server nothing.
func (e *entry) askForHolder() {
	if e.isSettled || now() < e.core.tellsAt {
		return
	}
	e.core.tellsAt = now() + int64(tellEvery)
	command := []any{"DLOCK.OWNER", e.key}
	e.inbox.link.send(request{command: func() []any { return command }, done: func(r reply) {
		e.core.mu.Lock()
		defer e.core.mu.Unlock()
		if holder, _ := r.value.(string); !e.isSettled {
			event := Event{Kind: Waiting, Took: time.Duration(now() - e.began), Holder: holder}
			go slog.Info("dlock: waiting for a lock", "key", e.key, "waited", event.Took, "holder", event.Holder)
			e.tell(event)
		}
	}})
}

// foundNoInbox has the inbox opened. Then those that wait are sent again.
func (e *entry) foundNoInbox(b *inbox) {
	e.queuedIn = ""
	switch {
	case !b.isRead:
		b.renew()
		b.read()
	case b.isOpening:
	case e.sentName == b.name: // its reader will find that, or another server has said it
		e.askLater()
	default:
		e.asksAgain = true
	}
}

// refused takes an error instead of a grant.
func (e *entry) refused(err error) {
	switch {
	case e.isSettled:
	case err == redis.Nil:
		e.settle(ErrBusy, true)
	case e.isAgain(wordOf(err), e.kind()):
		e.problem = err
		e.askLater()
	default:
		e.settle(e.told(err), true)
	}
}

// askLater sends ACQUIRE again after a pause, each longer than the one before.
func (e *entry) askLater() {
	e.later(e.pause, func() {
		if !e.isSettled {
			e.ask()
		}
	})
	e.pause = min(2*e.pause, maxPause)
}

// settle ends the waiting. After a final error the server has nothing of the request, unless it was sent before.
func (e *entry) settle(outcome error, isFinal bool) {
	if e.isSettled {
		return
	}
	e.isSettled, e.outcome = true, outcome
	close(e.settled)
	if e.notice != nil {
		e.notice.Stop()
	}
	if e.sends == 0 || isFinal && e.sends == 1 && !e.hasCopies {
		e.end()
	} else if outcome != nil {
		e.giveBack()
	}
}

// explain returns why it is not granted yet. That others hold the lock is said only if the server has said so.
func (e *entry) explain() error {
	b := e.inbox
	switch {
	case e.problem != nil:
		return e.problem
	case b == nil || e.sends == 0:
		return noReplyError{e.locker.server(), errors.New("none to requests before this one")}
	case !e.isQueued(b):
		return noReplyError{b.link.server, errors.New("none to this request")}
	case b.asking != 0 && now()-b.asking > int64(lateAnswers):
		return noReplyError{b.link.server, errors.New("no answers to waiting requests")}
	}
	if err := e.probe(b); again[wordOf(err)]&waiting != 0 {
		return err
	}
	return ErrBusy
}

// probe returns why the server grants nothing: GRACE, or what it says if others hold the lock. It changes nothing.
func (e *entry) probe(b *inbox) error {
	done := make(chan error, 1)
	command := []any{"DLOCK.EXTEND", e.key, e.owner, 1}
	b.link.send(request{command: func() []any { return command }, done: func(r reply) { done <- r.err }})
	e.core.mu.Unlock()
	defer e.core.mu.Lock()
	select {
	case err := <-done:
		return err
	case <-e.settled: // it is granted after all
	case <-time.After(explainTimeout):
	}
	return nil
}

// giveBack withdraws the request, or releases what it was granted, until the server has said so.
func (e *entry) giveBack() { e.giveBackUntil(now() + int64(max(e.lease, giveBackTimeout))) }

func (e *entry) giveBackUntil(until int64) {
	isOver := func() bool { return now() >= until }
	e.whenReplied(func() {
		e.repeat(releasing, isOver, e.releaseCommand(), func(reply) { e.finish(until) })
	})
}

// whenReplied calls a function when no ACQUIRE is on its way, so that no RELEASE overtakes it.
func (e *entry) whenReplied(action func()) {
	if e.inFlight {
		e.afterReply = action
	} else {
		action()
	}
}

// finish releases what lost connections deliver late, and ends the entry.
func (e *entry) finish(until int64) {
	if !e.hasCopies || now() >= until {
		e.end()
		return
	}
	e.hasCopies = false
	e.later(lateCopies, func() { e.giveBackUntil(until) })
}

func (e *entry) end() {
	if e.core.entries[e.id] == e {
		delete(e.core.entries, e.id)
		e.locker.running.Done()
	}
}

func (e *entry) releaseCommand(options ...any) []any {
	return append([]any{"DLOCK.RELEASE", e.key, e.owner, "REQID", e.id}, options...)
}
