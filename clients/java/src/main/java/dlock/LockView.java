package dlock;

import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import org.jspecify.annotations.Nullable;

/**
 * A lock as {@link java.util.concurrent.locks} has it, for code that was written for one process: see
 * {@link Locks#asLock(String, LockOptions)}.
 *
 * <p>A thread that has locked it may lock it again, which asks no server, and has to unlock it as often. All others wait
 * in the server's queue, those of this process too, unless the options name an owner: then the threads of that owner hold
 * the lock together. Only the thread that has locked it unlocks it.
 *
 * <p>Views of one {@link Locks} with the same key and options are equal: a thread that has locked one has locked all.
 */
public final class LockView implements Lock {
    private final Locks locks;
    private final String key;
    private final LockOptions options;
    /** Of all views of the Locks. */
    private final Map<Holder, Holding> holdings;

    /** A thread that has locked a view. */
    record Holder(Thread thread, String key, LockOptions options) {}

    /** What it holds, and how often it has locked it. Only this thread uses it. */
    static final class Holding {
        private final Hold held;
        private int count = 1;

        private Holding(Held held) {
            this.held = (Hold) held;
        }
    }

    LockView(Locks locks, String key, LockOptions options, Map<Holder, Holding> holdings) {
        this.locks = locks;
        this.key = key;
        this.options = options;
        this.holdings = holdings;
    }

    /** The lock as this thread holds it, for its fence and fenced writes, or null. */
    public @Nullable Held held() {
        Holding holding = holdings.get(holder());
        return holding == null ? null : holding.held;
    }

    /**
     * Waits for the lock, also if this thread is interrupted.
     *
     * @throws LostException if this thread had it locked, and it was lost since; a LockException with the word RELEASED
     *     if it was released by {@link #held}
     * @throws LockException as {@link Locks#acquire(String, LockOptions)}
     */
    @Override
    public void lock() {
        lock(options.lease());
    }

    /**
     * As {@link #lock()}, with this lease.
     *
     * @param lease how long the lock stays held if this process dies, longer than 0. It is renewed as the options say
     * @throws LockException as {@link #lock()}
     */
    public void lock(Duration lease) {
        if (!enterAgain()) {
            enter(locks.acquireUninterruptibly(key, options.lease(lease)));
        }
    }

    /**
     * As {@link #lock()}, until this thread is interrupted.
     *
     * @throws LockException as {@link #lock()}
     * @throws InterruptedException if that happens: then nothing is held, and nothing waits
     */
    @Override
    public void lockInterruptibly() throws InterruptedException {
        if (!enterAgain()) {
            enter(locks.acquire(key, options));
        }
    }

    /**
     * Locks it if nobody holds or awaits it.
     *
     * @return whether it is locked
     * @throws LockException as {@link Locks#tryAcquire(String, LockOptions)}
     */
    @Override
    public boolean tryLock() {
        return enterAgain() || enter(locks.tryAcquireUninterruptibly(key, options));
    }

    /**
     * Waits for the lock, but no longer than this.
     *
     * @param time does not wait if it is 0 or less
     * @return whether it is locked: if not, others hold it or wait for it, as the server said
     * @throws AcquireTimeoutException if it is not locked in time for another reason, such as a server that is silent
     * @throws LockException as {@link #lock()}
     * @throws InterruptedException if this thread is interrupted: then nothing is held, and nothing waits
     */
    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return tryLock(Duration.ofNanos(unit.toNanos(time)), options.lease());
    }

    /**
     * As {@link #tryLock(long, TimeUnit)}, with this lease.
     *
     * @param time how long to wait
     * @param lease as for {@link #lock(Duration)}
     * @return as {@link #tryLock(long, TimeUnit)}
     * @throws AcquireTimeoutException as {@link #tryLock(long, TimeUnit)}
     * @throws InterruptedException as {@link #tryLock(long, TimeUnit)}
     */
    public boolean tryLock(Duration time, Duration lease) throws InterruptedException {
        if (enterAgain()) {
            return true;
        }
        Duration timeout = time.isNegative() ? Duration.ZERO : time;
        try {
            return enter(locks.acquire(key, options.lease(lease).timeout(timeout)));
        } catch (AcquireTimeoutException error) {
            if (error.getCause() == null) {
                return false;
            }
            throw error;
        }
    }

    /**
     * Unlocks it once.
     *
     * @throws IllegalMonitorStateException if this thread has not locked it
     * @throws LostException if the lock was, or may have been, lost before; it is unlocked all the same
     */
    @Override
    public void unlock() {
        Holding holding = holdings.get(holder());
        if (holding == null) {
            throw new IllegalMonitorStateException(key + " is not locked by this thread");
        }
        holding.count--;
        if (holding.count == 0) {
            holdings.remove(holder());
            holding.held.release();
        }
    }

    /**
     * Refuses.
     *
     * @throws UnsupportedOperationException always: the server has no conditions. Wait for what the other process does,
     *     such as a message or a blocking command, without the lock
     */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException(
                "the server has no conditions: wait without the lock, for a message or with a blocking command");
    }

    private boolean enterAgain() {
        Holding holding = holdings.get(holder());
        if (holding == null) {
            return false;
        }
        if (!holding.held.isHeld()) {
            holding.held.checkHeld();
        }
        holding.count++;
        return true;
    }

    private boolean enter(@Nullable Held held) {
        if (held != null) {
            holdings.put(holder(), new Holding(held));
        }
        return held != null;
    }

    private Holder holder() {
        return new Holder(Thread.currentThread(), key, options);
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof LockView view
                && view.locks == locks
                && view.key.equals(key)
                && view.options.equals(options);
    }

    @Override
    public int hashCode() {
        return Objects.hash(key, options);
    }

    @Override
    public String toString() {
        return "LockView[" + key + "]";
    }
}
