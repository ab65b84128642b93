package dlock

import (
	"context"
	"math"
	"time"
)

// releaseTimeout is how long Unlock waits for the server.
const releaseTimeout = 10 * time.Second

// A hold is what an entry has once it is granted.
type hold struct {
	work     context.Context // of the program, which stops the renewals with it
	cancel   context.CancelCauseFunc
	fence    int64 // 0: not granted
	holds    int64 // of the owner
	since    int64 // when it was granted
	deadline int64 // the lease lasts at least until then
	maxEnd   int64 // it is not held longer
	renewal  int64 // when it is to be renewed
	timer    *time.Timer
	lost     error // why it is held no more
}

// granted takes a grant that was requested at t.
func (e *entry) granted(t, fence, holds, leaseMs, waitedMs int64) {
	deadline := safeDeadline(t, waitedMs+leaseMs)
	switch {
	case e.isSettled: // it has the lock, or gives it back
	case deadline <= now():
		e.settle(&LostError{Key: e.key, Reason: "EXPIRED"}, false)
	default:
		e.fence, e.holds, e.deadline, e.since, e.maxEnd = fence, holds, deadline, now(), math.MaxInt64
		if begin := t + waitedMs*1e6; e.maxHold < time.Duration(math.MaxInt64-begin) {
			e.maxEnd = begin + int64(e.maxHold)
		}
		e.problem = nil
		e.setTimer(t + (waitedMs+leaseMs/3)*1e6)
		e.settle(nil, false)
		e.tell(Event{Kind: Acquired, Took: time.Duration(e.since - e.began)})
	}
}

// setTimer has it renewed at a time, and lost at its deadline.
func (e *entry) setTimer(renewal int64) {
	e.renewal = renewal
	next := min(e.deadline, e.maxEnd)
	if e.isRenewed() {
		next = min(next, renewal)
	}
	if left := time.Duration(next - now()); e.timer == nil {
		e.timer = time.AfterFunc(left, e.onTimer)
	} else {
		e.timer.Reset(left)
	}
}

// isRenewed reports whether it is renewed: no longer when the work has ended, as nobody may call Unlock.
func (e *entry) isRenewed() bool { return e.renews && e.work.Err() == nil }

func (e *entry) onTimer() {
	e.core.mu.Lock()
	defer e.core.mu.Unlock()
	if e.check(nil, extending) != nil {
		return
	}
	if e.isRenewed() && now() >= e.renewal {
		e.transmit(e.renewCommand, func(_ *inbox, r reply) { _ = e.extended(r) })
		e.renewal = math.MaxInt64 // until that has an outcome
	}
	e.setTimer(e.renewal)
}

// extend makes the lease at least this long, and has it renewed after a third of it.
func (e *entry) extend(lease time.Duration, done func(error)) {
	if err := e.check(nil, extending); err != nil {
		done(err)
		return
	}
	end := first(done)
	late := e.later(time.Duration(e.deadline-now()), func() {
		if err := e.check(nil, extending); err != nil {
			end(err)
		}
	})
	isOver := func() bool { return e.check(nil, extending) != nil }
	e.repeat(extending, isOver, e.extendCommand(lease), func(r reply) {
		late.Stop()
		end(e.extended(r))
	})
}

// renewCommand returns EXTEND, unless the lock was released meanwhile.
func (e *entry) renewCommand(*inbox) []any {
	if e.lost != nil {
		return nil
	}
	return e.extendCommand(e.lease)
}

func (e *entry) extendCommand(lease time.Duration) []any {
	return []any{"DLOCK.EXTEND", e.key, e.owner, lease.Milliseconds(), "FENCE", e.fence}
}

// extended takes the reply to EXTEND.
func (e *entry) extended(r reply) error {
	if now := now(); e.lost == nil && now < e.deadline {
		renewal := now + min(max((e.deadline-now)/20, 20e6), 250e6)
		if leaseMs, isExtended := r.value.(int64); isExtended {
			e.deadline, renewal = max(e.deadline, safeDeadline(r.t, leaseMs)), r.t+leaseMs/3*1e6
		}
		e.problem = r.err
		e.setTimer(renewal)
	}
	return e.check(r.err, extending)
}

// check returns why the lock is lost, if it is, or else the error.
func (e *entry) check(err error, k kind) error {
	if word := wordOf(err); losses[word]&k != 0 {
		e.lose(&LostError{Key: e.key, Reason: word})
	} else if now := now(); now >= e.maxEnd && e.maxEnd <= e.deadline {
		e.lose(&LostError{Key: e.key, Reason: "MAXHOLD"})
	} else if now >= e.deadline {
		e.lose(&LostError{Key: e.key, Reason: "EXPIRED", Last: e.problem})
	}
	if e.lost != nil {
		return e.lost
	}
	if err != nil {
		return e.told(err)
	}
	return nil
}

// lose ends a hold that its holder does not release.
func (e *entry) lose(cause error) {
	if e.fence != 0 && e.lost == nil {
		e.drop(cause)
		e.cancel(cause)
		e.tellEnd(cause)
		e.giveBack()
	}
}

// drop ends a hold in this process.
func (e *entry) drop(cause error) {
	e.lost = cause
	e.timer.Stop()
}

// release releases a hold that was dropped. If nothing confirms that in time, it goes on until the lease is over.
func (e *entry) release(done func(error)) {
	until := min(e.deadline, now()+int64(releaseTimeout))
	isOver := func() bool { return now() >= until }
	end := first(func(err error) {
		e.tellEnd(err)
		done(err)
	})
	late := e.later(time.Duration(until-now()), func() { end(e.unconfirmed(e.problem)) })
	e.whenReplied(func() {
		e.repeat(releasing, isOver, e.releaseCommand("FENCE", e.fence), func(r reply) {
			late.Stop()
			end(e.released(r.err))
			// STALE: of two copies, between which the lock was broken, each was granted.
			if word := wordOf(r.err); word == "STALE" || e.isAgain(word, releasing) {
				e.giveBackUntil(e.deadline)
			} else {
				e.finish(e.deadline)
			}
		})
	})
}

func (e *entry) unconfirmed(err error) error {
	return &LostError{Key: e.key, Reason: "UNCONFIRMED", Last: err}
}

// first returns a function that passes on what it is called with first.
func first(done func(error)) func(error) {
	isDone := false
	return func(err error) {
		if !isDone {
			isDone = true
			done(err)
		}
	}
}

// released returns what an error in reply to RELEASE means.
func (e *entry) released(err error) error {
	switch word := wordOf(err); {
	case err == nil:
		return nil
	case e.hasCopies, e.isAgain(word, releasing): // an earlier copy may have released it
		return e.unconfirmed(err)
	case losses[word]&releasing != 0:
		return &LostError{Key: e.key, Reason: word}
	}
	return e.told(err)
}

// remaining returns how long it is certainly held.
func (e *entry) remaining() time.Duration {
	if e.check(nil, extending) != nil {
		return 0
	}
	return time.Duration(min(e.deadline, e.maxEnd) - now())
}

func (e *entry) tellEnd(err error) {
	kind := Released
	if err != nil {
		kind = Lost
	}
	e.tell(Event{Kind: kind, Took: time.Duration(now() - e.since), Err: err})
}

// tell tells an event of this lock.
func (e *entry) tell(event Event) {
	event.Key, event.Owner = e.key, e.owner
	e.locker.events.add(event)
}

// safeDeadline returns until when a lease certainly lasts that is in the reply to a request sent at t.
func safeDeadline(t, leaseMs int64) int64 { return t + leaseMs*999_000 - 2_000_000 }
