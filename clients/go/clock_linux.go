package dlock

import "golang.org/x/sys/unix"

// now returns nanoseconds of a clock that goes on while the machine is suspended, unlike that of package time.
func now() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}
