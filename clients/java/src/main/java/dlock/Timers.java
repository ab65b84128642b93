package dlock;

import java.util.Comparator;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * What a {@link Loop} runs later, in the order of its times. Most of it is cancelled long before. So the thread is woken
 * only for what is earlier than all the rest, and not for what is cancelled: few acquisitions wake it.
 */
final class Timers {
    private static final ScheduledThreadPoolExecutor THREAD =
            new ScheduledThreadPoolExecutor(1, Loop.daemons("dlock-timer"));

    static {
        THREAD.setRemoveOnCancelPolicy(true);
        THREAD.setKeepAliveTime(Loop.IDLE_SECONDS, TimeUnit.SECONDS);
        THREAD.allowCoreThreadTimeOut(true);
    }

    private final Loop loop;
    private final TreeSet<Timer> timers =
            new TreeSet<>(Comparator.<Timer>comparingLong(timer -> timer.at).thenComparingLong(timer -> timer.number));
    private long last;
    /** When the thread is woken next: for the first timer, or earlier, for one that was cancelled. */
    private long wakeAt = Clock.NEVER;

    private @Nullable Future<?> waking;

    Timers(Loop loop) {
        this.loop = loop;
    }

    /** Something that is run once, unless it is cancelled before. */
    final class Timer {
        private final long at;
        private final long number = ++last;
        private final Runnable task;

        private Timer(long at, Runnable task) {
            this.at = at;
            this.task = task;
        }

        void cancel() {
            timers.remove(this);
        }
    }

    Timer after(long nanos, Runnable task) {
        Timer timer = new Timer(Clock.after(Clock.now(), nanos), task);
        timers.add(timer);
        wakeInTime();
        return timer;
    }

    private void wakeInTime() {
        if (timers.isEmpty() || timers.first().at >= wakeAt) {
            return;
        }
        if (waking != null) {
            waking.cancel(false);
        }
        // Known only when it is sure: without a thread today, the next timer has to try again.
        wakeAt = Clock.NEVER;
        long first = timers.first().at;
        waking = THREAD.schedule(() -> loop.execute(this::wake), first - Clock.now(), TimeUnit.NANOSECONDS);
        wakeAt = first;
    }

    private void wake() {
        long now = Clock.now();
        while (!timers.isEmpty() && timers.first().at <= now) {
            // Not here: it may fail.
            loop.execute(timers.pollFirst().task);
        }
        wakeAt = Clock.NEVER;
        wakeInTime();
    }
}
