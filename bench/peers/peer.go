// peer LOCK PORT WORKERS SECTION_MS SECONDS: see run.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type release func() error

const warmUp = time.Second

// acquire waits for the lock. An error means that the library gave up.
type acquire func(ctx context.Context) (release, error)

// dlock is the program of docs/languages.md.
func dlock(client redis.UniversalClient) acquire {
	waiting := connect(time.Minute)
	return func(ctx context.Context) (release, error) {
		lock, err := Acquire(ctx, client, waiting, "peer", 30*time.Second, 30*time.Second)
		if err != nil || lock == nil {
			return nil, fmt.Errorf("not acquired: %w", err)
		}
		return func() error { return lock.Release(ctx) }, nil
	}
}

func withRedsync(client redis.UniversalClient) acquire {
	locks := redsync.New(goredis.NewPool(client))
	return func(ctx context.Context) (release, error) {
		mutex := locks.NewMutex("peer-redsync", redsync.WithExpiry(30*time.Second))
		err := mutex.LockContext(ctx)
		return func() error { _, err := mutex.UnlockContext(ctx); return err }, err
	}
}

func withRedislock(client redis.UniversalClient) acquire {
	locks := redislock.New(client)
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	return func(ctx context.Context) (release, error) {
		lock, err := locks.Obtain(ctx, "peer-redislock", 30*time.Second, options)
		return func() error { return lock.Release(ctx) }, err
	}
}

func main() {
	number := func(n int) int {
		value, err := strconv.Atoi(os.Args[n])
		if err != nil {
			log.Fatal(err)
		}
		return value
	}
	workers, section := number(3), time.Duration(number(4))*time.Millisecond
	ctx, client := context.Background(), connect(30*time.Second)
	locks := map[string]func(redis.UniversalClient) acquire{
		"dlock": dlock, "redsync": withRedsync, "redislock": withRedislock,
	}
	acquire := locks[os.Args[1]](client)

	var mutex sync.Mutex
	var waits []time.Duration
	failed, counted := 0, time.Now().Add(warmUp)
	end := counted.Add(time.Duration(number(5)) * time.Second)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for began := time.Now(); began.Before(end); {
				isCounted := !began.Before(counted)
				release, err := acquire(ctx)
				waited := time.Since(began)
				if err == nil {
					time.Sleep(section)
					if err := release(); err != nil {
						log.Fatal(err)
					}
					began = time.Now()
				}
				mutex.Lock()
				if err != nil {
					failed++
				} else if isCounted {
					waits = append(waits, waited)
				}
				mutex.Unlock()
			}
		})
	}
	group.Wait()
	elapsed := time.Since(counted).Seconds()

	slices.Sort(waits)
	info, err := client.InfoMap(ctx, "clients").Result()
	if err != nil {
		log.Fatal(err)
	}
	connections, _ := strconv.Atoi(strings.TrimSpace(info["Clients"]["connected_clients"]))
	ms := func(wait time.Duration) float64 { return float64(wait.Microseconds()) / 1000 }
	line, _ := json.Marshal(map[string]any{
		"per_s": int(float64(len(waits)) / elapsed), "p99_ms": ms(waits[len(waits)*99/100]),
		"longest_ms": ms(waits[len(waits)-1]), "failed": failed, "connections": connections,
	})
	fmt.Println(string(line))
}
