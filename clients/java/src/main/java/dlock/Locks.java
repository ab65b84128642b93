package dlock;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.cluster.RedisClusterClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Locks on one server, on the primary that Sentinels name, or on the primaries of a cluster.
 *
 * <p>However many threads wait, there are two connections to each primary, which all {@code Locks} on one client share.
 * They are opened for the first lock, and closed when nothing has used them for 5 s. A {@code Locks} costs nothing, and
 * need not be closed.
 */
public final class Locks implements AutoCloseable {
    /** How long a caller who does not wait for a lock waits for a server that does not reply. */
    private static final Duration PATIENCE = Duration.ofMillis(3 * Session.TIMEOUT_MS);

    private final Scope scope;
    private final Loop loop;
    /** What threads have locked by views. */
    private final Map<LockView.Holder, LockView.Holding> holdings = new ConcurrentHashMap<>();

    private volatile boolean isClosed;

    private Locks(Router router, @Nullable Consumer<LockEvent> onEvent) {
        this.scope = new Scope(router, onEvent);
        this.loop = router.loop;
    }

    /**
     * Locks on the servers of this client.
     *
     * @param client a {@link RedisClient}, whose RedisURI may name Sentinels, or a {@link RedisClusterClient}. It stays
     *     the program's: closing the locks does not close it
     * @throws IllegalArgumentException if it is another client
     */
    public static Locks open(AbstractRedisClient client) {
        return new Locks(routerOf(client), null);
    }

    /**
     * As {@link #open(AbstractRedisClient)}, for metrics.
     *
     * @param onEvent is called with each event of these locks, one after the other, in a thread of its own
     */
    public static Locks open(AbstractRedisClient client, Consumer<LockEvent> onEvent) {
        return new Locks(routerOf(client), onEvent);
    }

    private static Router routerOf(AbstractRedisClient client) {
        if (client instanceof RedisClusterClient cluster) {
            return Router.of(client, () -> new Client.OfCluster(cluster));
        }
        if (client instanceof RedisClient single) {
            return Router.of(client, () -> new Client.OfServer(single));
        }
        throw new IllegalArgumentException("a client is a RedisClient or a RedisClusterClient, not " + client);
    }

    /** Waits for a lock with {@link LockOptions#defaults()}: see {@link #acquire(String, LockOptions)}. */
    public Held acquire(String key) throws InterruptedException {
        return acquire(key, LockOptions.defaults());
    }

    /**
     * Waits for a lock in the server's queue, in order of arrival.
     *
     * @param key the name of the lock, sent in UTF-8
     * @throws IllegalArgumentException if the key is empty, or has half of a surrogate pair
     * @throws AcquireTimeoutException if it was not granted within the timeout of the options
     * @throws LockException if the server refuses, or cannot be reached by the first request; with the word EXPIRED, the
     *     lease is shorter than the way to the server
     * @throws InterruptedException if this thread is interrupted: then nothing is held, and nothing waits
     */
    public Held acquire(String key, LockOptions options) throws InterruptedException {
        return acquire(Words.text(key), options);
    }

    /** As {@link #acquire(String, LockOptions)}, with the bytes of the name, which need not be text. */
    public Held acquire(byte[] key, LockOptions options) throws InterruptedException {
        checkInterrupt();
        return await(begin(key, options, false));
    }

    /**
     * As {@link #acquire(String, LockOptions)}, without waiting here. To cancel the future withdraws the request.
     *
     * @return completed with what the other throws, unless that is an IllegalArgumentException, which this throws
     */
    public CompletableFuture<Held> acquireAsync(String key, LockOptions options) {
        return acquireAsync(Words.text(key), options);
    }

    /** As {@link #acquireAsync(String, LockOptions)}, with the bytes of the name. */
    public CompletableFuture<Held> acquireAsync(byte[] key, LockOptions options) {
        return begin(key, options, true);
    }

    /** Does not wait: see {@link #tryAcquire(String, LockOptions)}. */
    public @Nullable Held tryAcquire(String key) throws InterruptedException {
        return tryAcquire(key, LockOptions.defaults());
    }

    /**
     * Acquires a lock if nobody holds or awaits it. If the server does not reply, that is repeated for 9 s.
     *
     * @param options without a timeout
     * @return null if others hold the lock or wait for it
     * @throws IllegalArgumentException as {@link #acquire(String, LockOptions)}, or if the options have a timeout
     * @throws LockException as {@link #acquire(String, LockOptions)}
     * @throws InterruptedException if this thread is interrupted: then nothing is held
     */
    public @Nullable Held tryAcquire(String key, LockOptions options) throws InterruptedException {
        return tryAcquire(Words.text(key), options);
    }

    /** As {@link #tryAcquire(String, LockOptions)}, with the bytes of the name. */
    public @Nullable Held tryAcquire(byte[] key, LockOptions options) throws InterruptedException {
        checkInterrupt();
        return await(beginTry(key, options, false));
    }

