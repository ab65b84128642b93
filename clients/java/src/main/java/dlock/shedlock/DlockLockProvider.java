package dlock.shedlock;

import dlock.Held;
import dlock.LockOptions;
import dlock.Locks;
import dlock.LostException;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * A provider for ShedLock, in place of {@code RedisLockProvider} or {@code LettuceLockProvider}.
 *
 * <p>A lock has the lease {@code lockAtMostFor}, which is not renewed. If the task ends before {@code lockAtLeastFor},
 * this process releases the lock at that time; if it ends before, too, the lock is free after {@code lockAtMostFor}. An
 * extension never makes a lease shorter.
 */
public final class DlockLockProvider implements ExtensibleLockProvider {
    private final Locks locks;
    private final String prefix;

    /** A provider whose locks have the names of the tasks after {@code job-lock:}. */
    public DlockLockProvider(Locks locks) {
        this(locks, "job-lock:");
    }

    /**
     * A provider.
     *
     * @param prefix what the names of all its locks begin with
     */
    public DlockLockProvider(Locks locks, String prefix) {
        this.locks = locks;
        this.prefix = prefix;
    }

    /**
     * Acquires a lock if it is free.
     *
     * @throws dlock.LockException as {@link Locks#tryAcquire(String, LockOptions)}
     * @throws IllegalStateException if this thread is interrupted: then nothing is held
     */
    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        LockOptions options = LockOptions.defaults().lease(configuration.getLockAtMostFor()).withoutRenewal();
        try {
            Held held = locks.tryAcquire(prefix + configuration.getName(), options);
            return held == null ? Optional.empty() : Optional.of(new HeldLock(held, configuration));
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while locking " + configuration.getName(), interrupt);
        }
    }

    private static final class HeldLock extends AbstractSimpleLock {
        private final Held held;

        HeldLock(Held held, LockConfiguration configuration) {
            super(configuration);
            this.held = held;
        }

        /** Of a lost lock there is nothing to unlock: ShedLock has no word for it. */
        @Override
        protected void doUnlock() {
            Duration early = Duration.between(ClockProvider.now(), lockConfiguration.getLockAtLeastUntil());
            if (!early.isNegative() && !early.isZero()) {
                // Not in a pool, which the program may keep busy.
                CompletableFuture.delayedExecutor(early.toNanos(), TimeUnit.NANOSECONDS, Runnable::run)
                        .execute(held::releaseAsync);
                return;
            }
            try {
                held.release();
            } catch (LostException lost) {
                System.getLogger("dlock").log(System.Logger.Level.WARNING, lost.getMessage());
            }
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration configuration) {
            try {
                held.extend(configuration.getLockAtMostFor());
                return Optional.of(new HeldLock(held, configuration));
            } catch (LostException lost) {
                return Optional.empty();
            } catch (InterruptedException interrupt) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException("interrupted while extending " + held.key(), interrupt);
            }
        }
    }
}
