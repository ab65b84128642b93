package main

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"dlock"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// churn uses locks as a careless program does, which closes nothing.
func (d *driver) churn(c command) result {
	options := *d.client.(*redis.Client).Options()
	// Otherwise, go-redis itself has a goroutine for each client that is not closed.
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	var lockOptions []dlock.Option
	if c.Fails {
		options.Addr = unusedAddress()
		lockOptions = append(lockOptions, dlock.WithTimeout(50*time.Millisecond))
	}
	client := redis.NewClient(&options)
	for range c.Times {
		if !c.SameClient {
			client = redis.NewClient(&options)
		}
		ctx, held, err := dlock.New(client).Lock(context.Background(), c.Key.(string), lockOptions...)
		if err == nil {
			err = held.Unlock(ctx)
		}
		if (err != nil) != c.Fails {
			return outcome(err, "error", "NONE")
		}
	}
	return result{"ok": true}
}

func unusedAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:1"
	}
	defer listener.Close()
	return listener.Addr().String()
}

// resources counts goroutines, once those of clients that are no more have ended.
func resources() result {
	for range 3 {
		runtime.GC()
		time.Sleep(100 * time.Millisecond)
	}
	return result{"tasks": runtime.NumGoroutine()}
}

// many are locks that are acquired at once.
type many struct{ held []*dlock.Held }

func (m *many) hold(locker *dlock.Locker, c command) result {
	c.Key = c.Prefix
	options, prefix, isExpressible := c.arguments()
	if !isExpressible {
		return result{"skipped": true}
	}
	began, held := time.Now(), make([]*dlock.Held, c.Locks)
	var group sync.WaitGroup
	for number := range held {
		group.Add(1)
		go func() {
			defer group.Done()
			_, held[number], _ = locker.Lock(context.Background(), fmt.Sprint(prefix, number), options...)
		}()
	}
	group.Wait()
	took := time.Since(began).Milliseconds()
	for _, h := range held {
		if h != nil {
			m.held = append(m.held, h)
		}
	}
	return result{"held": len(m.held), "took_ms": took}
}

func (m *many) release() result {
	errs := make(chan error, len(m.held))
	for _, h := range m.held {
		go func() { errs <- h.Unlock(context.Background()) }()
	}
	released := 0
	for range m.held {
		if <-errs == nil {
			released++
		}
	}
	lost := len(m.held) - released
	m.held = nil
	return result{"released": released, "lost": lost}
}
