package dlock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	requestTimeout = 3 * time.Second
	maxBatch       = 1000 // requests without a reply

	minGatherPause, maxGatherPause = 100 * time.Microsecond, 2 * time.Millisecond
	maxStill                       = 3 // pauses in which nothing came, before a burst is sent
)

// idleTimeout is after how long a connection is closed. Tests shorten it.
var idleTimeout = 30 * time.Second

var background = context.Background()

// A link is the connection for requests to one server, opened when there are any. Those that come while others have no
// reply go together after that. Nothing is sent twice.
type link struct {
	connect func() *redis.Client
	server  string // what messages call it
	idle    time.Duration

	roundTrip time.Duration // the last one, known to the goroutine that sends

	mu        sync.Mutex
	unsent    []request
	isRunning bool
	isClosing bool
	wake      chan struct{}
}

// A request is sent once.
type request struct {
	command func() []any // called when it can be sent: nil if that is not wanted any more
	done    func(reply)
}

// A reply is what the server says to a request that was sent after t, or why there is nothing.
type reply struct {
	t     int64
	value any
	err   error
}

func newLink(server string, connect func() *redis.Client) *link {
	return &link{connect: connect, server: server, idle: idleTimeout, wake: make(chan struct{}, 1)}
}

// send never blocks.
func (k *link) send(r request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unsent = append(k.unsent, r)
	k.isClosing = false
	k.run()
}

// close closes the connection once there is nothing to be sent.
func (k *link) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.isClosing = true; k.isRunning {
		k.run()
	}
}

// run has a goroutine look at what is to be done.
func (k *link) run() {
	if !k.isRunning {
		k.isRunning = true
		go k.serve()
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// serve sends requests until none have come for a while.
func (k *link) serve() {
	client, idle := k.connect(), time.NewTimer(k.idle)
	defer client.Close()
	for isIdle := false; !k.rests(isIdle); {
		select {
		case <-k.wake:
			for batch := k.gather(); len(batch) > 0; batch = k.gather() {
				k.exchange(client, batch)
			}
			idle.Reset(k.idle)
		case <-idle.C:
			isIdle = true
		}
	}
}

// rests reports whether there is nothing to be sent, and the connection is to be closed.
func (k *link) rests(isIdle bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isRunning = len(k.unsent) > 0 || !isIdle && !k.isClosing
	return !k.isRunning
}

// gather takes what is to be sent. Over a slow network it waits first, as long as more comes: a burst then shares a round
// trip, of which the pauses are a small part.
func (k *link) gather() []request {
	pause := min(k.roundTrip/32, maxGatherPause)
	if pause < minGatherPause {
		return k.take()
	}
	for before, still := k.count(), 0; before < maxBatch && still < min(before, maxStill); {
		time.Sleep(pause)
		count := k.count()
		if still++; count > before {
			still = 0
		}
		before = count
	}
	return k.take()
}

func (k *link) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.unsent)
}

func (k *link) take() []request {
	k.mu.Lock()
	defer k.mu.Unlock()
	count := min(len(k.unsent), maxBatch)
	batch := k.unsent[:count:count]
	if k.unsent = k.unsent[count:]; len(k.unsent) == 0 {
		k.unsent = nil
	}
	return batch
}

// exchange sends requests together, and takes their replies.
func (k *link) exchange(client *redis.Client, batch []request) {
	commands, sent := make([]redis.Cmder, 0, len(batch)), batch[:0]
	for _, r := range batch {
		if args := r.command(); args != nil {
			commands, sent = append(commands, redis.NewCmd(background, args...)), append(sent, r)
		}
	}
	if len(commands) == 0 {
		return
	}
	// A single one, too: go-redis may have other connections for pipelines.
	pipeline := client.Pipeline()
	_ = pipeline.BatchProcess(background, commands...)
	t := now()
	_, failure := pipeline.Exec(background)
	k.roundTrip = time.Duration(now() - t)
	for number, command := range commands {
		sent[number].done(k.replyOf(t, command.(*redis.Cmd), failure))
	}
}

// replyOf returns what there is for a command. A failure of the connection may be told beside a reply that came before,
// or not at all.
func (k *link) replyOf(t int64, command *redis.Cmd, failure error) reply {
	value, err := command.Val(), command.Err()
	if value != nil {
		return reply{t: t, value: value}
	}
	if err == nil {
		err = failure
	}
	return reply{t: t, err: explained(err, k.server)}
}
