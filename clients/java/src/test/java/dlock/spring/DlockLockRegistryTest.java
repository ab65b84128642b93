package dlock.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.LockOptions;
import dlock.Locks;
import dlock.testing.TestServer;
import dlock.testing.WithServer;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.Test;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.LockRegistry;

class DlockLockRegistryTest extends WithServer {
    private DlockLockRegistry registry() {
        return new DlockLockRegistry(locks, "orders");
    }

    @Test
    void lock_has_the_name_of_the_registry_before_its_key() throws Exception {
        DistributedLock lock = registry().obtain("42");
        lock.lock();
        assertEquals("1", server.call("EXISTS orders:42"));
        lock.unlock();
        assertThrows(IllegalArgumentException.class, () -> registry().obtain(42));
    }

    @Test
    void second_registry_waits_until_the_first_unlocks() throws Exception {
        DistributedLock first = registry().obtain("42");
        first.lock();
        Locks otherLocks = Locks.open(client);
        DistributedLock second = new DlockLockRegistry(otherLocks, "orders").obtain("42");
        assertFalse(second.tryLock());
        assertFalse(second.tryLock(2, TimeUnit.SECONDS));
        first.unlock();
        assertTrue(second.tryLock());
        second.unlock();
    }

    @Test
    void execution_within_a_lock_that_is_taken_times_out() throws Exception {
        LockRegistry<DistributedLock> first = registry();
        LockRegistry<DistributedLock> second = new DlockLockRegistry(Locks.open(client), "orders");
        first.executeLocked("42", () -> {
            assertThrows(TimeoutException.class, () -> second.executeLocked("42", Duration.ofSeconds(2), () -> {
                throw new AssertionError("two at once");
            }));
        });
        assertEquals("done", second.executeLocked("42", () -> "done"));
    }

    @Test
    void lease_is_renewed_without_a_scheduler() throws Exception {
        DlockLockRegistry registry = new DlockLockRegistry(
                locks, "orders", LockOptions.defaults().lease(Duration.ofSeconds(3)));
        long before = server.calls("dlock.extend");
        DistributedLock lock = registry.obtain("42");
        lock.lock();
        TestServer.until("it is renewed", () -> server.calls("dlock.extend") > before);
        lock.unlock();
    }

    @Test
    void lost_lock_is_told_at_unlock() {
        DistributedLock lock = registry().obtain("42");
        lock.lock(Duration.ofSeconds(20));
        server.call("DEL orders:42");
        var error = assertThrows(ConcurrentModificationException.class, lock::unlock);
        assertTrue(error.getMessage().startsWith("Lock was released in the store due to expiration."));
    }

    @Test
    void lock_of_another_thread_is_not_unlocked() {
        var error = assertThrows(IllegalStateException.class, registry().obtain("42")::unlock);
        assertTrue(error.getMessage().startsWith("You do not own lock at"));
    }

    @Test
    void renewal_needs_the_lock() throws Exception {
        DlockLockRegistry registry = registry();
        assertThrows(IllegalStateException.class, () -> registry.renewLock("42"));
        DistributedLock lock = registry.obtain("42");
        assertTrue(lock.tryLock(Duration.ofSeconds(1), Duration.ofSeconds(5)));
        registry.renewLock("42", Duration.ofMinutes(1));
        registry.renewLock("42");
        server.call("DEL orders:42");
        assertThrows(IllegalStateException.class, () -> registry.renewLock("42"));
        assertThrows(ConcurrentModificationException.class, lock::unlock);
    }

    @Test
    void server_that_refuses_is_told_as_an_error_of_spring() {
        server.call("SET orders:42 text");
        DistributedLock lock = registry().obtain("42");
        assertThrows(CannotAcquireLockException.class, lock::lock);
        assertThrows(CannotAcquireLockException.class, lock::tryLock);
        server.call("DEL orders:42");
    }

    @Test
    void leader_is_followed_by_the_next_candidate() throws Exception {
        CountDownLatch second = new CountDownLatch(1);
        var first = new LockRegistryLeaderInitiator(registry(), new DefaultCandidate("one", "leader"));
        var next = new LockRegistryLeaderInitiator(new DlockLockRegistry(Locks.open(client), "orders"),
                new DefaultCandidate("two", "leader") {
                    @Override
                    public void onGranted(Context context) {
                        second.countDown();
                    }
                });
        first.start();
        TestServer.until("the first leads", () -> first.getContext().isLeader());
        next.start();
        server.untilWaiting(1);
        first.stop();
        assertTrue(second.await(20, TimeUnit.SECONDS));
        next.stop();
        // Its thread unlocks later, for which it needs the client.
        server.untilNothingIsLeft();
    }
}
