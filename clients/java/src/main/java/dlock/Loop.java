package dlock;

import java.lang.System.Logger.Level;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Runs one task at a time, in the thread that brings it, or in the one that is running another. So all that the tasks
 * of a loop share needs no lock, and nobody waits for a thread to wake up. Tasks never block, and never call what
 * belongs to the program.
 *
 * <p>A virtual thread runs none. At a lock inside the JDK, it may lose the thread that carries it to another one, which
 * keeps that for as long as it computes: until then, no lease would be renewed.
 */
final class Loop implements Executor {
    private static final System.Logger LOGGER = System.getLogger("dlock");
    /** After which threads without work end. */
    static final long IDLE_SECONDS = 10;

    /** How many continuations run at once. One that waits for a lock or a future does not count. */
    private static final int MAX_TELLING = 32;

    /** The group of all virtual threads, from JDK 21 on. */
    private static final String VIRTUAL_THREADS = "VirtualThreads";

    /** For what may block: opening a connection, and telling the program of a loss or an event. */
    static final Executor BLOCKING = new ThreadPoolExecutor(
            0, Integer.MAX_VALUE, IDLE_SECONDS, TimeUnit.SECONDS, new SynchronousQueue<>(), daemons("dlock"));

    /**
     * For the futures of the program, whose continuations may block, too. The JDK's own pool has no more threads than the
     * machine has cores; before JDK 25, it starts a thread for each task if these are two.
     */
    static final Executor TELLING = new ForkJoinPool(
            MAX_TELLING,
            ForkJoinPool.defaultForkJoinWorkerThreadFactory,
            null,
            true,
            0,
            Integer.MAX_VALUE,
            MAX_TELLING,
            null,
            IDLE_SECONDS,
            TimeUnit.SECONDS);

    private final Queue<Runnable> tasks = new ConcurrentLinkedQueue<>();
    private final AtomicInteger waiting = new AtomicInteger();
    private final Timers timers = new Timers(this);

    @Override
    public void execute(Runnable task) {
        tasks.add(task);
        if (waiting.getAndIncrement() > 0) {
            return;
        }
        boolean isVirtual = Thread.currentThread().getThreadGroup().getName().equals(VIRTUAL_THREADS);
        if (!isVirtual || !handOver()) {
            runAll();
        }
    }

    private boolean handOver() {
        try {
            BLOCKING.execute(this::runAll);
            return true;
        } catch (OutOfMemoryError noThread) {
            return false;
        }
    }

    private void runAll() {
        do {
            run(tasks.remove());
        } while (waiting.decrementAndGet() > 0);
    }

    /** Runs a task after this time, about as late as the timer of the machine is. Only tasks of this loop call it. */
    Timers.Timer after(long nanos, Runnable task) {
        return timers.after(nanos, task);
    }

    private static void run(Runnable task) {
        try {
            task.run();
        } catch (Throwable error) {
            report(error);
        }
    }

    /** The loop goes on, whatever happens here. */
    private static void report(Throwable error) {
        try {
            // Not here: what the program logs to may block.
            BLOCKING.execute(() -> LOGGER.log(Level.ERROR, "a task of dlock has failed", error));
        } catch (Throwable noThread) {
            // Nobody can be told.
        }
    }

    static ThreadFactory daemons(String name) {
        return task -> {
            Thread thread = new Thread(task, name);
            thread.setDaemon(true);
            return thread;
        };
    }
}
