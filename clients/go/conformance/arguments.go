package main

import (
	"encoding/hex"
	"math"
	"time"

	"dlock"
)

// arguments returns the options and the key of a command. It returns false if Go's types cannot express one of them.
func (c command) arguments() (options []dlock.Option, key string, isExpressible bool) {
	key, isText := c.Key.(string)
	if isText == (c.KeyHex != "") {
		return nil, "", false
	}
	if c.KeyHex != "" {
		bytes, err := hex.DecodeString(c.KeyHex)
		if err != nil {
			return nil, "", false
		}
		key = string(bytes)
	}
	for _, time := range []struct {
		value  any
		option func(time.Duration) dlock.Option
	}{{c.Lease, dlock.WithLease}, {c.Timeout, dlock.WithTimeout}, {c.MaxHold, dlock.WithMaxHold}} {
		if time.value != nil {
			duration, isDuration := durationOf(time.value)
			if !isDuration {
				return nil, "", false
			}
			options = append(options, time.option(duration))
		}
	}
	if c.Limit != nil {
		limit, isNumber := c.Limit.(float64)
		if !isNumber || limit != math.Trunc(limit) || math.Abs(limit) > math.MaxInt64 {
			return nil, "", false
		}
		options = append(options, dlock.WithLimit(int(limit)))
	}
	if c.Shared {
		options = append(options, dlock.WithShared())
	}
	if c.Owner != nil {
		options = append(options, dlock.WithOwner(*c.Owner))
	}
	if c.Renew != nil && !*c.Renew {
		options = append(options, dlock.WithoutRenewal())
	}
	return options, key, c.Options == nil
}

// durationOf returns a number of milliseconds as a time, if it is one.
func durationOf(value any) (time.Duration, bool) {
	ms, isNumber := value.(float64)
	nanoseconds := ms * float64(time.Millisecond)
	if !isNumber || math.Abs(nanoseconds) >= math.MaxInt64 {
		return 0, false
	}
	return time.Duration(nanoseconds), true
}
