package dlock

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	minPause, maxPause = 10 * time.Millisecond, time.Second // before a repetition
	tryTimeout         = 5 * time.Second                    // of TryLock without a reply
	giveBackTimeout    = 30 * time.Second                   // at least: a server that hangs may grant a lock late
	lateCopies         = 500 * time.Millisecond             // within which lost connections deliver what they had
)

// An entry is one acquisition, from its first request to the last reply.
type entry struct {
	settings
	locker    *Locker
	key       string
	number    uint64 // its request id
	cancel    context.CancelCauseFunc
	hasCopies atomic.Bool   // lost connections may yet deliver a copy of a command, or have done so
	sending   sync.Mutex    // of ACQUIRE: no RELEASE may overtake it
	settled   chan struct{} // closed when it is granted or waits no more

	// Guarded by the mutex of the Locker.
	isSettled bool
	outcome   error  // of the waiting
	sends     int    // of ACQUIRE
	problem   error  // why it is sent again
	inbox     *inbox // in which it waits
	queuedIn  string // the name that the server has for it
	isRefused bool   // by an answer, which may overtake the reply: it is to be sent again
	fence     int64  // 0: not granted
	deadline  int64  // the lease lasts at least until then
	renewal   int64  // when it is to be renewed
	timer     *time.Timer
	lost      error // why it is held no more
}

// enroll enters it into the table, before it is sent: its answer may overtake the reply.
func (e *entry) enroll(l *Locker) error {
	if l.closing.Err() != nil {
		return ErrClosed
	}
	if e.number == 0 {
		l.last++
		e.number = l.last
	}
	if e.owner == "" {
		e.owner = l.owner + strconv.FormatUint(e.number, 36)
	}
	e.locker, e.settled = l, make(chan struct{})
	l.entries[e.number] = e
	l.running.Add(1)
	return nil
}

func (e *entry) end() {
	delete(e.locker.entries, e.number)
	e.locker.running.Done()
}

// acquire waits for the grant.
func (e *entry) acquire(l *Locker, ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := e.enroll(l); err != nil {
		return err
	}
	l.mu.Unlock()
	l.run(e.request)
	select {
	case <-e.settled:
	case <-ctx.Done():
	}
	l.mu.Lock()
	e.settle(errors.Join(ctx.Err(), e.problem), false)
	return e.outcome
}

// settle ends the waiting. After a final error the server has nothing of the request, unless it was sent before.
func (e *entry) settle(outcome error, isFinal bool) {
	if e.isSettled {
		return
	}
	e.isSettled, e.outcome = true, outcome
	close(e.settled)
	if e.sends == 0 || isFinal && e.sends == 1 && !e.hasCopies.Load() {
		e.end()
	} else if outcome != nil {
		go e.giveBack()
	}
}

// request sends ACQUIRE until it has a reply.
func (e *entry) request() {
	for pause := minPause; !e.attempt(false); pause = min(2*pause, maxPause) {
		time.Sleep(pause)
	}
}

// attempt sends ACQUIRE once. It returns false if it has to be sent again. While an inbox is being opened, only that may
// send: a newer request must not be queued before older ones, which found no inbox.
func (e *entry) attempt(opens bool) bool {
	e.sending.Lock()
	defer e.sending.Unlock()
	l := e.locker
	box, err := l.inboxOf(e.key)
	l.mu.Lock()
	defer l.mu.Unlock()
	e.inbox = box
	if err != nil {
		return e.refused(err)
	}
	if e.isSettled || e.waits && (box.isOpening && !opens || e.isQueued(box.name)) {
		return true
	}
	e.sends++
	e.isRefused = false
	name := box.name
	command := append(make([]any, 0, 11), "DLOCK.ACQUIRE", e.key, e.owner, e.lease.Milliseconds(), "REQID", e.number)
	command = append(command, e.mode...)
	if e.waits {
		command = append(command, "QUEUE", name, 0)
	}
	l.mu.Unlock()
	t, reply, err := e.do(command...)
	l.mu.Lock()
	if numbers, _ := reply.([]any); len(numbers) >= 4 {
		e.granted(t, numbers[0].(int64), numbers[2].(int64), numbers[3].(int64))
		return true
	} else if err != nil && wordOf(err) != "NOINBOX" {
		return e.refused(err)
	}
	if e.queuedIn = ""; err == nil {
		e.queuedIn = name
	}
	if !box.isRead {
		box.isRead = true
		if err != nil {
			box.renew()
		}
		go box.listen()
	}
	return e.queuedIn == box.name || box.isOpening && !opens
}

func (e *entry) isQueued(name string) bool { return e.queuedIn == name && !e.isRefused }

