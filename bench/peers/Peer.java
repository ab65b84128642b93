import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.redisson.Redisson;
import org.redisson.config.Config;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.UnifiedJedis;

/** Peer LOCK PORT WORKERS SECTION_MS SECONDS: see run. */
public final class Peer {
    /** Waits for the lock; what it returns releases it. */
    interface Acquire extends Supplier<Runnable> {}

    /** The program of docs/languages.md. */
    static Acquire dlock(UnifiedJedis client) {
        return () -> Lock.acquire(client, "peer", 30_000, 30_000)::release;
    }

    static Acquire redisson(String port) {
        var config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
        var locks = Redisson.create(config);
        return () -> {
            var lock = locks.getLock("peer-redisson");
            lock.lock(30, TimeUnit.SECONDS);
            return lock::unlock;
        };
    }

    public static void main(String[] args) throws InterruptedException {
        int workers = Integer.parseInt(args[2]);
        int sectionMs = Integer.parseInt(args[3]);
        var timeouts = DefaultJedisClientConfig.builder()
                .socketTimeoutMillis(30_000).blockingSocketTimeoutMillis(60_000).build();
        var pool = new ConnectionPoolConfig();
        pool.setMaxTotal(workers + 1);
        pool.setMaxIdle(workers + 1);
        var client = RedisClient.builder().hostAndPort("127.0.0.1", Integer.parseInt(args[1]))
                .clientConfig(timeouts).poolConfig(pool).build();
        Acquire acquire = args[0].equals("dlock") ? dlock(client) : redisson(args[1]);
        var all = new ConcurrentLinkedQueue<Long>();
        // After the warm-up.
        long counted = System.nanoTime() + 1_000_000_000;
        long end = counted + Long.parseLong(args[4]) * 1_000_000_000;
        List<Thread> threads = Stream.generate(() -> new Thread(() -> work(acquire, sectionMs, counted, end, all)))
                .limit(workers).toList();
        threads.forEach(Thread::start);
        for (var thread : threads) {
            thread.join();
        }
        double elapsed = (System.nanoTime() - counted) / 1e9;
        var waits = all.stream().sorted().toList();
        String connections = client.info("clients").replaceAll("(?s).*connected_clients:(\\d+).*", "$1");
        System.out.printf("{\"per_s\":%.0f,\"p99_ms\":%.1f,\"longest_ms\":%.1f,\"failed\":0,\"connections\":%s}%n",
                waits.size() / elapsed, waits.get(waits.size() * 99 / 100) / 1e6,
                waits.get(waits.size() - 1) / 1e6, connections);
        System.exit(0);
    }

    static void work(Acquire acquire, int sectionMs, long counted, long end, ConcurrentLinkedQueue<Long> waits) {
        for (long began = System.nanoTime(); began < end; began = System.nanoTime()) {
            Runnable release = acquire.get();
            if (began >= counted) {
                waits.add(System.nanoTime() - began);
            }
            try {
                Thread.sleep(sectionMs);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            release.run();
        }
    }
}
