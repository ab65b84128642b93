package dlock;

import static dlock.testing.TestServer.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.testing.TestServer;
import dlock.testing.VirtualThreads;
import dlock.testing.WithServer;
import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

class LocksTest extends WithServer {
    private static final LockOptions DEFAULTS = LockOptions.defaults();

    @Test
    void lock_acquired_in_a_block_is_released_at_its_end() throws Exception {
        try (Held held = locks.acquire("k")) {
            assertTrue(held.isHeld());
            assertTrue(held.fence() > 0);
            assertEquals("k", held.key());
            assertTrue(held.remaining().compareTo(Duration.ofSeconds(25)) > 0);
            assertNull(locks.tryAcquire("k"));
        }
        assertNotNull(locks.tryAcquire("k"));
    }

    @Test
    void later_grant_has_a_larger_fence() throws Exception {
        long first;
        try (Held held = locks.acquire("k")) {
            first = held.fence();
        }
        try (Held held = locks.acquire("k")) {
            assertTrue(held.fence() > first);
        }
    }

    @Test
    void acquire_of_a_taken_lock_times_out_and_says_that_others_hold_it() throws Exception {
        try (Held held = locks.acquire("k")) {
            LockOptions options = DEFAULTS.timeout(Duration.ofSeconds(2));
            AcquireTimeoutException timeout =
                    assertThrows(AcquireTimeoutException.class, () -> locks.acquire("k", options));
            assertNull(timeout.getCause());
            assertEquals("k: not granted within 2000 ms: others hold or await it", timeout.getMessage());
        }
    }

    @Test
    void errors_show_where_they_were_waited_for() throws Exception {
        try (Held held = locks.acquire("k")) {
            LockOptions options = DEFAULTS.timeout(Duration.ZERO);
            LockException error = assertThrows(LockException.class, () -> locks.acquire("k", options));
            assertTrue(List.of(error.getStackTrace()).stream()
                    .anyMatch(frame -> frame.getClassName().equals(LocksTest.class.getName())));
        }
    }

    @Test
    void waiting_requests_are_granted_in_order() throws Exception {
        Held held = locks.acquire("k");
        List<Integer> order = new ArrayList<>();
        List<CompletableFuture<Void>> waiting = new ArrayList<>();
        for (int n = 0; n < 5; n++) {
            int number = n;
            waiting.add(locks.acquireAsync("k", DEFAULTS).thenAccept(each -> {
                order.add(number);
                each.release();
            }));
        }
        server.untilWaiting(5);
        held.release();
        CompletableFuture.allOf(waiting.toArray(CompletableFuture[]::new)).get();
        assertEquals(List.of(0, 1, 2, 3, 4), order);
    }

    @Test
    void shared_locks_are_held_together_and_limits_admit_so_many() throws Exception {
        try (Held one = locks.acquire("s", DEFAULTS.shared()); Held two = locks.acquire("s", DEFAULTS.shared())) {
            assertNull(locks.tryAcquire("s"));
        }
        try (Held one = locks.acquire("l", DEFAULTS.limit(2)); Held two = locks.acquire("l", DEFAULTS.limit(2))) {
            assertNull(locks.tryAcquire("l", DEFAULTS.limit(2)));
        }
    }

    @Test
    void query_runs_only_while_the_lock_is_held() throws Exception {
        Held held = locks.acquire("{k}");
        assertEquals("OK", held.query("SET", "{k}d", "ü"));
        assertEquals("ü", held.query("GET", "{k}d"));
        assertEquals(2L, held.query("RPUSH", "{k}l", 1, "two".getBytes()));
        assertEquals(List.of("1", "two"), held.query("LRANGE", "{k}l", 0, -1));
        assertNull(held.query("GET", "{k}none"));
        assertThrows(IllegalArgumentException.class, () -> held.query("GET", new Object()));
        assertEquals("WRONGTYPE", assertThrows(LockException.class, () -> held.query("INCR", "{k}l")).word());
        server.call("DEL {k}");
        LostException lost = assertThrows(LostException.class, () -> held.query("SET", "{k}d", "late"));
        assertEquals("NOTHELD", lost.word());
        assertSame(lost, held.lost().get());
        assertThrows(LostException.class, held::close);
    }

