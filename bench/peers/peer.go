// peer LOCK WORKERS SECTION_MS SECONDS PORT...: see run.
//
// Defaults: those of the libraries, with their clients made as in their manuals. What is set: 30 s of lease where there
// is no default; redislock's retries, which are off by default, as in its README; as many connections as workers for
// redigo (which closes each connection after use unless told how many to
// keep) and pgx (a session that waits in PostgreSQL has a connection of its own). redsync keeps its 32 tries, its
// expiry of 8 s, and with it 0.4 s for each server to reply.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"dlock"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	redigolib "github.com/gomodule/redigo/redis"
)

const lease = 30 * time.Second

type release func() error

// acquire waits for the lock, for a worker. An error means that the library gave up.
type acquire func(ctx context.Context, worker int) (release, error)

// open prepares a library for these servers and workers.
type open func(ctx context.Context, addresses []string, workers int) (acquire, error)

var locks = map[string]open{
	"dlock": withDlock, "redislock": withRedislock, "etcd": withEtcd, "postgresql": withPostgreSQL,
	"redsync": withRedsync(func(address string, _ int) redsyncpool.Pool {
		return goredis.NewPool(redis.NewClient(&redis.Options{Addr: address}))
	}),
	"redsync-redigo": withRedsync(func(address string, workers int) redsyncpool.Pool {
		dial := func() (redigolib.Conn, error) { return redigolib.Dial("tcp", address) }
		return redigo.NewPool(&redigolib.Pool{MaxIdle: workers, IdleTimeout: 240 * time.Second, Dial: dial})
	}),
}

func withDlock(_ context.Context, addresses []string, _ int) (acquire, error) {
	locker := dlock.New(redis.NewClient(&redis.Options{Addr: addresses[0]}))
	return func(ctx context.Context, _ int) (release, error) {
		_, held, err := locker.Lock(ctx, "peer")
		return func() error { return held.Unlock(ctx) }, err
	}, nil
}

func withRedsync(pool func(address string, workers int) redsyncpool.Pool) open {
	return func(_ context.Context, addresses []string, workers int) (acquire, error) {
		var pools []redsyncpool.Pool
		for _, address := range addresses {
			pools = append(pools, pool(address, workers))
		}
		locks := redsync.New(pools...)
		return func(ctx context.Context, _ int) (release, error) {
			mutex := locks.NewMutex("peer-redsync")
			err := mutex.LockContext(ctx)
			return func() error { _, err := mutex.UnlockContext(ctx); return err }, err
		}, nil
	}
}

func withRedislock(_ context.Context, addresses []string, _ int) (acquire, error) {
	locks := redislock.New(redis.NewClient(&redis.Options{Addr: addresses[0]}))
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	return func(ctx context.Context, _ int) (release, error) {
		lock, err := locks.Obtain(ctx, "peer-redislock", lease, options)
		return func() error { return lock.Release(ctx) }, err
	}, nil
}

// Each worker has a session: a lock belongs to its session, which is free to lock it again.
func withEtcd(ctx context.Context, addresses []string, workers int) (acquire, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: addresses})
	if err != nil {
		return nil, err
	}
	sessions := make([]*concurrency.Session, workers)
	for worker := range sessions {
		if sessions[worker], err = concurrency.NewSession(client); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, worker int) (release, error) {
		mutex := concurrency.NewMutex(sessions[worker], "/peer/")
		err := mutex.Lock(ctx)
		return func() error { return mutex.Unlock(ctx) }, err
	}, nil
}

func withPostgreSQL(ctx context.Context, addresses []string, workers int) (acquire, error) {
	url := "postgres://postgres@%s/postgres?sslmode=disable&pool_max_conns=%d"
	pool, err := pgxpool.New(ctx, fmt.Sprintf(url, addresses[0], workers))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ int) (release, error) {
		session, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if _, err = session.Exec(ctx, "SELECT pg_advisory_lock(1)"); err != nil {
			session.Release()
		}
		return func() error {
			defer session.Release()
			_, err := session.Exec(ctx, "SELECT pg_advisory_unlock(1)")
			return err
		}, err
	}, nil
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// hold passes the time of a section. Not by time.Sleep: while other goroutines read from the network, its timers are up to
// 1 ms late, so sections would be longer for those libraries that use the network meanwhile.
func hold(section time.Duration) {
	rest := syscall.NsecToTimespec(section.Nanoseconds())
	for syscall.Nanosleep(&rest, &rest) == syscall.EINTR {
	}
}

func main() {
	workers, section := number(os.Args[2]), time.Duration(number(os.Args[3]))*time.Millisecond
	var addresses []string
	for _, port := range os.Args[5:] {
		addresses = append(addresses, "127.0.0.1:"+port)
	}
	ctx := context.Background()
	acquire, err := locks[os.Args[1]](ctx, addresses, workers)
	if err != nil {
		log.Fatal(err)
	}
	logs := make([][]string, workers)
	start := time.Now()
	ms := func(at time.Time) float64 { return float64(at.Sub(start).Nanoseconds()) / 1e6 }
	end := start.Add(time.Duration(number(os.Args[4])) * time.Second)
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for began := start; began.Before(end); {
				release, err := acquire(ctx, worker)
				now := time.Now()
				if err != nil {
					logs[worker] = append(logs[worker], fmt.Sprintf("gave_up %.3f", ms(now)))
					continue
				}
				logs[worker] = append(logs[worker], fmt.Sprintf("%.3f %.3f", ms(began), ms(now)))
				hold(section)
				if err := release(); err != nil {
					log.Fatal(err)
				}
				began = time.Now()
			}
		})
	}
	group.Wait()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, lines := range logs {
		for _, line := range lines {
			fmt.Fprintln(out, line)
		}
	}
}
