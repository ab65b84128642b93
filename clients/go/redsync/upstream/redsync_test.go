// Package redsync has what the tests of redsync's mutex use of their own package, made of the mutexes of dlock/redsync.
// clients/test adds those tests, mutex_test.go, to it. They have one server instead of eight, and read the owner instead
// of the value, and the lease instead of the TTL.
package redsync

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	ours "dlock/redsync"

	"github.com/go-redsync/redsync/v4/redis"
	goredis "github.com/redis/go-redis/v9"
)

var ctx = context.Background()

// server is a client of the one server.
var server *goredis.Client

func TestMain(m *testing.M) { os.Exit(withServer(m.Run)) }

// withServer starts the server. Its leases may last for an hour, as some tests want.
func withServer(run func() int) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	address := listener.Addr().(*net.TCPAddr)
	_ = listener.Close()
	program := os.Getenv("DLOCK_SERVER")
	if program == "" {
		program = "redis-server"
	}
	process := exec.Command(program, "--port", fmt.Sprint(address.Port), "--bind", "127.0.0.1", "--save", "",
		"--dir", os.TempDir(), "--loadmodule", os.Getenv("DLOCK_MODULE"), "--dlock.max-lease-ms", "3600000")
	if err := process.Start(); err != nil {
		log.Fatal(err)
	}
	defer func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}()
	server = goredis.NewClient(&goredis.Options{Addr: address.String()})
	for range 500 {
		if server.Ping(ctx).Err() == nil {
			return run()
		}
		time.Sleep(20 * time.Millisecond)
	}
	log.Print("the server does not start")
	return 1
}

type testCase struct {
	poolCount int
	pools     []redis.Pool
}

func makeCases(int) map[string]*testCase {
	return map[string]*testCase{"dlock": {poolCount: 1, pools: []redis.Pool{pool{}}}}
}

// A pool has connections with what the tests send themselves.
type pool struct{}

func (pool) Get(context.Context) (redis.Conn, error) { return connection{}, nil }

type connection struct{ redis.Conn }

func (connection) Get(name string) (string, error) {
	owner, err := server.Do(ctx, "DLOCK.OWNER", name).Text()
	if err == goredis.Nil {
		err = nil
	}
	return owner, err
}

func (connection) PTTL(name string) (time.Duration, error) {
	info, err := server.Do(ctx, "DLOCK.INFO", name).Result()
	if err != nil {
		return 0, err
	}
	holder := info.(map[any]any)["holders"].([]any)[0].(map[any]any)
	return time.Duration(holder["lease-ms"].(int64)) * time.Millisecond, nil
}

func (connection) Set(name, value string) (bool, error) {
	err := server.Set(ctx, name, value, 0).Err()
	return err == nil, err
}

func (connection) Close() error { return nil }

type (
	ErrTaken     = ours.ErrTaken
	ErrNodeTaken struct{ Node int }
	Redsync      struct{ pools []redis.Pool }
	Option       func(*Mutex)
)

func (ErrNodeTaken) Error() string { return "" }

func New(pools ...redis.Pool) *Redsync { return &Redsync{pools} }

func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
	m := &Mutex{name: name, expiry: 8 * time.Second, tries: 32, quorum: 1, pools: r.pools}
	for _, option := range options {
		option(m)
	}
	return m
}

func WithExpiry(expiry time.Duration) Option { return func(m *Mutex) { m.expiry = expiry } }
func WithValue(value string) Option          { return func(m *Mutex) { m.value = value } }

func genValue() (string, error) { return rand.Text(), nil }

// A Mutex has the fields that the tests set before its first use. Those about several servers change nothing.
type Mutex struct {
	name          string
	expiry        time.Duration
	tries         int
	delayFunc     func(tries int) time.Duration
	genValueFunc  func() (string, error)
	driftFactor   float64
	timeoutFactor float64
	quorum        int
	pools         []redis.Pool
	setNXOnExtend bool
	value         string

	mutex *ours.Mutex
}

// ours returns the mutex of dlock/redsync, which is made for the first use.
func (m *Mutex) ours() *ours.Mutex {
	if m.mutex != nil {
		return m.mutex
	}
	options := []ours.Option{ours.WithExpiry(m.expiry), ours.WithTries(m.tries), ours.WithValue(m.value)}
	if m.delayFunc != nil {
		options = append(options, ours.WithRetryDelayFunc(m.delayFunc))
	}
	if m.genValueFunc != nil {
		options = append(options, ours.WithGenValueFunc(m.genValueFunc))
	}
	if m.setNXOnExtend {
		options = append(options, ours.WithSetNXOnExtend())
	}
	m.mutex = ours.New(server).NewMutex(m.name, options...)
	return m.mutex
}

// locked takes note of the value, which the tests read.
func (m *Mutex) locked(err error) error {
	m.value = m.ours().Value()
	return err
}

func (m *Mutex) Lock() error    { return m.locked(m.ours().Lock()) }
func (m *Mutex) TryLock() error { return m.locked(m.ours().TryLock()) }
func (m *Mutex) TryLockContext(ctx context.Context) error {
	return m.locked(m.ours().TryLockContext(ctx))
}
func (m *Mutex) Unlock() (bool, error) { return m.ours().Unlock() }
func (m *Mutex) Extend() (bool, error) { return m.ours().Extend() }
func (m *Mutex) Valid() (bool, error)  { return m.ours().Valid() }
func (m *Mutex) Value() string         { return m.value }
