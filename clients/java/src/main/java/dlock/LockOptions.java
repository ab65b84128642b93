package dlock;

import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * How a lock is acquired and held. Options are immutable: each method returns changed ones. A fraction of a millisecond
 * is rounded up.
 *
 * @param lease how long the lock stays held if this process dies or loses the server; renewed after each third of it
 * @param timeout how long to wait, or null for as long as it takes
 * @param maxHold after how long the lock is lost and given back, however well it is renewed, or null for no limit
 * @param isShared whether any number may hold the lock if all are shared
 * @param limit how many may hold the lock, or null for one
 * @param owner who holds the lock, or null for an own name for each acquisition
 * @param isRenewed whether the lease is renewed
 */
public record LockOptions(
        Duration lease,
        @Nullable Duration timeout,
        @Nullable Duration maxHold,
        boolean isShared,
        @Nullable Integer limit,
        @Nullable String owner,
        boolean isRenewed) {
    private static final LockOptions DEFAULTS =
            new LockOptions(Duration.ofSeconds(30), null, null, false, null, null, true);

    /** The most bytes of an owner. */
    private static final int MAX_OWNER = 512;

    /** Checks all options: see the methods. */
    public LockOptions {
        lease = wholeMs("lease", lease, false);
        timeout = timeout == null ? null : wholeMs("timeout", timeout, true);
        maxHold = maxHold == null ? null : wholeMs("maxHold", maxHold, false);
        check(limit == null || limit >= 1, "limit is 1 to 2147483647, not " + limit);
        check(limit == null || !isShared, "a shared lock has no limit: leave out one of shared and limit");
        check(owner == null || !owner.isEmpty(), "owner is not empty");
        check(owner == null || Words.text(owner).length <= MAX_OWNER, "owner has at most 512 bytes");
    }

    /** A lease of 30 s that is renewed, for one holder, and no limit for waiting or holding. */
    public static LockOptions defaults() {
        return DEFAULTS;
    }

    /**
     * Sets the lease, 30 s by default.
     *
     * @throws IllegalArgumentException if it is not longer than 0
     */
    public LockOptions lease(Duration lease) {
        return new LockOptions(lease, timeout, maxHold, isShared, limit, owner, isRenewed);
    }

    /**
     * Limits the wait. With 0, the lock is granted at once, or not at all.
     *
     * @throws IllegalArgumentException if it is negative
     */
    public LockOptions timeout(Duration timeout) {
        return new LockOptions(lease, timeout, maxHold, isShared, limit, owner, isRenewed);
    }

    /**
     * Limits how long the lock is held: then it is lost, and given back.
     *
     * @throws IllegalArgumentException if it is not longer than 0
     */
    public LockOptions maxHold(Duration maxHold) {
        return new LockOptions(lease, timeout, maxHold, isShared, limit, owner, isRenewed);
    }

    /**
     * Shares the lock with all others that do, as readers do.
     *
     * @throws IllegalArgumentException together with a limit
     */
    public LockOptions shared() {
        return new LockOptions(lease, timeout, maxHold, true, limit, owner, isRenewed);
    }

    /**
     * Makes the lock a semaphore.
     *
     * @param limit how many may hold it: 1 to 2147483647
     * @throws IllegalArgumentException if it is less than 1, or the lock is shared
     */
    public LockOptions limit(int limit) {
        return new LockOptions(lease, timeout, maxHold, isShared, limit, owner, isRenewed);
    }

    /**
     * Names the owner. One owner may hold a lock several times, and the server finds deadlocks between owners.
     *
     * @throws IllegalArgumentException if it is empty, or has more than 512 bytes in UTF-8
     */
    public LockOptions owner(String owner) {
        return new LockOptions(lease, timeout, maxHold, isShared, limit, owner, isRenewed);
    }

    /** Leaves it to {@link Held#extend} to extend the lease. */
    public LockOptions withoutRenewal() {
        return new LockOptions(lease, timeout, maxHold, isShared, limit, owner, false);
    }

    /** The words of ACQUIRE that say how many may hold the lock. */
    List<Object> kind() {
        if (isShared) {
            return List.of("SHARED");
        }
        return limit == null ? List.of() : List.of("LIMIT", limit);
    }

    boolean doesNotWait() {
        return timeout != null && timeout.isZero();
    }

    /** A time, rounded up to whole milliseconds. */
    static Duration wholeMs(String name, Duration time, boolean mayBeZero) {
        boolean isRight = !time.isNegative() && (mayBeZero || !time.isZero());
        check(isRight, name + " is " + (mayBeZero ? "0 or longer" : "longer than 0") + ", not " + time);
        try {
            return Duration.ofMillis(time.plusNanos(999_999).toMillis());
        } catch (ArithmeticException tooLong) {
            throw new IllegalArgumentException(name + " has at most " + Long.MAX_VALUE + " ms, not " + time, tooLong);
        }
    }

    /** In nanoseconds: {@link Clock#NEVER} without a limit, or with one that nobody will see. */
    static long nanos(@Nullable Duration time) {
        boolean isLimit = time != null && time.compareTo(Duration.ofNanos(Clock.NEVER)) < 0;
        return isLimit ? time.toNanos() : Clock.NEVER;
    }

    private static void check(boolean isRight, String rule) {
        if (!isRight) {
            throw new IllegalArgumentException(rule);
        }
    }
}