    @Test
    void released_lock_refuses_further_use() throws Exception {
        Held held = locks.acquire("k");
        held.release();
        held.release();
        held.close();
        assertFalse(held.isHeld());
        assertEquals(Duration.ZERO, held.remaining());
        assertEquals("RELEASED", assertThrows(LockException.class, () -> held.query("PING")).word());
        assertEquals("RELEASED", assertThrows(LockException.class, () -> held.extend(Duration.ofSeconds(1))).word());
        assertFalse(held.lost().isDone());
    }

    @Test
    void lost_lock_is_told_by_future_callback_and_release() throws Exception {
        Held held = locks.acquire("k", DEFAULTS.lease(Duration.ofSeconds(3)));
        CompletableFuture<String> told = new CompletableFuture<>();
        held.onLost(loss -> told.complete(loss.word()));
        server.call("DEL k");
        assertEquals("NOTHELD", told.get());
        assertEquals("NOTHELD", held.lost().get().word());
        assertThrows(LostException.class, held::release);
    }

    @Test
    void lock_without_renewal_expires_unless_it_is_extended() throws Exception {
        Held held = locks.acquire("k", DEFAULTS.lease(Duration.ofSeconds(5)).withoutRenewal());
        held.extend(Duration.ofSeconds(20));
        assertTrue(held.remaining().compareTo(Duration.ofSeconds(10)) > 0);
        held.release();
        Held other = locks.acquire("k", DEFAULTS.lease(Duration.ofSeconds(1)).withoutRenewal());
        assertEquals("EXPIRED", other.lost().get().word());
    }

    @Test
    void lock_is_held_no_longer_than_its_longest_hold() throws Exception {
        Held held = locks.acquire("k", DEFAULTS.maxHold(Duration.ofMillis(100)));
        assertEquals("MAXHOLD", held.lost().get().word());
        server.untilNothingIsLeft();
    }

    @Test
    void interrupt_of_a_waiting_thread_leaves_nothing() throws Exception {
        try (Held held = locks.acquire("k")) {
            CompletableFuture<Throwable> thrown = new CompletableFuture<>();
            Thread waiting = new Thread(() ->
                    thrown.complete(assertThrows(InterruptedException.class, () -> locks.acquire("k"))));
            waiting.start();
            server.untilWaiting(1);
            waiting.interrupt();
            thrown.get();
            server.untilWaiting(0);
        }
    }

