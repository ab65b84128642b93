// Package redsync has the mutexes of github.com/go-redsync/redsync/v4 on DLOCK: only the import and the argument of New
// change. It is not part of that project.
//
// Lock waits in the server's queue, for as long as the tries and their delays would take in all. As there, nothing renews
// the lease.
package redsync

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"dlock"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrFailed is the error of Lock if the context is done.
	ErrFailed = errors.New("redsync: failed to acquire lock")
	// ErrExtendFailed is the error of Extend if the lock was lost.
	ErrExtendFailed = errors.New("redsync: failed to extend lock")
	// ErrLockAlreadyExpired is the error of Unlock if the lock was lost.
	ErrLockAlreadyExpired = errors.New("redsync: failed to unlock, lock was already expired")
)

// ErrTaken is the error of Lock, as a pointer, if others hold the lock, as the server has said.
type ErrTaken struct{ Nodes []int }

func (e ErrTaken) Error() string { return fmt.Sprintf("lock already taken, locked nodes: %v", e.Nodes) }

// RedisError is an error of the server or of the connection to it. As a pointer, it is joined to the error of Lock.
type RedisError struct {
	Node int
	Err  error
}

func (e RedisError) Error() string { return fmt.Sprintf("node #%d: %s", e.Node, e.Err) }
func (e RedisError) Unwrap() error { return e.Err }

// Redsync makes mutexes.
type Redsync struct {
	client redis.UniversalClient
	locker *dlock.Locker
}

// New returns a Redsync for a redis.Client or a redis.ClusterClient. It costs nothing, as all of one client share
// connections, and need not be closed.
func New(client redis.UniversalClient) *Redsync { return &Redsync{client, dlock.New(client)} }

// A Mutex is a distributed mutual exclusion lock, for one goroutine at a time.
type Mutex struct {
	redsync     *Redsync
	name, value string
	expiry      time.Duration
	tries       int
	delay       DelayFunc
	generate    func() (string, error)
	relocks     bool
	until       time.Time
	held        *dlock.Held // nil if it was not locked by this Mutex
}

// An Option changes a Mutex.
type Option func(*Mutex)

// A DelayFunc returns how long to wait before a try; the first, number 0, is at once.
type DelayFunc func(tries int) time.Duration

// NewMutex returns a Mutex. By default it has an expiry of 8 s, 32 tries, and delays of 50 to 250 ms.
func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
	m := &Mutex{redsync: r, name: name, expiry: 8 * time.Second, tries: 32}
	m.delay = func(int) time.Duration { return 50*time.Millisecond + rand.N(200*time.Millisecond) }
	for _, option := range options {
		option(m)
	}
	return m
}

// WithExpiry and the next options do what they do in redsync. After WithSetNXOnExtend, others may have held the lock
// before an Extend that succeeds.
func WithExpiry(expiry time.Duration) Option           { return func(m *Mutex) { m.expiry = expiry } }
func WithTries(tries int) Option                       { return func(m *Mutex) { m.tries = tries } }
func WithRetryDelayFunc(delay DelayFunc) Option        { return func(m *Mutex) { m.delay = delay } }
func WithSetNXOnExtend() Option                        { return func(m *Mutex) { m.relocks = true } }
func WithGenValueFunc(f func() (string, error)) Option { return func(m *Mutex) { m.generate = f } }
func WithValue(value string) Option                    { return func(m *Mutex) { m.value = value } }
func WithRetryDelay(delay time.Duration) Option {
	return WithRetryDelayFunc(func(int) time.Duration { return delay })
}

// WithDriftFactor and the next options are about several servers. Here they change nothing.
func WithDriftFactor(float64) Option   { return func(*Mutex) {} }
func WithTimeoutFactor(float64) Option { return func(*Mutex) {} }
func WithFailFast(bool) Option         { return func(*Mutex) {} }
func WithShufflePools(bool) Option     { return func(*Mutex) {} }

// Name returns the key of the lock.
func (m *Mutex) Name() string { return m.name }

// Value returns the owner of the lock. It is empty before Lock, unless set by WithValue.
func (m *Mutex) Value() string { return m.value }

// Until returns until when the lock is held for certain.
func (m *Mutex) Until() time.Time { return m.until }

// Lock and the next methods are those with a context, without one.
func (m *Mutex) Lock() error           { return m.LockContext(context.Background()) }
func (m *Mutex) TryLock() error        { return m.TryLockContext(context.Background()) }
func (m *Mutex) Unlock() (bool, error) { return m.UnlockContext(context.Background()) }
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }
func (m *Mutex) Valid() (bool, error)  { return m.ValidContext(context.Background()) }

