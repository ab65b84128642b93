package dlock;

import static dlock.testing.TestServer.until;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dlock.testing.VirtualThreads;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;

class LoopTest {
    private final Loop loop = new Loop();
    private final List<Integer> ran = new CopyOnWriteArrayList<>();

    @Test
    void task_of_a_virtual_thread_runs_in_a_thread_that_the_program_cannot_keep_busy() throws Exception {
        CompletableFuture<String> ranIn = new CompletableFuture<>();
        VirtualThreads.executor().execute(() ->
                loop.execute(() -> ranIn.complete(Thread.currentThread().getName())));
        assertEquals("dlock", ranIn.get());
    }

    @Test
    void task_that_fails_keeps_no_other_from_running() {
        loop.execute(() -> {
            throw new AssertionError("the test wants it");
        });
        loop.execute(() -> ran.add(1));
        assertEquals(List.of(1), ran);
    }

    private Timers.Timer after(long ms, int number) {
        return loop.after(Clock.ms(ms), () -> ran.add(number));
    }

    @Test
    void timers_run_in_the_order_of_their_times() {
        loop.execute(() -> {
            after(60, 3);
            after(20, 1);
            after(40, 2);
            after(60, 4);
        });
        until("all have run", () -> ran.size() == 4);
        assertEquals(List.of(1, 2, 3, 4), ran);
    }

    @Test
    void timer_that_is_earlier_than_all_others_does_not_wait_for_them() {
        loop.execute(() -> {
            after(3_600_000, 2);
            after(20, 1);
        });
        until("the earlier one has run", () -> ran.equals(List.of(1)));
    }

    @Test
    void cancelled_timer_does_not_run_and_stops_no_other() {
        loop.execute(() -> {
            Timers.Timer cancelled = after(20, 1);
            after(40, 2);
            cancelled.cancel();
        });
        until("the other has run", () -> !ran.isEmpty());
        assertEquals(List.of(2), ran);
    }
}
