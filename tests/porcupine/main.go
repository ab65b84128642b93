// Checks a history of `make torture` or `dlock drill` with Porcupine, a linearizability checker by Anish Athalye.
//
//	go run . FILE.json
//
// It looks for an order of the requests of each mutex, each between its sending and its reply, that this model explains.
// A lock is free, or held by one owner under a fence. A grant to another owner needs a free lock or one whose lease may
// have ended by the reply, and a fence larger than every earlier one. RELEASE and EXTEND succeed for the holder alone.
// So two owners with running leases, a fence that falls, or a release of another owner's lock have no order.
//
// Left out are locks with other limits than 1, everything after the first server is replaced, and what the model does not
// say: holds, and the order of the queue.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

type request struct {
	Command string
	Lease   int64
	Limit   int
	ReqID   *string
}

// A reply, or nil if the request may or may not have taken effect.
type reply struct {
	Granted   uint64
	Lease     int64
	Remaining *int64
	Error     string
}

// With a request id, RELEASE may be repeated, and succeeds for who holds nothing.
func (it request) isRepeatable() bool { return it.ReqID != nil }

type op struct {
	Owner         string
	Key           string
	Port, Term    int
	Sent, Replied int64
	Request       request
	Reply         *reply
}

// A mutex: who holds it under which fence, and when its lease may end at the earliest, in microseconds.
type lock struct {
	owner string
	until int64
	fence uint64
}

func (it lock) granted(o op, fence uint64, lease int64) lock {
	return lock{o.Owner, max(it.untilFor(o.Owner), o.Sent+lease*1000), fence}
}

func (it lock) untilFor(owner string) int64 {
	if it.owner == owner {
		return it.until
	}
	return 0
}

// step says which locks there may be after the request.
func step(it lock, o op) []lock {
	free := lock{fence: it.fence}
	// A lease may have ended before the reply, and then the lock is free.
	before := []lock{it}
	if it.owner != "" && o.Replied >= it.until {
		before = append(before, free)
	}
	var after []lock
	for _, at := range before {
		after = append(after, happen(at, o)...)
	}
	return after
}

func happen(at lock, o op) []lock {
	isOwn := at.owner == o.Owner
	free := lock{fence: at.fence}
	switch {
	case o.Reply == nil && o.Request.Command == "ACQUIRE" && (at.owner == "" || isOwn):
		// Granted under a fence that nobody was told. Who is told a larger one later comes after it.
		return []lock{at, at.granted(o, at.fence, o.Request.Lease)}
	case o.Reply == nil && o.Request.Command == "RELEASE" && isOwn:
		return []lock{at, free}
	case o.Reply == nil && o.Request.Command == "EXTEND" && isOwn:
		return []lock{at, at.granted(o, at.fence, o.Request.Lease)}
	case o.Reply == nil || o.Request.Command == "RPUSH":
		return []lock{at}
	case o.Reply.Granted > 0 && isOwn && (o.Reply.Granted >= at.fence):
		return []lock{at.granted(o, o.Reply.Granted, 0)}
	case o.Reply.Granted > 0 && at.owner == "" && o.Reply.Granted > at.fence:
		return []lock{at.granted(o, o.Reply.Granted, o.Request.Lease)}
	case o.Reply.Granted > 0:
		return nil
	case o.Request.Command == "RELEASE" && o.Reply.Remaining != nil && *o.Reply.Remaining == 0 && isOwn:
		return []lock{free}
	case o.Request.Command == "RELEASE" && o.Reply.Remaining != nil && !isOwn && !o.Request.isRepeatable():
		return nil
	case o.Request.Command == "EXTEND" && o.Reply.Error == "" && !isOwn:
		return nil
	case o.Request.Command == "EXTEND" && o.Reply.Error == "":
		return []lock{at.granted(o, at.fence, o.Request.Lease)}
	default:
		return []lock{at}
	}
}

func model() porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{lock{}} },
		Step: func(state, input, _ interface{}) []interface{} {
			var states []interface{}
			for _, after := range step(state.(lock), input.(op)) {
				states = append(states, after)
			}
			return states
		},
		Equal: func(a, b interface{}) bool { return a == b },
	}
	return nondeterministic.ToModel()
}

// mutexes gives the requests of each lock that the model can explain, of its first server.
func mutexes(ops []op) map[string][]op {
	byKey := map[string][]op{}
	left := map[string]bool{}
	for _, o := range ops {
		byKey[o.Key] = append(byKey[o.Key], o)
		if o.Request.Command == "ACQUIRE" && o.Request.Limit != 1 {
			left[o.Key] = true
		}
	}
	for key := range left {
		delete(byKey, key)
	}
	for key, ops := range byKey {
		sort.Slice(ops, func(i, j int) bool { return ops[i].Sent < ops[j].Sent })
		var kept []op
		for _, o := range ops {
			if o.Port == ops[0].Port && o.Term == ops[0].Term {
				kept = append(kept, o)
			}
		}
		byKey[key] = kept
	}
	return byKey
}

func check(ops []op) porcupine.CheckResult {
	var operations []porcupine.Operation
	for n, o := range ops {
		if o.Reply == nil {
			// It may take effect at any time later.
			o.Replied = math.MaxInt64
		}
		operations = append(operations, porcupine.Operation{ClientId: n, Input: o, Call: o.Sent, Return: o.Replied})
	}
	return porcupine.CheckOperationsTimeout(model(), operations, time.Minute)
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . FILE.json")
		os.Exit(2)
	}
	text, err := os.ReadFile(os.Args[1])
	var ops []op
	if err == nil {
		err = json.Unmarshal(text, &ops)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	status := 0
	for key, ops := range mutexes(ops) {
		result := check(ops)
		fmt.Printf("%s: %d requests: %s\n", key, len(ops), result)
		if result == porcupine.Illegal {
			status = 1
		}
	}
	os.Exit(status)
}
