// The driver of the Go client for the conformance kit: it reads commands and writes results, as JSON lines.
//
//	go run ./conformance redis://127.0.0.1:7379/
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"dlock"

	"github.com/redis/go-redis/v9"
)

type command struct {
	ID         int            `json:"id"`
	Do         string         `json:"do"`
	Key        any            `json:"key"`
	KeyHex     string         `json:"key_hex"`
	Lease      any            `json:"lease_ms"`
	Timeout    any            `json:"timeout_ms"`
	MaxHold    any            `json:"max_hold_ms"`
	Limit      any            `json:"limit"`
	Shared     bool           `json:"shared"`
	Owner      *string        `json:"owner"`
	Renew      *bool          `json:"renew"`
	Options    map[string]any `json:"options"`
	Of         int            `json:"of"`
	Command    []any          `json:"command"`
	Ms         int64          `json:"ms"`
	Times      int            `json:"times"`
	Fails      bool           `json:"fails"`
	SameClient bool           `json:"same_client"`
	Locks      int            `json:"locks"`
	Prefix     string         `json:"prefix"`
}

type result map[string]any

// An acquisition is a lock, or the waiting for it.
type acquisition struct {
	ctx    context.Context
	cancel context.CancelFunc
	held   *dlock.Held
}

type driver struct {
	client       redis.UniversalClient
	many         many
	locker       *dlock.Locker
	mu           sync.Mutex
	acquisitions map[int]*acquisition
	output       *json.Encoder
}

func main() {
	client, err := clientOf(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	d := driver{
		client:       client,
		acquisitions: map[int]*acquisition{},
		output:       json.NewEncoder(os.Stdout),
	}
	d.locker = dlock.New(client, dlock.WithEvents(d.tellWaiting))
	d.write(result{"driver": "go", "renews_while_blocked": true})
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		var c command
		if err := json.Unmarshal(input.Bytes(), &c); err != nil {
			log.Fatal(err)
		}
		if c.Do == "close" {
			d.close()
			d.answer(c, result{"ok": true})
			return
		}
		d.run(c)
	}
	d.close()
}

func (d *driver) tellWaiting(event dlock.Event) {
	if event.Kind != dlock.Waiting {
		return
	}
	told := result{"event": "waiting", "key": event.Key, "holder": event.Holder, "waited_ms": event.Took.Milliseconds()}
	if event.Holder == "" {
		told["holder"] = nil
	}
	d.write(told)
}

// clientOf returns a client of a server, of a cluster, or of the primary "main" that a Sentinel knows.
func clientOf(address string) (redis.UniversalClient, error) {
	kind, place, _ := strings.Cut(strings.TrimSuffix(address, "/"), "://")
	switch kind {
	case "redis+cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{place}}), nil
	case "redis+sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{place}}), nil
	}
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(options), nil
}

// run carries out a command. It goes on in the background if that may take time.
func (d *driver) run(c command) {
	d.mu.Lock()
	of := d.acquisitions[c.Of]
	d.mu.Unlock()
	switch c.Do {
	case "acquire", "try":
		of = &acquisition{}
		of.ctx, of.cancel = context.WithCancel(context.Background())
		d.mu.Lock()
		d.acquisitions[c.ID] = of
		d.mu.Unlock()
		go func() { d.answer(c, d.acquire(c, of)) }()
	case "cancel":
		of.cancel()
		d.answer(c, result{"ok": true})
	case "release":
		go func() { d.answer(c, outcome(of.held.Unlock(context.Background()), "released", true)) }()
	case "state":
		remaining := of.held.Remaining()
		state := result{"held": remaining > 0, "remaining_ms": remaining.Milliseconds()}
		if remaining > 0 {
			state["fence"] = of.held.Fence()
		}
		d.answer(c, state)
	case "query":
		go func() {
			reply, err := of.held.Do(context.Background(), c.Command...).Result()
			if err == redis.Nil {
				err = nil
			}
			d.answer(c, outcome(err, "reply", reply))
		}()
	case "extend":
		if lease, isDuration := durationOf(c.Lease); !isDuration {
			d.answer(c, result{"skipped": true})
		} else {
			go func() { d.answer(c, outcome(of.held.Extend(context.Background(), lease), "extended", true)) }()
		}
	case "churn":
		go func() { d.answer(c, d.churn(c)) }()
	case "resources":
		d.answer(c, resources())
	case "hold_many":
		go func() { d.answer(c, d.many.hold(d.locker, c)) }()
	case "release_many":
		go func() { d.answer(c, d.many.release()) }()
	case "block":
		end := time.Now().Add(time.Duration(c.Ms) * time.Millisecond)
		go func() {
			for time.Now().Before(end) {
			}
		}()
		time.Sleep(time.Until(end))
		d.answer(c, result{"ok": true})
	default:
		d.answer(c, result{"error": "UNKNOWN"})
	}
}

func (d *driver) acquire(c command, a *acquisition) result {
	options, key, isExpressible := c.arguments()
	if !isExpressible {
		return result{"skipped": true}
	}
	lock := d.locker.Lock
	if c.Do == "try" {
		lock = d.locker.TryLock
	}
	work, held, err := lock(a.ctx, key, options...)
	switch {
	case a.ctx.Err() != nil:
		if err == nil {
			_ = held.Unlock(work)
		}
		return result{"cancelled": true}
	case c.Do == "acquire" && errors.Is(err, context.DeadlineExceeded), errors.Is(err, dlock.ErrBusy):
		return result{"held": false, "because": wordOf(err)}
	case err != nil:
		return outcome(err, "", nil)
	}
	a.held = held
	context.AfterFunc(work, func() {
		if cause := context.Cause(work); errors.Is(cause, dlock.ErrLost) && !errors.Is(cause, dlock.ErrClosed) {
			event := outcome(cause, "", nil)
			delete(event, "lost")
			event["event"], event["of"] = "lost", c.ID
			d.write(event)
		}
	})
	return result{"held": true, "fence": held.Fence()}
}

// outcome is the result of a command with this value, or this error.
func outcome(err error, name string, value any) result {
	var lost *dlock.LostError
	switch {
	case err == nil:
		return result{name: value}
	case errors.As(err, &lost):
		answer := result{"lost": true, "because": lost.Reason}
		if lost.Last != nil {
			answer["last"] = wordOf(lost.Last)
		}
		return answer
	}
	return result{"error": wordOf(err)}
}

// wordOf returns the word of an error, or of the cause of a timeout.
func wordOf(err error) string {
	var reply redis.Error
	switch {
	case errors.Is(err, dlock.ErrInvalid):
		return "ARGUMENT"
	case errors.Is(err, dlock.ErrBusy):
		return "TAKEN"
	case errors.As(err, &reply):
		word, _, _ := strings.Cut(reply.Error(), " ")
		return word
	}
	return "CONNECTION"
}

func (d *driver) close() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	if err := d.locker.Close(ctx); err != nil {
		log.Print(err)
	}
}

func (d *driver) answer(c command, r result) {
	r["id"] = c.ID
	d.write(r)
}

func (d *driver) write(r result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.output.Encode(r); err != nil {
		log.Fatal(err)
	}
}
