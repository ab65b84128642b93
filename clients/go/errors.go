package dlock

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrBusy is the error of TryLock if others hold the lock or wait for it.
	ErrBusy = errors.New("others hold the lock or wait for it")
	// ErrLost says that the lock protects the work no more, or did not until its end. Find it with [errors.Is].
	ErrLost = errors.New("the lock is lost: stop the work that relies on it")
	// ErrClosed is the error after Close.
	ErrClosed = errors.New("the Locker is closed")
)

// noReply is the word of errors that are not the server's.
const noReply = "CONNECTION"

// wordOf returns the first word of an error, which says what it is.
func wordOf(err error) string {
	if err == nil {
		return ""
	}
	if reply := redis.Error(nil); errors.As(err, &reply) {
		word, _, _ := strings.Cut(reply.Error(), " ")
		return word
	}
	return noReply
}

// answerError is an error in an answer.
type answerError string

func (e answerError) Error() string { return string(e) }
func (answerError) RedisError()     {}

func isLoss(word string) bool { return word == "NOTHELD" || word == "NOTOWNER" || word == "STALE" }

// isTransient reports whether this server soon, or another one, may say something else.
func (l *Locker) isTransient(word string) bool {
	switch word {
	case noReply:
		return l.isConnected.Load() // otherwise the address may be wrong
	case "ASK", "MOVED":
		_, isCluster := l.requests.(*redis.ClusterClient)
		return isCluster
	case "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "TRYAGAIN", "UNBLOCKED":
		return true
	}
	return false
}

// isUnsent reports whether there was no connection to send on.
func isUnsent(err error) bool {
	var failure *net.OpError
	return errors.As(err, &failure) && failure.Op == "dial"
}

// lostError is an ErrLost with its reason: a word of the server, or one of EXPIRED, UNCONFIRMED and RELEASED.
type lostError struct{ key, reason string }

func (e lostError) Error() string { return fmt.Sprintf("dlock: %q: %v (%s)", e.key, ErrLost, e.reason) }
func (lostError) Unwrap() error   { return ErrLost }