// TryLockContext locks m without waiting.
func (m *Mutex) TryLockContext(ctx context.Context) error { return m.lock(ctx, 1, "") }

// LockContext locks m.
func (m *Mutex) LockContext(ctx context.Context) error { return m.lock(ctx, m.tries, "") }

func (m *Mutex) lock(ctx context.Context, tries int, value string) (err error) {
	if m.generate != nil && value == "" {
		if value, err = m.generate(); err != nil {
			return err
		}
	}
	timeout := time.Duration(0)
	for try := 1; try < tries; try++ {
		timeout += m.delay(try)
	}
	held, err := m.acquire(ctx, value, time.Now().Add(timeout))
	switch {
	case err == nil:
		m.held, m.value, m.until = held, held.Owner(), time.Now().Add(held.Remaining())
		return nil
	case ctx.Err() != nil:
		return ErrFailed
	case errors.Is(err, dlock.ErrBusy):
		return &ErrTaken{[]int{0}}
	}
	return errors.Join(&RedisError{0, err})
}

// acquire waits for the lock until a time. A value that is in use is no re-entry: the lock is taken.
func (m *Mutex) acquire(ctx context.Context, value string, until time.Time) (*dlock.Held, error) {
	options := []dlock.Option{dlock.WithLease(m.expiry), dlock.WithoutRenewal()}
	if value == "" {
		return m.acquireOnce(ctx, options, until)
	}
	options = append(options, dlock.WithOwner(value))
	for try := 1; ; try++ {
		held, err := m.acquireUnlessOwned(ctx, value, options, until)
		left := time.Until(until)
		if !errors.Is(err, dlock.ErrBusy) || left <= 0 {
			return held, err
		}
		select {
		case <-time.After(min(m.delay(try), left)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// acquireUnlessOwned fails with ErrBusy if a holder has this value. A request would extend the lease of that holder.
func (m *Mutex) acquireUnlessOwned(ctx context.Context, value string, options []dlock.Option, until time.Time) (*dlock.Held, error) {
	owner, err := m.redsync.client.Do(ctx, "DLOCK.OWNER", m.name).Text()
	if err != nil && err != redis.Nil {
		return nil, err
	}
	if err == nil && owner == value {
		return nil, dlock.ErrBusy
	}
	held, err := m.acquireOnce(ctx, options, until)
	if err == nil && held.Holds() > 1 { // it was acquired meanwhile
		return nil, errors.Join(held.Unlock(ctx), dlock.ErrBusy)
	}
	return held, err
}

func (m *Mutex) acquireOnce(ctx context.Context, options []dlock.Option, until time.Time) (*dlock.Held, error) {
	options = append(options, dlock.WithTimeout(max(0, time.Until(until))))
	_, held, err := m.redsync.locker.Lock(ctx, m.name, options...)
	return held, err
}

// UnlockContext unlocks m, and returns whether it was locked until then.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	if m.held != nil {
		return result(m.held.Unlock(ctx), ErrLockAlreadyExpired)
	}
	return result(m.redsync.client.Do(ctx, "DLOCK.RELEASE", m.name, m.value, "ALL").Err(), ErrLockAlreadyExpired)
}

// ExtendContext makes the lease as long as the expiry again, and returns whether it could.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	began, err := time.Now(), error(nil)
	if m.held != nil {
		err = m.held.Extend(ctx, m.expiry)
	} else {
		err = m.redsync.client.Do(ctx, "DLOCK.EXTEND", m.name, m.value, m.expiry.Milliseconds()).Err()
	}
	isExtended, err := result(err, ErrExtendFailed)
	if err == ErrExtendFailed && m.relocks {
		err = m.lock(ctx, 1, m.value)
		return err == nil, err
	}
	if isExtended {
		m.until = began.Add(m.expiry / 100 * 99)
	}
	return isExtended, err
}

// ValidContext returns whether m is locked.
func (m *Mutex) ValidContext(ctx context.Context) (bool, error) {
	owner, err := m.redsync.client.Do(ctx, "DLOCK.OWNER", m.name).Text()
	if err == redis.Nil {
		return false, nil
	}
	return owner == m.value && err == nil, err
}

func result(err, lost error) (bool, error) {
	if errors.Is(err, dlock.ErrLost) || redis.HasErrorPrefix(err, "NOT") {
		err = lost
	}
	return err == nil, err
}
