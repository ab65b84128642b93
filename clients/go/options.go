package dlock

import (
	"fmt"
	"math"
	"time"
)

const (
	defaultLease = 30 * time.Second
	noLimit      = time.Duration(math.MaxInt64)
	maxLimit     = math.MaxInt32
	maxOwner     = 512 // bytes
)

// An Option changes an acquisition.
type Option func(*settings)

type settings struct {
	owner                   string
	isShared, isLimited     bool
	hasOwner, hasTimeout    bool
	limit                   int
	lease, timeout, maxHold time.Duration
	waits, renews           bool
}

// WithLease sets the lease, 30 s by default: how long the lock stays held if the process dies or loses the server.
func WithLease(lease time.Duration) Option { return func(s *settings) { s.lease = lease } }

// WithTimeout limits the waiting of Lock, not the work. After it the error is [context.DeadlineExceeded], with its cause:
// [ErrBusy], [ErrNoReply], or an error of the server such as GRACE. With 0, Lock does not wait.
func WithTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.timeout, s.hasTimeout = timeout, true }
}

// WithMaxHold limits how long the lock is held: after that it is lost and released, however well it is renewed.
func WithMaxHold(limit time.Duration) Option { return func(s *settings) { s.maxHold = limit } }

// WithShared shares the lock with all others that do, as a reader.
func WithShared() Option { return func(s *settings) { s.isShared = true } }

// WithLimit makes the lock a semaphore, which this many may hold at once.
func WithLimit(limit int) Option { return func(s *settings) { s.limit, s.isLimited = limit, true } }

// WithOwner sets the owner. Those with the same one hold the lock together, and the server finds deadlocks of owners. By
// default each acquisition has its own.
func WithOwner(owner string) Option { return func(s *settings) { s.owner, s.hasOwner = owner, true } }

// WithoutRenewal leaves it to [Held.Extend] to extend the lease.
func WithoutRenewal() Option { return func(s *settings) { s.renews = false } }

// settingsOf returns what these options say, or [ErrInvalid].
func settingsOf(key string, waits bool, options []Option) (settings, error) {
	s := settings{lease: defaultLease, timeout: noLimit, maxHold: noLimit, limit: 1, waits: waits, renews: true}
	for _, option := range options {
		option(&s)
	}
	err := s.check(key)
	s.lease, s.timeout, s.maxHold = wholeMs(s.lease), wholeMs(s.timeout), wholeMs(s.maxHold)
	s.waits = s.waits && s.timeout > 0
	return s, err
}

func (s *settings) check(key string) error {
	switch {
	case key == "":
		return invalid("the key is empty")
	case s.lease <= 0:
		return invalid("the lease is %v: it must be longer than 0", s.lease)
	case s.timeout < 0:
		return invalid("the timeout is %v: it must be 0, which does not wait, or longer", s.timeout)
	case s.hasTimeout && !s.waits:
		return invalid("TryLock does not wait: use Lock to wait with a timeout")
	case s.maxHold <= 0:
		return invalid("the longest hold is %v: it must be longer than 0", s.maxHold)
	case s.isShared && s.isLimited:
		return invalid("a shared lock has no limit: leave out WithShared or WithLimit")
	case s.limit < 1 || s.limit > maxLimit:
		return invalid("the limit is %d: it must be 1 to %d", s.limit, maxLimit)
	case s.hasOwner && (s.owner == "" || len(s.owner) > maxOwner):
		return invalid("the owner has %d bytes: it must have 1 to %d", len(s.owner), maxOwner)
	}
	return nil
}

// mode returns the words of ACQUIRE that say how many may hold the lock.
func (s *settings) mode() []any {
	switch {
	case s.isShared:
		return []any{"SHARED"}
	case s.isLimited:
		return []any{"LIMIT", s.limit}
	}
	return nil
}

// kind returns how its ACQUIRE takes errors.
func (s *settings) kind() kind {
	if s.waits {
		return waiting
	}
	return trying
}

func invalid(format string, values ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, values...)...)
}

// wholeMs rounds up to milliseconds.
func wholeMs(d time.Duration) time.Duration {
	if rest := d % time.Millisecond; rest > 0 && d < noLimit-time.Millisecond {
		return d - rest + time.Millisecond
	}
	return d
}
