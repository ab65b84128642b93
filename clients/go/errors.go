package dlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"

	"github.com/redis/go-redis/v9"
)

// Find these errors with [errors.Is]. Errors of the server are a [redis.Error], whose text begins with a stable word.
var (
	// ErrBusy says that others hold the lock or wait for it, as the server has said: the error of TryLock, and the
	// cause of a timeout.
	ErrBusy = errors.New("others hold the lock or wait for it")
	// ErrLost says that the lock protects the work no more, or did not until its end. It is a [LostError].
	ErrLost = errors.New("the lock is lost: stop the work that relies on it")
	// ErrClosed is the error after Close.
	ErrClosed = errors.New("the Locker is closed")
	// ErrInvalid says that an argument or a client makes no sense. Nothing was sent.
	ErrInvalid = errors.New("invalid argument")
	// ErrNoReply says that the server did not reply: the error of a request, or the cause of a timeout.
	ErrNoReply = errors.New("no reply")
)

// LostError is an [ErrLost] with its reason.
type LostError struct {
	Key string
	// The server's word (NOTHELD, NOTOWNER, STALE or WRONGTYPE), EXPIRED, MAXHOLD, CLOSED, UNCONFIRMED (nothing
	// confirms that the lock was held until its release) or RELEASED.
	Reason string
	// The last error before, such as NOPERM of the renewals, or nil.
	Last error
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("dlock: %q: %v (%s)", e.Key, ErrLost, e.Reason)
	if e.Last != nil {
		text += fmt.Sprintf(", after the error: %v", e.Last)
	}
	return text
}

// Unwrap returns ErrLost, after Close also [ErrClosed].
func (e *LostError) Unwrap() []error {
	if e.Reason == "CLOSED" {
		return []error{ErrLost, ErrClosed}
	}
	return []error{ErrLost}
}

// noReplyError is an ErrNoReply of a server, with the error of the connection.
type noReplyError struct {
	server string
	cause  error
}

func (e noReplyError) Error() string {
	return fmt.Sprintf("%v from %s: %v", ErrNoReply, e.server, e.cause)
}
func (e noReplyError) Unwrap() []error { return []error{ErrNoReply, e.cause} }

// timeoutError is a [context.DeadlineExceeded] with its cause.
type timeoutError struct{ cause error }

func (e timeoutError) Error() string   { return fmt.Sprintf("%v: %v", context.DeadlineExceeded, e.cause) }
func (e timeoutError) Unwrap() []error { return []error{context.DeadlineExceeded, e.cause} }

// serverError is an error of the server with more of what to do, or one in an answer.
type serverError struct{ text string }

func (e serverError) Error() string { return e.text }
func (serverError) RedisError()     {}

var noModule = regexp.MustCompile("(?i)^ERR unknown command ['`]DLOCK")

// explained returns an error that says what to do about it.
func explained(err error, server string) error {
	switch {
	case err == nil || err == redis.Nil:
		return err
	case wordOf(err) == noReply:
		return noReplyError{server, err}
	case noModule.MatchString(err.Error()):
		return serverError{fmt.Sprintf("ERR %s does not have the DLOCK module: load it there, or use another address", server)}
	}
	return err
}

// isUnsent reports whether there was no connection to send on.
func isUnsent(err error) bool {
	var failure *net.OpError
	return errors.As(err, &failure) && failure.Op == "dial"
}
