package dlock

import (
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	blockMs       = 2000 // how long GRANTS waits: less than an inbox lasts without it, 5 s
	answerTimeout = blockMs*time.Millisecond + 2*time.Second
	lateAnswers   = blockMs*time.Millisecond + 500*time.Millisecond // after which no answers can come
)

// An inbox receives the answers of one server. The mutex of the core guards it.
type inbox struct {
	core      *core
	link      *link         // for requests to the same server
	options   redis.Options // of its connections
	name      string        // another one after NOINBOX
	cursor    int64         // 0: the server does not have it
	isRead    bool          // while somebody waits
	isOpening bool          // until those who wait are sent with this name
	asking    int64         // when a GRANTS was sent that has no reply, or 0
}

// read has it read, if it is not.
func (b *inbox) read() {
	if !b.isRead {
		b.isRead = true
		go b.listen()
	}
}

// renew replaces an inbox that has ended. Requests with its former name can then not be queued before older ones.
func (b *inbox) renew() { b.name, b.cursor, b.isOpening = randomName(), 0, true }

// end ends it in the server, too. Nobody waits.
func (b *inbox) end() {
	if b.cursor == 0 {
		return
	}
	command := []any{"DLOCK.GRANTS", b.name, b.cursor, "TTL", 0}
	b.link.send(request{command: func() []any { return command }, done: func(reply) {}})
	b.name, b.cursor = randomName(), 0
}

// listen reads it while somebody waits.
func (b *inbox) listen() {
	c := b.core
	client := c.connect(b.options, answerTimeout)
	defer client.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for pause, hasAnswers := minPause, true; hasAnswers || len(c.waitingIn(b)) > 0; {
		name, cursor := b.name, b.cursor
		t := now()
		if b.asking == 0 {
			b.asking = t
		}
		c.mu.Unlock()
		parts, err := client.Do(background, grants(name, cursor)...).Slice()
		c.mu.Lock()
		if err == nil {
			hasAnswers, pause = b.received(t, name, cursor, parts), minPause
			continue
		}
		b.failed(name, explained(err, b.link.server))
		c.mu.Unlock()
		time.Sleep(pause)
		c.mu.Lock()
		hasAnswers, pause = false, min(2*pause, maxPause)
	}
	b.isRead, b.isOpening, b.asking = false, false, 0
	if b.cursor == 0 { // the server may have it all the same, but not for long
		b.name = randomName()
	}
}

// grants returns the command that asks for answers.
func grants(name string, cursor int64) []any {
	if cursor == 0 {
		return []any{"DLOCK.GRANTS", name, 0}
	}
	return []any{"DLOCK.GRANTS", name, cursor, "BLOCK", blockMs}
}

// received takes the reply to a call that was sent at t, and returns whether it has answers.
func (b *inbox) received(t int64, name string, cursor int64, parts []any) bool {
	b.asking = 0
	answers := parts[2].([]any)
	for _, answer := range answers {
		b.onAnswer(t, parts[1].(int64), answer.([]any))
	}
	if name != b.name { // it was ended meanwhile
		return false
	}
	if b.cursor = parts[0].(int64); cursor == 0 {
		b.isOpening = true
		b.link.send(request{command: b.open})
	}
	return len(answers) > 0
}

// failed takes an error instead of answers. Unless the inbox has ended, the same call is made again.
func (b *inbox) failed(name string, err error) {
	switch word := wordOf(err); {
	case word == "NOINBOX", word == "BUSYINBOX":
		if name == b.name {
			b.renew()
		}
	default:
		for _, e := range b.core.waitingIn(b) {
			if !e.isAgain(word, waiting) {
				e.settle(err, false)
			} else if e.locker.cluster != nil { // where another server may have the lock now
				e.locker.reload()
				e.ask()
			}
		}
	}
}

// open sends all requests that wait, the oldest first: as no other request is on its way now, all that were not queued
// are known. It sends nothing itself.
func (b *inbox) open() []any {
	b.core.mu.Lock()
	defer b.core.mu.Unlock()
	b.isOpening = false
	for _, e := range b.core.waitingIn(b) {
		if !e.isQueued(b) {
			e.askIn(b)
		}
	}
	return nil
}

// onAnswer takes an answer to a call that was sent at t.
func (b *inbox) onAnswer(t, waitedMs int64, answer []any) {
	word, id, key, owner := answer[0].(string), answer[1].(string), answer[2].(string), answer[3].(string)
	e := b.core.entries[id]
	isKnown := e != nil && e.key == key && e.owner == owner && (!e.isSettled || e.outcome == nil)
	switch {
	case isKnown && word == "granted":
		e.granted(t, answer[4].(int64), answer[5].(int64), answer[6].(int64), waitedMs)
	case word == "granted": // nobody waits for it
		b.giveBack(now()+int64(giveBackTimeout), "DLOCK.RELEASE", key, owner, "REQID", id)
	case !isKnown || e.isSettled:
	case word == "error":
		e.isRefused = true
		e.refused(serverError{answer[4].(string)})
	case word == "timeout", word == "withdrawn":
		e.isRefused = true
		e.ask()
	}
}

// giveBack sends a RELEASE until it has a reply, or the time is over.
func (b *inbox) giveBack(until int64, command ...any) {
	b.link.send(request{
		command: func() []any { return command },
		done: func(r reply) {
			if again[wordOf(r.err)]&releasing != 0 && now() < until {
				time.AfterFunc(maxPause, func() { b.giveBack(until, command...) })
			}
		},
	})
}
