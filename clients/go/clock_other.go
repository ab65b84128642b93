//go:build !linux

package dlock

import "time"

var start = time.Now()

// now returns nanoseconds of the monotonic clock, which may stand still while the machine is suspended.
func now() int64 { return int64(time.Since(start)) }
