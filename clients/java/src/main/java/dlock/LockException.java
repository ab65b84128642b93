package dlock;

import org.jspecify.annotations.Nullable;

/** A lock could not be acquired, extended, used or released. */
public class LockException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** What happened, in one word. */
    private final String word;

    LockException(String word, String message, @Nullable Throwable cause) {
        super(message, cause);
        this.word = word;
    }

    /**
     * What happened: the first word of the server's error, or CONNECTION (there was no reply: the command may have run),
     * RELEASED (it was released before), CLOSED (its {@link Locks} were closed, or their RedisClient, or the resources of
     * their RedisClusterClient, were shut down), TIMEOUT, or a word of {@link LostException}. These words are stable.
     */
    public final String word() {
        return word;
    }
}