// refused takes an error instead of a grant. It returns false if it has to be sent again.
func (e *entry) refused(err error) bool {
	switch {
	case err == redis.Nil:
		e.settle(ErrBusy, true)
	case !e.locker.isTransient(wordOf(err)):
		e.settle(err, true)
	default:
		e.problem = err
		return e.isSettled
	}
	return true
}

// granted takes a grant that was requested at t.
func (e *entry) granted(t, fence, leaseMs, waitedMs int64) {
	deadline := safeDeadline(t, waitedMs+leaseMs)
	switch {
	case e.isSettled: // it has the lock, or gives it back
	case deadline <= now():
		e.settle(lostError{e.key, "EXPIRED"}, false)
	default:
		e.fence, e.deadline = fence, deadline
		e.setTimer(t + (waitedMs+leaseMs/3)*1e6)
		e.settle(nil, false)
	}
}

// setTimer has it renewed at a time, and lost at its deadline.
func (e *entry) setTimer(renewal int64) {
	e.renewal = renewal
	next := e.deadline
	if e.renews {
		next = min(next, renewal)
	}
	if left := time.Duration(next - now()); e.timer == nil {
		e.timer = time.AfterFunc(left, e.onTimer)
	} else {
		e.timer.Reset(left)
	}
}

func (e *entry) onTimer() {
	e.locker.mu.Lock()
	defer e.locker.mu.Unlock()
	if e.check(nil) != nil {
		return
	}
	isDue := e.renews && now() >= e.renewal
	if isDue {
		go e.extend(e.lease)
		e.renewal = math.MaxInt64 // until that has an outcome
	}
	e.setTimer(e.renewal)
}

// extend makes the lease at least this long, and has it renewed after a third of it.
func (e *entry) extend(lease time.Duration) error {
	t, reply, err := e.do("DLOCK.EXTEND", e.key, e.owner, lease.Milliseconds(), "FENCE", e.fence)
	e.locker.mu.Lock()
	defer e.locker.mu.Unlock()
	if now := now(); e.lost == nil && now < e.deadline {
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
		e.lose(lostError{e.key, word})
	} else if now() >= e.deadline {
		e.lose(lostError{e.key, "EXPIRED"})
	}
	if e.lost != nil {
		return e.lost
	}
	return err
}

// lose ends a hold that its holder does not release.
func (e *entry) lose(cause error) {
	if e.fence != 0 && e.lost == nil {
		e.drop(cause)
		e.cancel(cause)
		go e.giveBack()
	}
}

// drop ends a hold in this process.
func (e *entry) drop(cause error) {
	e.lost = cause
	e.timer.Stop()
}

// release releases a hold that was dropped.
func (e *entry) release() error {
	err := e.repeat(e.deadline, "FENCE", e.fence)
	hasCopies, word := e.hasCopies.Load(), wordOf(err)
	switch {
	case err != nil && hasCopies, e.locker.isTransient(word):
		err = lostError{e.key, "UNCONFIRMED"}
	case isLoss(word):
		err = lostError{e.key, word}
	}
	if hasCopies {
		go e.finish()
	} else {
		e.finish()
	}
	return err
}

// giveBack withdraws the request, or releases what it was granted.
func (e *entry) giveBack() {
	_ = e.repeat(e.patience())
	e.finish()
}

// finish releases what lost connections deliver late, and ends the entry.
func (e *entry) finish() {
	for until := e.patience(); e.hasCopies.Swap(false) && now() < until; {
		time.Sleep(lateCopies)
		_ = e.repeat(until)
	}
	e.locker.mu.Lock()
	defer e.locker.mu.Unlock()
	e.end()
}

// patience returns until when it is given back.
func (e *entry) patience() int64 { return now() + int64(max(e.lease, giveBackTimeout)) }

// repeat sends RELEASE until it has a reply, or the time is over.
func (e *entry) repeat(until int64, options ...any) error {
	command := append(append(make([]any, 0, 7), "DLOCK.RELEASE", e.key, e.owner, "REQID", e.number), options...)
	e.sending.Lock()
	defer e.sending.Unlock()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		_, _, err := e.do(command...)
		if !e.locker.isTransient(wordOf(err)) || now() >= until {
			return err
		}
		time.Sleep(pause)
	}
}

// do sends a command once, at t.
func (e *entry) do(command ...any) (t int64, reply any, err error) {
	l := e.locker
	cmd := redis.NewCmd(context.Background(), command...)
	t = now()
	err = l.requests.Process(context.Background(), once{cmd})
	if wordOf(err) == noReply {
		if !isUnsent(err) {
			e.hasCopies.Store(true)
		}
		l.reload()
	}
	return t, cmd.Val(), err
}
