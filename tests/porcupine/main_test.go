package main

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

func acquire(owner string, sent, replied int64, fence uint64) op {
	return op{Owner: owner, Key: "door", Sent: sent, Replied: replied,
		Request: request{Command: "ACQUIRE", Lease: 1, Limit: 1}, Reply: &reply{Granted: fence, Lease: 1}}
}

func release(owner string, sent, replied int64) op {
	left := int64(0)
	return op{Owner: owner, Key: "door", Sent: sent, Replied: replied,
		Request: request{Command: "RELEASE"}, Reply: &reply{Remaining: &left}}
}

func unanswered(o op) op {
	o.Reply = nil
	return o
}

func TestHistories(t *testing.T) {
	cases := map[string]struct {
		ops []op
		is  porcupine.CheckResult
	}{
		"handed over":                    {[]op{acquire("a", 0, 10, 1), release("a", 20, 30), acquire("b", 25, 40, 2)}, porcupine.Ok},
		"lease ended":                    {[]op{acquire("a", 0, 10, 1), acquire("b", 900, 1000, 2)}, porcupine.Ok},
		"release without a reply":        {[]op{acquire("a", 0, 10, 1), unanswered(release("a", 20, 30)), acquire("b", 40, 50, 2)}, porcupine.Ok},
		"two holders":                    {[]op{acquire("a", 0, 10, 1), acquire("b", 20, 30, 2)}, porcupine.Illegal},
		"a fence that falls":             {[]op{acquire("a", 0, 10, 2), release("a", 20, 30), acquire("b", 40, 50, 1)}, porcupine.Illegal},
		"a release of who lost the lock": {[]op{acquire("a", 0, 10, 1), acquire("b", 2000, 2010, 2), release("a", 2020, 2030)}, porcupine.Illegal},
	}
	for name, it := range cases {
		if result := check(it.ops); result != it.is {
			t.Errorf("%s: %s, not %s", name, result, it.is)
		}
	}
}
