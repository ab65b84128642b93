package dlock;

import java.time.Duration;

/** The monotonic clock, in ns since the class was loaded. It may stand still while the machine is suspended. */
final class Clock {
    /** Later than any time. */
    static final long NEVER = Long.MAX_VALUE;

    private static final long START = System.nanoTime();

    private Clock() {}

    static long now() {
        return System.nanoTime() - START;
    }

    static long ms(long ms) {
        return ms * 1_000_000;
    }

    /** The time after this one by so much, which may be {@link #NEVER}. */
    static long after(long time, long nanos) {
        return nanos > NEVER - time ? NEVER : time + nanos;
    }

    /** Until when a lease that was confirmed by a request sent at {@code sent} lasts for certain. */
    static long deadline(long sent, long leaseMs) {
        return sent + leaseMs * 999_000 - 2_000_000;
    }

    /** About this long: pauses of many callers differ. */
    static long about(long ms) {
        return ms(ms) / 2 + (long) (Math.random() * ms(ms) / 2);
    }

    static Duration sinceAsDuration(long time) {
        return Duration.ofNanos(now() - time);
    }
}
