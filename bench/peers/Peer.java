import dlock.Locks;
import io.lettuce.core.RedisClient;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.config.Config;

/**
 * Peer LOCK WORKERS SECTION_MS SECONDS PORT: see run.
 *
 * <p>Defaults: those of both libraries, whose leases of 30 s are renewed, and which never give up. The JVM's own heap and
 * collector.
 */
public final class Peer {
    /** Waits for the lock; what it returns releases it, and is null if the library gave up. */
    interface Acquire extends Supplier<Runnable> {}

    static Acquire dlock(int port) {
        var locks = Locks.open(RedisClient.create("redis://127.0.0.1:" + port));
        return () -> {
            try {
                return locks.acquire("peer")::release;
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        };
    }

    static Acquire redisson(int port) {
        var config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
        var locks = Redisson.create(config);
        return () -> {
            var lock = locks.getLock("peer-redisson");
            lock.lock();
            return lock::unlock;
        };
    }

    public static void main(String[] args) throws InterruptedException {
        int workers = Integer.parseInt(args[1]);
        int sectionMs = Integer.parseInt(args[2]);
        int port = Integer.parseInt(args[4]);
        Acquire acquire = args[0].equals("dlock") ? dlock(port) : redisson(port);
        var lines = new ConcurrentLinkedQueue<String>();
        long start = System.nanoTime();
        long end = start + TimeUnit.SECONDS.toNanos(Long.parseLong(args[3]));
        var threads = IntStream.range(0, workers)
                .mapToObj(worker -> new Thread(() -> work(acquire, sectionMs, start, end, lines))).toList();
        threads.forEach(Thread::start);
        for (var thread : threads) {
            thread.join();
        }
        System.out.println(String.join("\n", lines));
        System.exit(0);
    }

    static void work(Acquire acquire, int sectionMs, long start, long end, ConcurrentLinkedQueue<String> lines) {
        for (long began = start; began < end; ) {
            Runnable release = acquire.get();
            long now = System.nanoTime();
            if (release == null) {
                lines.add("gave_up " + (now - start) / 1e6);
                continue;
            }
            lines.add((began - start) / 1e6 + " " + (now - start) / 1e6);
            if (sectionMs > 0) {
                try {
                    Thread.sleep(sectionMs);
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }
            release.run();
            began = System.nanoTime();
        }
    }
}
