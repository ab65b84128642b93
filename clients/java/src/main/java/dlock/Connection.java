package dlock;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisConnectionStateAdapter;
import io.lettuce.core.RedisException;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.time.Duration;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** An own connection of Lettuce. Once it is lost, it is closed: it neither reconnects nor repeats commands. */
final class Connection {
    /** Its name in CLIENT LIST, unless the program's client has one. */
    private static final String NAME = "dlock";

    private static final Duration TIMEOUT = Duration.ofSeconds(3);
    private static final Pattern INFO = Pattern.compile("laddr=(\\S*).* name=(\\S*)");

    private final StatefulRedisConnection<byte[], byte[]> own;
    private volatile Runnable onEnd = () -> {};
    private volatile boolean isClosedHere;

    Connection(StatefulRedisConnection<byte[], byte[]> own) {
        this.own = own;
        own.addListener(new RedisConnectionStateAdapter() {
            @Override
            public void onRedisDisconnected(RedisChannelHandler<?, ?> lost) {
                // Before Lettuce connects again: what has no reply is not sent again.
                close();
                onEnd.run();
            }
        });
    }

    /** Names the connection. Returns the address of its server, if that tells it. May block for some seconds. */
    @Nullable String introduce() {
        try {
            own.setTimeout(TIMEOUT);
            Matcher info = INFO.matcher(own.sync().clientInfo());
            if (!info.find()) {
                return null;
            }
            if (info.group(2).isEmpty()) {
                own.sync().clientSetname(Words.text(NAME));
            }
            return info.group(1);
        } catch (RedisException notAllowed) {
            return null;
        } finally {
            // What waits for replies has its own limit.
            own.setTimeout(Duration.ZERO);
        }
    }

    /** The action is called when the connection is lost or closed, at once if it is already. */
    void onEnd(Runnable action) {
        onEnd = action;
        if (!own.isOpen()) {
            action.run();
        }
    }

    void send(List<byte[]> words, Done<@Nullable Object> done) {
        CommandArgs<byte[], byte[]> args = new CommandArgs<>(ByteArrayCodec.INSTANCE);
        words.subList(1, words.size()).forEach(args::add);
        var command = new AsyncCommand<>(new Command<>(new Name(words.get(0)), new Reply(), args));
        command.whenComplete(done::take);
        try {
            own.dispatch(command);
        } catch (RuntimeException refused) {
            // The connection was lost, which this thread has not been told yet.
            command.completeExceptionally(refused);
        }
    }

    void close() {
        // Lettuce warns of a second time.
        if (!isClosed()) {
            isClosedHere = true;
            own.closeAsync();
        }
    }

    /** Whether the program has shut its client down, which has closed this connection. */
    boolean isShutDown() {
        return isClosed() && !isClosedHere;
    }

    private boolean isClosed() {
        return own instanceof RedisChannelHandler<?, ?> handler && handler.isClosed();
    }

    /** The name of a command. */
    private record Name(byte[] getBytes) implements ProtocolKeyword {
        @Override
        public String toString() {
            return Words.text(getBytes);
        }
    }
}