    @Test
    void interrupted_thread_acquires_nothing_but_releases() throws Exception {
        Held held = locks.acquire("k");
        long before = server.calls("dlock.acquire");
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> locks.acquire("other"));
        Thread.currentThread().interrupt();
        held.release();
        assertTrue(Thread.interrupted());
        assertEquals(before, server.calls("dlock.acquire"));
    }

    @Test
    void cancelled_future_leaves_nothing() throws Exception {
        try (Held held = locks.acquire("k")) {
            CompletableFuture<Held> waiting = locks.acquireAsync("k", DEFAULTS);
            server.untilWaiting(1);
            assertTrue(waiting.cancel(true));
            assertThrows(CancellationException.class, waiting::get);
            server.untilWaiting(0);
        }
    }

    @Test
    void future_that_has_timed_out_leaves_nothing() throws Exception {
        try (Held held = locks.acquire("k")) {
            CompletableFuture<Held> waiting = locks.acquireAsync("k", DEFAULTS);
            server.untilWaiting(1);
            assertThrows(ExecutionException.class, waiting.orTimeout(1, TimeUnit.MILLISECONDS)::get);
            server.untilWaiting(0);
        }
    }

    @Test
    void grant_after_the_timeout_of_a_thread_is_given_back_and_the_next_is_served() throws Exception {
        assertGivenBack(options -> assertThrows(AcquireTimeoutException.class, () -> locks.acquire("k", options)));
    }

    @Test
    void grant_after_the_timeout_of_a_future_is_given_back_and_the_next_is_served() throws Exception {
        assertGivenBack(options -> {
            CompletableFuture<Held> waiting = locks.acquireAsync("k", options);
            ExecutionException error = assertThrows(ExecutionException.class, waiting::get);
            assertInstanceOf(AcquireTimeoutException.class, error.getCause());
        });
    }

    /** What waits with these options times out while the server hangs, which then grants the lock all the same. */
    private void assertGivenBack(Consumer<LockOptions> timesOut) throws Exception {
        Held held = locks.acquire("k");
        long grants = server.stat("grants_from_queue");
        LockOptions options = DEFAULTS.timeout(Duration.ofSeconds(2));
        CompletableFuture<Void> late = CompletableFuture.runAsync(() -> timesOut.accept(options));
        server.untilWaiting(1);
        CompletableFuture<Held> next = locks.acquireAsync("k", DEFAULTS);
        server.untilWaiting(2);
        server.signal("STOP");
        CompletableFuture<Void> released = held.releaseAsync();
        late.get();
        server.signal("CONT");
        released.get();
        try (Held following = next.get(20, TimeUnit.SECONDS)) {
            assertTrue(following.isHeld());
            assertEquals(grants + 2, server.stat("grants_from_queue"), "it was not granted late");
        }
    }

    @Test
    void continuations_that_wait_for_a_lock_keep_no_other_from_running() throws Exception {
        Held held = locks.acquire("inner");
        Held gate = locks.acquire("outer");
        List<CompletableFuture<String>> nested = new ArrayList<>();
        for (int n = 0; n < 100; n++) {
            nested.add(locks.acquireAsync("outer", DEFAULTS.shared()).thenApply(outer -> {
                try (outer; Held inner = locks.acquire("inner")) {
                    return inner.key();
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            }));
        }
        server.untilWaiting(100);
        gate.release();
        until("all wait for the other lock", () -> server.stat("locks") == 2 && server.stat("waiters") == 100
                && server.stat("contended_locks") == 1 && nested.stream().noneMatch(CompletableFuture::isDone));
        held.release();
        for (CompletableFuture<String> each : nested) {
            assertEquals("inner", each.get());
        }
    }

    @Test
    void close_withdraws_what_waits_and_gives_back_what_is_held() throws Exception {
        Locks other = Locks.open(client);
        Held held = other.acquire("k");
        CompletableFuture<Held> waiting = other.acquireAsync("k", DEFAULTS);
        server.untilWaiting(1);
        other.close();
        assertEquals("CLOSED", held.lost().get().word());
        ExecutionException error = assertThrows(ExecutionException.class, waiting::get);
        assertEquals("CLOSED", assertInstanceOf(LockException.class, error.getCause()).word());
        assertEquals("CLOSED", assertThrows(LockException.class, () -> other.acquire("k")).word());
        server.untilNothingIsLeft();
    }

    @Test
    void events_tell_the_life_of_a_lock_in_order() throws Exception {
        var events = new ConcurrentLinkedQueue<LockEvent>();
        Locks told = Locks.open(client, events::add);
        try (Held held = told.acquire("k")) {
            assertNull(told.tryAcquire("k"));
        }
        until("four events", () -> events.size() == 3);
        List<String> names = events.stream().map(event -> event.getClass().getSimpleName()).toList();
        assertEquals(List.of("Acquired", "NotAcquired", "Released"), names);
    }

    @Test
    void program_that_fails_to_take_an_event_keeps_its_lock_and_is_told_the_next() throws Exception {
        AtomicInteger events = new AtomicInteger();
        Locks told = Locks.open(client, event -> {
            events.incrementAndGet();
            throw new AssertionError("no metrics today");
        });
        try (Held held = told.acquire("k")) {
            assertTrue(held.isHeld());
        }
        until("both are told", () -> events.get() == 2);
    }

    @Test
    void hundred_waiting_threads_use_two_connections() throws Exception {
        assertWaitOverTwoConnections(Executors.newCachedThreadPool(), 100);
    }

    @Test
    void ten_thousand_virtual_threads_wait_over_two_connections() throws Exception {
        assertWaitOverTwoConnections(VirtualThreads.executor(), 10_000);
    }

    private void assertWaitOverTwoConnections(ExecutorService threads, int count) throws Exception {
        Held held = locks.acquire("k");
        CountDownLatch done = new CountDownLatch(count);
        AtomicInteger inside = new AtomicInteger();
        for (int n = 0; n < count; n++) {
            threads.execute(() -> {
                try (Held each = locks.acquire("k")) {
                    assertEquals(1, inside.incrementAndGet());
                    inside.decrementAndGet();
                    done.countDown();
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            });
        }
        server.untilWaiting(count);
        assertEquals(2, server.connections());
        held.release();
        done.await();
        threads.shutdown();
    }

    @Test
    void locks_of_one_client_share_its_connections_which_end_without_use() throws Exception {
        for (int n = 0; n < 50; n++) {
            Locks.open(client).acquire("k").release();
        }
        assertTrue(server.connections() <= 2);
        until("the connections are closed", () -> server.connections() == 0);
    }

    @Test
    void key_that_names_nothing_is_refused() {
        assertThrows(IllegalArgumentException.class, () -> locks.acquire(""));
        assertThrows(IllegalArgumentException.class, () -> locks.acquire("\ud800"));
        assertThrows(IllegalArgumentException.class, () -> locks.tryAcquire("k", DEFAULTS.timeout(Duration.ZERO)));
    }

    @Test
    void server_without_the_module_is_named() throws Exception {
        try (TestServer plain = TestServer.withoutModule(); RedisClient other = plain.client()) {
            LockException error = assertThrows(LockException.class, () -> Locks.open(other).acquire("k"));
            String advice = "ERR 127.0.0.1:%d does not have the DLOCK module: load it, or connect to another server";
            assertEquals(advice.formatted(plain.port), error.getMessage());
        }
    }

    @Test
    void client_that_was_shut_down_is_told_at_once() throws Exception {
        RedisClient other = RedisClient.create(server.uri());
        Locks used = Locks.open(other);
        used.acquire("k").release();
        other.shutdown();
        LockException error = assertThrows(LockException.class, () -> used.acquire("k"));
        assertEquals("CLOSED", error.word(), error.getMessage());
    }

    @Test
    void client_that_is_shut_down_tells_what_waits() throws Exception {
        try (Held held = locks.acquire("k")) {
            RedisClient other = server.client();
            Locks used = Locks.open(other);
            CompletableFuture<Held> waiting = used.acquireAsync("k", DEFAULTS);
            server.untilWaiting(1);
            other.shutdown();
            ExecutionException error = assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
            assertEquals("CLOSED", assertInstanceOf(LockException.class, error.getCause()).word());
            assertEquals("CLOSED", assertThrows(LockException.class, () -> used.acquire("k")).word());
        }
    }

    @Test
    void address_where_nobody_listens_is_told_at_once() {
        try (RedisClient nobody = RedisClient.create(TestServer.RESOURCES, "redis://127.0.0.1:1")) {
            LockException error = assertThrows(LockException.class, () -> Locks.open(nobody).acquire("k"));
            assertEquals("CONNECTION", error.word());
            assertTrue(error.getMessage().contains("127.0.0.1"), error.getMessage());
        }
    }
}
