package dlock.spring;

import dlock.Held;
import dlock.LockException;
import dlock.LockOptions;
import dlock.LockView;
import dlock.Locks;
import dlock.LostException;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.RenewableLockRegistry;

/**
 * A registry for Spring Integration 7 and later, in place of its {@code RedisLockRegistry}: leases are renewed without a
 * scheduler, and threads, processes and hosts wait in one queue. It keeps nothing: it has no capacity, and nothing to
 * expire.
 *
 * <p>Spring Integration 6 needs no class: {@code LockRegistry registry = key -> locks.asLock("orders:" + key)}.
 */
public final class DlockLockRegistry implements RenewableLockRegistry<DistributedLock> {
    private final Locks locks;
    private final String registryKey;
    private final LockOptions options;

    /**
     * A registry with {@link LockOptions#defaults()}: a lease of 30 s, which is renewed.
     *
     * @param registryKey what the names of all its locks begin with, before a colon
     */
    public DlockLockRegistry(Locks locks, String registryKey) {
        this(locks, registryKey, LockOptions.defaults());
    }

    /** As {@link #DlockLockRegistry(Locks, String)}, with options that have no timeout. */
    public DlockLockRegistry(Locks locks, String registryKey, LockOptions options) {
        this.locks = locks;
        this.registryKey = registryKey;
        this.options = options;
    }

    /**
     * The lock of this key. Its methods that lock throw a {@link CannotAcquireLockException} if the server refuses, or
     * cannot be reached. {@code unlock} throws a {@link ConcurrentModificationException} if the lock was, or may have been,
     * lost before, and an IllegalStateException if this thread does not hold it.
     *
     * @throws IllegalArgumentException if the key is no text, or the options have a timeout
     */
    @Override
    public DistributedLock obtain(Object lockKey) {
        return new SpringLock(view(lockKey), options.lease());
    }

    /**
     * Extends the lease of a lock that this thread holds. It is renewed without that, too.
     *
     * @throws IllegalStateException if this thread does not hold the lock, or if it was lost
     */
    @Override
    public void renewLock(Object lockKey) {
        renewLock(lockKey, options.lease());
    }

    /** As {@link #renewLock(Object)}, with this lease. */
    @Override
    public void renewLock(Object lockKey, Duration ttl) {
        Held held = view(lockKey).held();
        if (held == null) {
            throw new IllegalStateException("Could not renew mutex at " + lockKey + ": this thread does not hold it");
        }
        try {
            held.extend(ttl);
        } catch (LockException error) {
            throw new IllegalStateException("Could not renew mutex at " + lockKey, error);
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("Interrupted while renewing mutex at " + lockKey, interrupt);
        }
    }

    private LockView view(Object lockKey) {
        if (!(lockKey instanceof String key)) {
            throw new IllegalArgumentException("a key is a String, not " + lockKey.getClass().getName());
        }
        return locks.asLock(registryKey + ":" + key, options);
    }

    @Override
    public String toString() {
        return "DlockLockRegistry[" + registryKey + "]";
    }

    /** A view whose errors are those of Spring, with its lease. */
    private record SpringLock(LockView view, Duration lease) implements DistributedLock {
        @Override
        public void lock() {
            lock(lease);
        }

        @Override
        public void lock(Duration ttl) {
            try {
                view.lock(ttl);
            } catch (LockException error) {
                throw notAcquired(error);
            }
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            try {
                view.lockInterruptibly();
            } catch (LockException error) {
                throw notAcquired(error);
            }
        }

        @Override
        public boolean tryLock() {
            try {
                return view.tryLock();
            } catch (LockException error) {
                throw notAcquired(error);
            }
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
            return tryLock(Duration.ofNanos(unit.toNanos(time)), lease);
        }

        @Override
        public boolean tryLock(Duration waitTime, Duration ttl) throws InterruptedException {
            try {
                return view.tryLock(waitTime, ttl);
            } catch (LockException error) {
                throw notAcquired(error);
            }
        }

        private CannotAcquireLockException notAcquired(LockException error) {
            return new CannotAcquireLockException("Failed to lock mutex at " + view, error);
        }

        @Override
        public void unlock() {
            try {
                view.unlock();
            } catch (IllegalMonitorStateException error) {
                throw new IllegalStateException("You do not own lock at " + view, error);
            } catch (LostException error) {
                throw new ConcurrentModificationException("Lock was released in the store due to expiration. "
                        + "The integrity of data protected by this lock may have been compromised.", error);
            }
        }

        @Override
        public Condition newCondition() {
            return view.newCondition();
        }
    }
}
