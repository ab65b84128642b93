// A lock of DLOCK for go-redis 9: copy this file and adapt it. It needs Go 1.24 (rand.Text).
//
//	go mod init example && go mod tidy
//	go run lock.go
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

const address = "127.0.0.1:7379"

// ErrLost says that this owner does not hold the lock.
var ErrLost = errors.New("lost")

// Lock is a held lock.
type Lock struct {
	client              redis.UniversalClient
	key, owner, request string
	Fence               int64
	deadline            atomic.Int64 // a time of now
}

// connectServer returns a client of one server with this read timeout. It retries a request once.
func connectServer(timeout time.Duration) redis.UniversalClient {
	return redis.NewClient(&redis.Options{Addr: address, ReadTimeout: timeout, MaxRetries: 1})
}

// connectSentinels returns a client of the primary that the Sentinels call "locks".
func connectSentinels(timeout time.Duration) redis.UniversalClient {
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "locks", SentinelAddrs: []string{"127.0.0.1:26379"}, ReadTimeout: timeout, MaxRetries: 1,
	})
}

// connectCluster returns a client of a cluster, which asks this node for the others. By default it tries four times:
// renewals without a reply would take too long.
func connectCluster(timeout time.Duration) redis.UniversalClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{address}, ReadTimeout: timeout, MaxRedirects: 2,
	})
}

// Choose one of the three, and delete the others.
var connect = connectServer

// Acquire waits for the lock. It returns nil without an error after this wait. The read timeout of waiting must be
// longer.
func Acquire(
	ctx context.Context, client, waiting redis.UniversalClient, key string, lease, wait time.Duration,
) (*Lock, error) {
	lock := &Lock{client: client, key: key, owner: rand.Text(), request: rand.Text()}
	sent := now()
	reply, err := waiting.Do(ctx, "DLOCK.ACQUIRE", key, lock.owner, lease.Milliseconds(),
		"BLOCK", wait.Milliseconds(), "REQID", lock.request).Int64Slice()
	var refused redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case errors.As(err, &refused):
		return nil, err
	case err != nil:
		// The lock may or may not have been granted: undo it. Not with ctx, which may have been cancelled.
		undo := client.Do(context.Background(), "DLOCK.RELEASE", key, lock.owner, "REQID", lock.request)
		return nil, errors.Join(err, undo.Err())
	}
	lock.Fence = reply[0]
	lock.deadline.Store(deadline(sent, reply[3]+reply[2]))
	return lock, nil
}

// Remaining returns the time for which the lock is certainly held.
func (l *Lock) Remaining() time.Duration {
	return time.Duration(max(0, l.deadline.Load()-now()))
}

// Extend extends the lease. Call it, from one goroutine, each time a third of the lease has passed.
func (l *Lock) Extend(ctx context.Context, lease time.Duration) error {
	sent := now()
	leaseMs, err := l.client.Do(ctx, "DLOCK.EXTEND", l.key, l.owner, lease.Milliseconds(),
		"FENCE", l.Fence).Int64()
	if err != nil {
		return asLost(err)
	}
	l.deadline.Store(max(l.deadline.Load(), deadline(sent, leaseMs)))
	return nil
}

// Release releases the lock. It returns ErrLost if it was lost before, or a retry finds it released.
func (l *Lock) Release(ctx context.Context) error {
	return asLost(l.client.Do(ctx, "DLOCK.RELEASE", l.key, l.owner, "FENCE", l.Fence, "REQID", l.request).Err())
}

func asLost(err error) error {
	for _, word := range []string{"NOTHELD", "NOTOWNER", "STALE"} {
		if err != nil && strings.HasPrefix(err.Error(), word+" ") {
			return fmt.Errorf("%w: %s", ErrLost, word)
		}
	}
	return err
}

func deadline(sent, leaseMs int64) int64 {
	return sent + leaseMs*999_000 - 2_000_000
}

// now returns nanoseconds of a clock that goes on while the machine is suspended, unlike that of package time. On
// macOS, use CLOCK_MONOTONIC.
func now() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

func main() {
	ctx := context.Background()
	// For renewals. The read timeout is short compared with the lease: two renewals may fail before the third is too
	// late.
	client := connect(3 * time.Second)
	defer client.Close()
	// The read timeout is longer than any wait. Each waiting goroutine takes a connection from the pool: see PoolSize.
	waiting := connect(15 * time.Second)
	defer waiting.Close()
	lock, err := Acquire(ctx, client, waiting, "orders:42", 30*time.Second, 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	if lock == nil {
		log.Fatal("held by another owner")
	}
	fmt.Println("granted", lock.key, "with fence", lock.Fence)
	fmt.Println("valid for", int(lock.Remaining().Seconds()), "s")
	if err := lock.Extend(ctx, 30*time.Second); err != nil {
		log.Fatal(err)
	}
	fmt.Println("extended")
	if err := lock.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("released")
	fmt.Println(lock.Release(ctx))
}
