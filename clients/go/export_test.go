package dlock

import (
	"testing"
	"time"
)

// SetIdleTimeout sets after how long connections are closed, during a test.
func SetIdleTimeout(t *testing.T, timeout time.Duration) {
	before := idleTimeout
	idleTimeout = timeout
	t.Cleanup(func() { idleTimeout = before })
}
