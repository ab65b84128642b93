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
	ID      int    `json:"id"`
	Do      string `json:"do"`
	Key     string `json:"key"`
	Lease   int64  `json:"lease_ms"`
	Timeout int64  `json:"timeout_ms"`
	Shared  bool   `json:"shared"`
	Limit   int    `json:"limit"`
	Of      int    `json:"of"`
	Command []any  `json:"command"`
	Ms      int64  `json:"ms"`
}

type result map[string]any

// An acquisition is a lock, or the waiting for it.
type acquisition struct {
	ctx    context.Context
	cancel context.CancelFunc
	held   *dlock.Held
}

type driver struct {
	locker       *dlock.Locker
	mu           sync.Mutex
	acquisitions map[int]*acquisition
	output       *json.Encoder
}

func main() {
	options, err := redis.ParseURL(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	d := driver{
		locker:       dlock.New(redis.NewClient(options)),
		acquisitions: map[int]*acquisition{},
		output:       json.NewEncoder(os.Stdout),
	}
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
	options := []dlock.Option{
		dlock.WithLease(time.Duration(c.Lease) * time.Millisecond),
		dlock.WithTimeout(time.Duration(c.Timeout) * time.Millisecond),
	}
	if c.Shared {
		options = append(options, dlock.WithShared())
	}
	if c.Limit > 0 {
		options = append(options, dlock.WithLimit(c.Limit))
	}
	lock := d.locker.Lock
	if c.Do == "try" {
		lock = d.locker.TryLock
	}
	work, held, err := lock(a.ctx, c.Key, options...)
	switch {
	case a.ctx.Err() != nil:
		if err == nil {
			_ = held.Unlock(work)
		}
		return result{"cancelled": true}
	case c.Do == "acquire" && errors.Is(err, context.DeadlineExceeded), errors.Is(err, dlock.ErrBusy):
		return result{"held": false}
	case err != nil:
		return outcome(err, "", nil)
	}
	a.held = held
	context.AfterFunc(work, func() {
		if errors.Is(context.Cause(work), dlock.ErrLost) {
			d.write(result{"event": "lost", "of": c.ID})
		}
	})
	return result{"held": true, "fence": held.Fence()}
}

// outcome is the result of a command with this value, or this error.
func outcome(err error, name string, value any) result {
	var reply redis.Error
	switch {
	case err == nil:
		return result{name: value}
	case errors.Is(err, dlock.ErrLost):
		return result{"lost": true}
	case errors.As(err, &reply):
		word, _, _ := strings.Cut(reply.Error(), " ")
		return result{"error": word}
	}
	return result{"error": "CONNECTION"}
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
