package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisException;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.protocol.RedisCommand;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** The test plays the server. */
class SessionTest {
    private final RedisClient client = RedisClient.create();
    private final BlockingQueue<RedisCommand<?, ?, ?>> sent = new LinkedBlockingQueue<>();

    @Test
    void request_that_could_not_be_sent_yet_waits_for_older_ones_when_an_inbox_is_opened() throws Exception {
        Router.of(client, Script::new);
        Locks locks = Locks.open(client);
        // One more than may be without a reply.
        List<CompletableFuture<Held>> acquired = IntStream.rangeClosed(0, 1_000)
                .mapToObj(n -> locks.acquireAsync("k" + n, LockOptions.defaults()))
                .toList();
        RedisCommand<?, ?, ?> first = sent.poll(30, TimeUnit.SECONDS);
        for (int n = 1; n < 1_000; n++) {
            assertEquals("DLOCK.ACQUIRE", String.valueOf(sent.poll(30, TimeUnit.SECONDS).getType()));
        }
        ((CompletableFuture<?>) first).completeExceptionally(new RedisCommandExecutionException("NOINBOX none"));
        assertEquals("DLOCK.GRANTS", String.valueOf(sent.poll(30, TimeUnit.SECONDS).getType()));
        assertNull(sent.poll(200, TimeUnit.MILLISECONDS), "it could be queued before older ones");
        acquired.forEach(each -> each.cancel(true));
        client.shutdown();
    }

    /** A client whose connections have what is sent put into the queue. */
    private final class Script implements Client {
        @Override
        public AbstractRedisClient source() {
            return client;
        }

        @Override
        @SuppressWarnings("unchecked")
        public Connection connect(String address) {
            Class<?>[] kinds = {StatefulRedisConnection.class};
            Object own = Proxy.newProxyInstance(getClass().getClassLoader(), kinds, (proxy, method, arguments) ->
                    switch (method.getName()) {
                        case "isOpen" -> true;
                        case "sync" -> throw new RedisException("NOPERM to introduce itself");
                        case "closeAsync" -> CompletableFuture.completedFuture(null);
                        case "dispatch" -> {
                            sent.add((RedisCommand<?, ?, ?>) arguments[0]);
                            yield arguments[0];
                        }
                        default -> null;
                    });
            return new Connection((StatefulRedisConnection<byte[], byte[]>) own);
        }

        @Override
        public boolean isCluster() {
            return false;
        }

        @Override
        public void prepare() {}

        @Override
        public List<String> nodes() {
            return List.of();
        }

        @Override
        public String primary(int slot) {
            return null;
        }
    }
}
