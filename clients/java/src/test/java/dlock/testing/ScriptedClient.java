package dlock.testing;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.RedisCodec;
import io.lettuce.core.protocol.RedisCommand;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A client whose server is played by the test. */
public final class ScriptedClient extends RedisClient {
    private final BlockingQueue<Sent> sent = new LinkedBlockingQueue<>();
    /** Of the connections that are open. */
    private final List<RedisConnectionStateListener> listeners = new CopyOnWriteArrayList<>();

    private volatile boolean isRefusing;

    /** A command, its last argument, and the future that its reply completes. */
    public record Sent(String name, byte[] lastWord, CompletableFuture<Object> outcome) {
        public void reply(Object reply) {
            outcome.complete(reply);
        }

        /** Replies with an error of the server. */
        public void fail(String message) {
            outcome.completeExceptionally(new RedisCommandExecutionException(message));
        }
    }

    public ScriptedClient() {
        super(TestServer.RESOURCES, RedisURI.create("redis://127.0.0.1:1"));
    }

    /** The next command that was sent, or null if there is none within this time. */
    public Sent next(long ms) throws InterruptedException {
        return sent.poll(ms, TimeUnit.MILLISECONDS);
    }

    /** The next command that was sent, which has this name. */
    public Sent next(String name) throws InterruptedException {
        Sent next = next(20_000);
        if (next == null || !next.name.equals(name)) {
            throw new AssertionError("sent: " + next + ", not " + name);
        }
        return next;
    }

    /** From now on, connections that are open refuse to send, as after a loss that nobody was told of yet. */
    public void refuse() {
        isRefusing = true;
    }

    /** All connections are lost. */
    public void loseConnections() {
        List<RedisConnectionStateListener> told = List.copyOf(listeners);
        listeners.clear();
        told.forEach(listener -> listener.onRedisDisconnected(null));
    }

    @Override
    @SuppressWarnings("unchecked")
    public <K, V> StatefulRedisConnection<K, V> connect(RedisCodec<K, V> codec) {
        isRefusing = false;
        Class<?>[] kinds = {StatefulRedisConnection.class};
        return (StatefulRedisConnection<K, V>) Proxy.newProxyInstance(
                getClass().getClassLoader(), kinds, (connection, method, arguments) -> switch (method.getName()) {
                    case "isOpen" -> true;
                    case "sync" -> throw new RedisException("NOPERM to introduce itself");
                    case "closeAsync" -> CompletableFuture.completedFuture(null);
                    case "addListener" -> listeners.add((RedisConnectionStateListener) arguments[0]);
                    case "dispatch" -> dispatch((RedisCommand<?, ?, ?>) arguments[0]);
                    default -> null;
                });
    }

    @SuppressWarnings("unchecked")
    private Object dispatch(RedisCommand<?, ?, ?> command) {
        if (isRefusing) {
            throw new RedisException("Connection is closed");
        }
        ByteBuf arguments = Unpooled.buffer();
        command.getArgs().encode(arguments);
        String[] words = arguments.toString(StandardCharsets.UTF_8).split("\r\n");
        byte[] lastWord = words[words.length - 1].getBytes(StandardCharsets.UTF_8);
        sent.add(new Sent(command.getType().toString(), lastWord, (CompletableFuture<Object>) command));
        return command;
    }
}
