package dlock.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.LockException;
import dlock.testing.WithServer;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.junit.jupiter.api.Test;

class DlockLockProviderTest extends WithServer {
    private static final Duration MINUTE = Duration.ofMinutes(1);

    private Optional<SimpleLock> lock(Duration atMost, Duration atLeast) {
        return new DlockLockProvider(locks).lock(new LockConfiguration(Instant.now(), "report", atMost, atLeast));
    }

    @Test
    void locked_task_is_not_locked_again_until_it_ends() {
        SimpleLock lock = lock(MINUTE, Duration.ZERO).orElseThrow();
        assertEquals("1", server.call("EXISTS job-lock:report"));
        assertTrue(lock(MINUTE, Duration.ZERO).isEmpty());
        lock.unlock();
        lock(MINUTE, Duration.ZERO).orElseThrow().unlock();
    }

    @Test
    void lock_ends_after_lock_at_most_for_without_renewal() {
        lock(Duration.ofSeconds(1), Duration.ZERO).orElseThrow();
        server.untilNothingIsLeft();
    }

    @Test
    void task_that_ends_early_is_locked_for_lock_at_least_for() {
        // It connects, which may take longer than the time below.
        lock(MINUTE, Duration.ZERO).orElseThrow().unlock();
        Instant began = Instant.now();
        lock(MINUTE, Duration.ofSeconds(3)).orElseThrow().unlock();
        assertTrue(lock(MINUTE, Duration.ZERO).isEmpty());
        server.untilNothingIsLeft();
        assertTrue(Duration.between(began, Instant.now()).toMillis() >= 3_000);
    }

    @Test
    void extended_lock_replaces_the_first_and_lasts_longer() throws Exception {
        SimpleLock first = lock(Duration.ofSeconds(2), Duration.ZERO).orElseThrow();
        SimpleLock second = first.extend(MINUTE, Duration.ZERO).orElseThrow();
        assertThrows(IllegalStateException.class, first::unlock);
        Thread.sleep(2_000);
        assertTrue(lock(MINUTE, Duration.ZERO).isEmpty());
        second.unlock();
    }

    @Test
    void lock_that_has_ended_is_not_extended_and_unlocked_in_silence() {
        SimpleLock lock = lock(MINUTE, Duration.ZERO).orElseThrow();
        server.call("DEL job-lock:report");
        assertTrue(lock.extend(MINUTE, Duration.ZERO).isEmpty());
        SimpleLock other = lock(MINUTE, Duration.ZERO).orElseThrow();
        server.call("DEL job-lock:report");
        other.unlock();
    }

    @Test
    void server_that_refuses_is_told() {
        server.call("SET job-lock:report text");
        assertThrows(LockException.class, () -> lock(MINUTE, Duration.ZERO));
        server.call("DEL job-lock:report");
    }
}
