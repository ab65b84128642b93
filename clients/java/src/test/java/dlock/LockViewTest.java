package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.testing.TestServer;
import dlock.testing.WithServer;
import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.Test;

class LockViewTest extends WithServer {
    private static <T> T inAnotherThread(Callable<T> action) throws Exception {
        return CompletableFuture.supplyAsync(() -> {
            try {
                return action.call();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }).get();
    }

    @Test
    void thread_locks_again_what_it_has_locked_without_asking_the_server() throws Exception {
        LockView lock = locks.asLock("k");
        lock.lock();
        long asked = server.calls("dlock.acquire");
        locks.asLock("k").lock();
        assertTrue(lock.tryLock());
        assertTrue(lock.tryLock(1, TimeUnit.SECONDS));
        lock.lockInterruptibly();
        assertEquals(asked, server.calls("dlock.acquire"));
        for (int n = 0; n < 4; n++) {
            lock.unlock();
            boolean isLocked = inAnotherThread(() -> lock.tryLock());
            assertFalse(isLocked);
        }
        assertTrue(lock.held().fence() > 0);
        lock.unlock();
        assertNull(lock.held());
    }

    @Test
    void another_thread_is_excluded_until_the_lock_is_unlocked() throws Exception {
        Lock lock = locks.asLock("k");
        lock.lock();
        boolean isLocked = inAnotherThread(() -> lock.tryLock(2, TimeUnit.SECONDS));
        assertFalse(isLocked);
        CompletableFuture<Void> second = CompletableFuture.runAsync(() -> {
            lock.lock();
            lock.unlock();
        });
        server.untilWaiting(1);
        lock.unlock();
        second.get();
    }

    @Test
    void thread_that_has_not_locked_it_may_not_unlock_it() {
        Lock lock = locks.asLock("k");
        lock.lock();
        assertThrows(Exception.class, () -> inAnotherThread(() -> {
            lock.unlock();
            return null;
        }));
        lock.unlock();
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void lost_lock_is_told_when_it_is_locked_again_or_unlocked() throws Exception {
        LockView lock = locks.asLock("k", LockOptions.defaults().lease(Duration.ofSeconds(3)));
        lock.lock();
        server.call("DEL k");
        assertEquals("NOTHELD", lock.held().lost().get().word());
        assertThrows(LostException.class, lock::lock);
        assertThrows(LostException.class, lock::unlock);
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void lock_that_was_released_by_its_handle_is_not_locked_again() {
        LockView lock = locks.asLock("k");
        lock.lock();
        lock.held().release();
        assertEquals("RELEASED", assertThrows(LockException.class, lock::lock).word());
        lock.unlock();
        lock.lock();
        lock.unlock();
    }

    @Test
    void lock_waits_on_after_an_interrupt_and_keeps_it() throws Exception {
        Lock lock = locks.asLock("k");
        Held held = locks.acquire("k");
        CompletableFuture<Boolean> isInterrupted = new CompletableFuture<>();
        Thread waiting = new Thread(() -> {
            lock.lock();
            isInterrupted.complete(Thread.interrupted());
            lock.unlock();
        });
        waiting.start();
        server.untilWaiting(1);
        waiting.interrupt();
        held.release();
        assertTrue(isInterrupted.get());
    }

    @Test
    void interrupted_thread_locks_nothing_interruptibly() throws Exception {
        Lock lock = locks.asLock("k");
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, lock::lockInterruptibly);
        boolean isLocked = inAnotherThread(() -> {
            boolean isFree = lock.tryLock();
            lock.unlock();
            return isFree;
        });
        assertTrue(isLocked);
    }

    @Test
    void threads_of_one_owner_hold_the_lock_together() throws Exception {
        Lock lock = locks.asLock("k", LockOptions.defaults().owner("batch-7"));
        lock.lock();
        boolean isLocked = inAnotherThread(() -> {
            boolean isFree = lock.tryLock();
            lock.unlock();
            return isFree;
        });
        assertTrue(isLocked);
        lock.unlock();
    }

    @Test
    void longest_time_is_no_limit() throws Exception {
        Lock lock = locks.asLock("k");
        assertTrue(lock.tryLock(Long.MAX_VALUE, TimeUnit.DAYS));
        lock.unlock();
    }

    @Test
    void condition_is_refused_with_the_reason() {
        Lock lock = locks.asLock("k");
        var error = assertThrows(UnsupportedOperationException.class, lock::newCondition);
        assertTrue(error.getMessage().contains("has no conditions"));
    }

    @Test
    void silent_server_is_not_called_taken() throws Exception {
        try (TestServer other = new TestServer(); RedisClient silent = other.client()) {
            Lock lock = Locks.open(silent).asLock("k");
            lock.lock();
            lock.unlock();
            other.signal("STOP");
            assertThrows(AcquireTimeoutException.class, () -> lock.tryLock(100, TimeUnit.MILLISECONDS));
            other.signal("CONT");
        }
    }

    @Test
    void views_of_the_same_lock_are_equal() {
        assertEquals(locks.asLock("k"), locks.asLock("k"));
        assertNotEquals(locks.asLock("k"), locks.asLock("l"));
        assertNotEquals(locks.asLock("k"), locks.asLock("k", LockOptions.defaults().shared()));
        assertNotEquals(locks.asLock("k"), Locks.open(client).asLock("k"));
    }
}