    /**
     * As {@link #tryAcquire(String, LockOptions)}, without waiting here.
     *
     * @return completed with null or an error as {@link #acquireAsync(String, LockOptions)}
     */
    public CompletableFuture<@Nullable Held> tryAcquireAsync(String key, LockOptions options) {
        return tryAcquireAsync(Words.text(key), options);
    }

    /** As {@link #tryAcquireAsync(String, LockOptions)}, with the bytes of the name. */
    public CompletableFuture<@Nullable Held> tryAcquireAsync(byte[] key, LockOptions options) {
        return beginTry(key, options, true);
    }

    /** The lock as {@link java.util.concurrent.locks.Lock}, with {@link LockOptions#defaults()}. */
    public LockView asLock(String key) {
        return asLock(key, LockOptions.defaults());
    }

    /**
     * The lock as {@link java.util.concurrent.locks.Lock}, for code that was written for one process.
     *
     * @param options without a timeout: {@link LockView#tryLock(long, TimeUnit)} has one
     * @throws IllegalArgumentException if the key is empty, or the options have a timeout
     */
    public LockView asLock(String key, LockOptions options) {
        Words.key(Words.text(key));
        if (options.timeout() != null) {
            throw new IllegalArgumentException("the options of a view have no timeout: tryLock has one");
        }
        return new LockView(this, key, options, holdings);
    }

    /** As {@link #acquire(String, LockOptions)}, but no interrupt ends the waiting. */
    Held acquireUninterruptibly(String key, LockOptions options) {
        return Done.join(begin(Words.text(key), options, false));
    }

    /** As {@link #tryAcquire(String, LockOptions)}, but no interrupt ends the waiting. */
    @Nullable Held tryAcquireUninterruptibly(String key, LockOptions options) {
        return Done.join(beginTry(Words.text(key), options, false));
    }

    private CompletableFuture<Held> begin(byte[] key, LockOptions options, boolean isAsync) {
        if (!options.doesNotWait()) {
            return begin(key, options, true, null, isAsync);
        }
        LockException taken = new AcquireTimeoutException(Words.text(key), Duration.ZERO, null);
        return begin(key, options.timeout(PATIENCE), false, taken, isAsync);
    }

    private CompletableFuture<@Nullable Held> beginTry(byte[] key, LockOptions options, boolean isAsync) {
        if (options.timeout() != null) {
            throw new IllegalArgumentException("tryAcquire does not wait: acquire has a timeout");
        }
        return begin(key, options.timeout(PATIENCE), false, null, isAsync);
    }

    /**
     * Begins an acquisition.
     *
     * @param taken what it fails with if the lock is taken, or null if that is no failure
     * @param isAsync whether the program may have continuations, which must not run in the loop
     */
    private CompletableFuture<@Nullable Held> begin(
            byte[] key, LockOptions options, boolean waits, @Nullable LockException taken, boolean isAsync) {
        byte[] rawKey = Words.key(key);
        CompletableFuture<@Nullable Held> answer = new CompletableFuture<>();
        Executor teller = isAsync ? Loop.TELLING : Runnable::run;
        Done<@Nullable Hold> done = (held, error) -> teller.execute(() -> {
            Throwable failure = error == null && held == null ? taken : error;
            boolean isTold = Done.complete(answer, held, failure);
            if (!isTold && held != null) {
                // It was cancelled before.
                held.releaseAsync();
            }
        });
        loop.execute(() -> {
            if (isClosed) {
                done.take(null, Errors.closed());
                return;
            }
            Acquire acquire = new Acquire(scope, rawKey, options, waits, done);
            answer.whenComplete((held, error) -> {
                // By cancel, orTimeout, ...: if the acquisition itself has ended it, this changes nothing.
                if (held == null) {
                    Throwable reason = error == null ? new CancellationException() : error;
                    loop.execute(() -> acquire.cancel(reason));
                }
            });
            acquire.begin();
        });
        return answer;
    }

    private static void checkInterrupt() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
    }

    /** Waits for an acquisition. After an interrupt, nothing is left of it. */
    private static <T extends @Nullable Held> T await(CompletableFuture<T> answer) throws InterruptedException {
        try {
            return Done.await(answer);
        } catch (InterruptedException interrupt) {
            if (!answer.cancel(false)) {
                answer.thenAccept(held -> {
                    if (held != null) {
                        held.releaseAsync();
                    }
                });
            }
            throw interrupt;
        }
    }

    /**
     * Gives up all requests and locks of this object, waits for up to 3 s until the server has confirmed that, and closes
     * the connections if nothing else uses them.
     */
    @Override
    public void close() {
        CompletableFuture<@Nullable Void> settled = new CompletableFuture<>();
        isClosed = true;
        loop.execute(() -> {
            new ArrayList<>(scope.holds).forEach(hold -> hold.closeBy(Errors.closed()));
            scope.whenSettled(() -> settled.complete(null));
        });
        settled.completeOnTimeout(null, Session.TIMEOUT_MS, TimeUnit.MILLISECONDS).join();
        loop.execute(scope.router::rest);
    }
}
