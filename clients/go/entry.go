package dlock

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	tryTimeout      = 5 * time.Second        // of TryLock without a reply
	giveBackTimeout = 30 * time.Second       // at least: a server that hangs may grant a lock late
	lateCopies      = 500 * time.Millisecond // within which lost connections deliver what they had
)

// An entry is one acquisition, from its first request to the last reply: it waits, then it is held, then it is over. The
// mutex of the Locker guards what changes.
type entry struct {
	settings
	locker  *Locker
	key     string
	number  uint64 // its request id
	cancel  context.CancelCauseFunc
	settled chan struct{} // closed when it waits no more

	inbox     *inbox      // whose turn it is to send it
	sends     int         // of ACQUIRE
	hasCopies bool        // lost connections may yet deliver a copy of a command, or have done so
	problem   error       // why it is sent again
	delay     *time.Timer // until it is sent again
	fence     int64       // 0: not granted
	deadline  int64       // the lease lasts at least until then
	renewal   int64       // when it is to be renewed
	timer     *time.Timer
	over      error      // why it waits no more, or is held no more
	until     int64      // it is given back until then, if it is over
	released  chan error // for Unlock, which waits for the reply
}

// acquire waits for the grant.
func (e *entry) acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l := e.locker
	if err := l.loadTopology(ctx, e.key); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	box, err := l.inboxOf(e.key)
	if err != nil {
		return err
	}
	if l.isClosing {
		return ErrClosed
	}
	l.last++
	e.number = l.last
	if e.owner == "" {
		e.owner = l.owner + strconv.FormatUint(e.number, 36)
	}
	e.timer = time.AfterFunc(math.MaxInt64, e.onTimer)
	l.enter(e, box)
	l.mu.Unlock()
	select {
	case <-e.settled:
	case <-ctx.Done():
	}
	l.mu.Lock()
	if e.fence == 0 {
		e.abandon(errors.Join(ctx.Err(), e.problem))
	}
	return e.over
}

// send sends what the server does not know yet, in its turn in an inbox. It returns why it has to be sent again.
func (e *entry) send(b *inbox) error {
	box, err := e.locker.inboxOf(e.key)
	switch {
	case e.locker.entries[e.number] != e || e.inbox != b: // all is given back, or another inbox sends it
	case err == nil && box != b:
		e.inbox = box
		box.enqueue(e)
	case e.over != nil:
		return e.giveBack()
	case e.fence == 0:
		return e.request()
	}
	return nil
}

// sendAfter has it sent after a pause, for which other entries do not wait.
func (e *entry) sendAfter(pause time.Duration) {
	if e.delay != nil {
		e.delay.Stop()
	}
	e.delay = time.AfterFunc(pause, func() {
		e.locker.mu.Lock()
		defer e.locker.mu.Unlock()
		e.inbox.enqueue(e)
	})
}

// request sends ACQUIRE. While an inbox is being created, a newer request must not be queued before older ones, which
// found no inbox: the reader has all of them sent then.
func (e *entry) request() error {
	if e.waits && e.inbox.isRead && e.inbox.cursor == 0 {
		return nil
	}
	command := append(make([]any, 0, 11), "DLOCK.ACQUIRE", e.key, e.owner, e.lease.Milliseconds(), "REQID", e.number)
	command = append(command, e.mode...)
	if e.waits {
		command = append(command, "QUEUE", e.inbox.name, 0)
	}
	e.sends++
	t, reply, err := e.do(command...)
	numbers, _ := reply.([]any)
	hasNoInbox := wordOf(err) == "NOINBOX"
	switch {
	case len(numbers) >= 4:
		e.granted(t, numbers[0].(int64), numbers[2].(int64), numbers[3].(int64))
	case err == nil || hasNoInbox:
		if !e.inbox.isRead {
			e.inbox.isRead = true
			if hasNoInbox {
				e.inbox.renew()
			}
			go e.inbox.listen()
		}
		// Another server may have the lock now. Otherwise the reader has it sent.
		if hasNoInbox && e.inbox.cursor != 0 {
			return err
		}
	default:
		return e.failed(err)
	}
	return nil
}

// failed takes an error instead of a grant. It returns the error if the request has to be sent again.
func (e *entry) failed(err error) error {
	if e.locker.isTransient(wordOf(err)) {
		e.problem = err
		return err
	}
	if e.fence != 0 {
		return nil
	}
	if err == redis.Nil {
		err = ErrBusy
	}
	if e.sends == 1 && !e.hasCopies {
		e.sends = 0 // nothing is to be given back
	}
	e.abandon(err)
	return nil
}

