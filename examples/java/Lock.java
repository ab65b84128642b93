// A lock of DLOCK for Jedis 8: copy this file and adapt it. Older versions have no RedisClient, but JedisPooled.
//
//   mvn dependency:copy-dependencies -DoutputDirectory=lib     with redis.clients:jedis:8.0.2 in pom.xml
//   java -cp 'lib/*' Lock.java

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;

/** A held lock. */
public final class Lock {
    static final ProtocolCommand ACQUIRE = named("DLOCK.ACQUIRE");
    static final ProtocolCommand RELEASE = named("DLOCK.RELEASE");
    static final ProtocolCommand EXTEND = named("DLOCK.EXTEND");

    /** A client of one server. Each waiting thread takes a connection from its pool: see poolConfig. */
    static UnifiedJedis connectServer(JedisClientConfig timeouts) {
        return RedisClient.builder().hostAndPort("127.0.0.1", 7379).clientConfig(timeouts).build();
    }

    /** A client of the primary that the Sentinels call "locks". */
    static UnifiedJedis connectSentinels(JedisClientConfig timeouts) {
        return RedisSentinelClient.builder().masterName("locks")
                .sentinels(Set.of(new HostAndPort("127.0.0.1", 26379))).clientConfig(timeouts).build();
    }

    /**
     * A client of a cluster, which asks this node for the others. By default it tries five times: renewals without a
     * reply would take too long.
     */
    static UnifiedJedis connectCluster(JedisClientConfig timeouts) {
        return RedisClusterClient.builder().maxAttempts(3)
                .nodes(Set.of(new HostAndPort("127.0.0.1", 7379))).clientConfig(timeouts).build();
    }

    /** This owner does not hold the lock, or cannot be sure that it does. */
    static final class Lost extends RuntimeException {
        Lost(String word, Throwable cause) {
            super(word, cause);
        }
    }

    final UnifiedJedis client;
    final String key;
    final String owner;
    final String request;
    final long fence;
    private volatile long deadlineNanos;

    private Lock(UnifiedJedis client, String key, String owner, String request, long fence, long deadlineNanos) {
        this.client = client;
        this.key = key;
        this.owner = owner;
        this.request = request;
        this.fence = fence;
        this.deadlineNanos = deadlineNanos;
    }

    /** Waits for the lock. Returns null after {@code waitMs}. The blocking read timeout must be longer. */
    static Lock acquire(UnifiedJedis client, String key, long leaseMs, long waitMs) {
        String owner = UUID.randomUUID().toString();
        String request = UUID.randomUUID().toString();
        long sent = System.nanoTime();
        List<?> reply;
        try {
            reply = (List<?>) client.executeCommand(new CommandArguments(ACQUIRE).key(key).add(owner).add(leaseMs)
                    .add("BLOCK").add(waitMs).add("REQID").add(request).blocking());
        } catch (JedisConnectionException e) {
            // The lock may or may not have been granted: undo it.
            client.executeCommand(new CommandArguments(RELEASE).key(key).add(owner).add("REQID").add(request));
            throw e;
        }
        if (reply == null) {
            return null;
        }
        long fence = (Long) reply.get(0);
        long waitedAndLeaseMs = (Long) reply.get(3) + (Long) reply.get(2);
        return new Lock(client, key, owner, request, fence, deadline(sent, waitedAndLeaseMs));
    }

    /** For how many more milliseconds the lock is certainly held. */
    long remainingMs() {
        return Math.max(0, (deadlineNanos - System.nanoTime()) / 1_000_000);
    }

    /** Extends the lease. Call it, from one thread, each time a third of the lease has passed. */
    void extend(long leaseMs) {
        long sent = System.nanoTime();
        long lease = (Long) call(command(EXTEND).add(leaseMs).add("FENCE").add(fence));
        long later = deadline(sent, lease);
        // Compare nanoTime values by their difference.
        if (later - deadlineNanos > 0) {
            deadlineNanos = later;
        }
    }

    /** Releases the lock. Throws Lost if it was lost before, or a retry finds it released. */
    void release() {
        call(command(RELEASE).add("FENCE").add(fence).add("REQID").add(request));
    }

    private CommandArguments command(ProtocolCommand command) {
        return new CommandArguments(command).key(key).add(owner);
    }

    private Object call(CommandArguments arguments) {
        try {
            return client.executeCommand(arguments);
        } catch (JedisDataException e) {
            String word = e.getMessage().split(" ")[0];
            if (List.of("NOTHELD", "NOTOWNER", "STALE").contains(word)) {
                throw new Lost(word, e);
            }
            throw e;
        }
    }

    /** On a clock that stops while the machine is suspended: Java has no other. */
    private static long deadline(long sentNanos, long leaseMs) {
        return sentNanos + leaseMs * 999_000 - 2_000_000;
    }

    private static ProtocolCommand named(String name) {
        byte[] raw = name.getBytes(StandardCharsets.US_ASCII);
        return () -> raw;
    }

    public static void main(String[] args) {
        // The read timeout of renewals is short compared with the lease: two may fail before the third is too late.
        // That of waiting requests is longer than any wait.
        JedisClientConfig timeouts = DefaultJedisClientConfig.builder()
                .socketTimeoutMillis(3_000).blockingSocketTimeoutMillis(15_000).build();
        // Choose one of the three functions, and delete the others.
        try (UnifiedJedis client = connectServer(timeouts)) {
            Lock lock = acquire(client, "orders:42", 30_000, 10_000);
            if (lock == null) {
                throw new IllegalStateException("held by another owner");
            }
            System.out.println("granted " + lock.key + " with fence " + lock.fence);
            System.out.println("valid for " + lock.remainingMs() / 1000 + " s");
            lock.extend(30_000);
            System.out.println("extended");
            lock.release();
            System.out.println("released");
            try {
                lock.release();
            } catch (Lost e) {
                System.out.println("lost: " + e.getMessage());
            }
        }
    }
}
