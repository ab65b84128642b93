package dlock

import (
	"sync"
	"time"
)

// An EventKind is what an [Event] is about. Each acquisition ends with Acquired or NotAcquired, and each Acquired with
// Released or Lost.
type EventKind string

const (
	Queued      EventKind = "queued"
	Waiting     EventKind = "waiting"
	Acquired    EventKind = "acquired"
	NotAcquired EventKind = "not acquired"
	Released    EventKind = "released"
	Lost        EventKind = "lost"
)

// An Event is what happened to a lock, for metrics. Waiting is told once a lock was waited for for a second, and not again
// within 10 s by a client; it is logged by [slog], too.
type Event struct {
	Kind       EventKind
	Key, Owner string
	Ahead      int64         // Queued: how many wait before it, counted up to 1 000
	Took       time.Duration // Waiting, Acquired, NotAcquired: the acquisition. Released, Lost: the hold
	Holder     string        // Waiting: who holds the lock, if the server has told that
	Err        error         // NotAcquired, Lost: why
}

// events calls a function with each event, one after the other, without the locks waiting for it.
type events struct {
	onEvent func(Event)

	mu        sync.Mutex
	untold    []Event
	isTelling bool
}

func (e *events) add(event Event) {
	if e.onEvent == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.untold = append(e.untold, event)
	if !e.isTelling {
		e.isTelling = true
		go e.tell()
	}
}

func (e *events) tell() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.untold) > 0 {
		untold := e.untold
		e.untold = nil
		e.mu.Unlock()
		for _, event := range untold {
			e.onEvent(event)
		}
		e.mu.Lock()
	}
	e.isTelling = false
}