// granted takes a grant that was requested at t.
func (e *entry) granted(t, fence, leaseMs, waitedMs int64) {
	if e.over != nil || e.fence != 0 {
		return
	}
	e.deadline = safeDeadline(t, waitedMs+leaseMs)
	if e.deadline <= now() {
		e.abandon(lostError{e.key, "EXPIRED"})
		return
	}
	e.fence = fence
	e.setTimer(t + (waitedMs+leaseMs/3)*1e6)
	close(e.settled)
}

// setTimer has it renewed at a time, and lost at its deadline.
func (e *entry) setTimer(renewal int64) {
	e.renewal = renewal
	if !e.renews {
		e.renewal = math.MaxInt64
	}
	e.timer.Reset(time.Duration(min(e.renewal, e.deadline) - now()))
}

func (e *entry) onTimer() {
	e.locker.mu.Lock()
	defer e.locker.mu.Unlock()
	if e.check(nil) != nil {
		return
	}
	if now() >= e.renewal {
		go e.extend(e.lease)
		e.renewal = math.MaxInt64 // until that has an outcome
	}
	e.setTimer(e.renewal)
}

// extend makes the lease at least this long, and has it renewed after a third of it.
func (e *entry) extend(lease time.Duration) error {
	e.locker.mu.Lock()
	defer e.locker.mu.Unlock()
	if err := e.check(nil); err != nil {
		return err
	}
	t, reply, err := e.do("DLOCK.EXTEND", e.key, e.owner, lease.Milliseconds(), "FENCE", e.fence)
	if now := now(); e.over == nil && now < e.deadline {
		renewal := now + min(max((e.deadline-now)/20, 5e6), 250e6)
		if leaseMs, isExtended := reply.(int64); isExtended {
			e.deadline, renewal = max(e.deadline, safeDeadline(t, leaseMs)), t+leaseMs/3*1e6
		}
		e.setTimer(renewal)
	}
	return e.check(err)
}

// check returns why the lock is lost, if it is, or else the error.
func (e *entry) check(err error) error {
	if word := wordOf(err); isLoss(word) {
		e.abandon(lostError{e.key, word})
	} else if now() >= e.deadline {
		e.abandon(lostError{e.key, "EXPIRED"})
	}
	if e.over != nil {
		return e.over
	}
	return err
}

// abandon ends the waiting or the hold. What the server has of it is given back.
func (e *entry) abandon(cause error) {
	if e.over != nil {
		return
	}
	if e.fence == 0 {
		close(e.settled)
	}
	e.timer.Stop()
	e.cancel(cause)
	e.over, e.until = cause, now()+int64(max(e.lease, giveBackTimeout))
	e.inbox.enqueue(e)
}

// giveBack sends RELEASE, which withdraws the request or releases what it was granted. Late copies are released later.
func (e *entry) giveBack() error {
	l := e.locker
	until := e.until
	command := append(make([]any, 0, 7), "DLOCK.RELEASE", e.key, e.owner, "REQID", e.number)
	if e.released != nil {
		command = append(command, "FENCE", e.fence)
		until = e.deadline
	}
	if e.sends > 0 {
		_, _, err := e.do(command...)
		word := wordOf(err)
		isTransient := l.isTransient(word)
		if isTransient && now() < until {
			return err
		}
		if isTransient || isLoss(word) || err != nil && e.hasCopies { // which may have released it
			err = lostError{e.key, word}
		}
		if e.released != nil {
			e.released <- err
			e.released = nil
		}
	}
	if e.hasCopies && now() < e.until {
		e.hasCopies = false
		e.sendAfter(lateCopies)
	} else {
		delete(l.entries, e.number)
		l.running.Done()
	}
	return nil
}

// do sends a command once, at t. Meanwhile it unlocks the mutex.
func (e *entry) do(command ...any) (t int64, reply any, err error) {
	l := e.locker
	cmd := redis.NewCmd(context.Background(), command...)
	l.mu.Unlock()
	t = now()
	err = l.requests.Process(context.Background(), once{cmd})
	l.mu.Lock()
	if wordOf(err) == noReply {
		e.hasCopies = e.hasCopies || !isUnsent(err)
		l.reload()
	}
	return t, cmd.Val(), err
}
