package dlock

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A kind is a set of requests.
type kind int

const (
	waiting kind = 1 << iota // an ACQUIRE that waits
	trying                   // one that does not
	extending
	releasing
	guarding
)

// noReply is the word of errors that are not the server's.
const noReply = "CONNECTION"

// What is sent again after an error with this word: the table of docs/client-authors.md.
var again = tableOf(map[string]kind{
	noReply:     waiting | trying | extending | releasing,
	"MOVED ASK": waiting | trying | extending | releasing | guarding,
	"TRYAGAIN CLUSTERDOWN READONLY MASTERDOWN LOADING UNBLOCKED": waiting | extending | releasing,
	"BUSY MISCONF NOREPLICAS OOM":                                waiting | extending | releasing,
	"GRACE QUEUEFULL":                                            waiting | extending,
})

// What finds with this word that the lock is lost.
var losses = tableOf(map[string]kind{
	"NOTHELD NOTOWNER STALE": extending | releasing | guarding,
	"WRONGTYPE":              extending | releasing,
})

func tableOf(rows map[string]kind) map[string]kind {
	table := map[string]kind{}
	for words, kinds := range rows {
		for _, word := range strings.Fields(words) {
			table[word] = kinds
		}
	}
	return table
}

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
