package dlock;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * A lock that was acquired. Its lease is renewed until it is released or lost: use it in a try-with-resources block.
 *
 * <p>It belongs to no thread: any thread may use and release it.
 */
public interface Held extends AutoCloseable {
    /** The name of the lock, in UTF-8 if it was acquired by its bytes. */
    String key();

    /** The name of this holder in the server. */
    String owner();

    /** The fencing token: send it with every write. Every later grant of the lock has a larger one. */
    long fence();

    /** Whether the lock is certainly held now, as the clock says. */
    boolean isHeld();

    /** For how much longer the lock is certainly held if it is not renewed: 0 if it is not held. */
    Duration remaining();

    /**
     * Is completed when the lock is lost, at its deadline at the latest, with the reason; never by a release. Its
     * continuations run in a thread of their own.
     */
    CompletableFuture<LostException> lost();

    /** Calls this when the lock is lost, in a thread of its own, at once if it is lost already. */
    default void onLost(Consumer<LostException> action) {
        lost().thenAcceptAsync(action, Loop.BLOCKING);
    }

    /**
     * Extends the lease once, if less than this is left of it. It is repeated until the deadline after errors that may
     * pass.
     *
     * @throws IllegalArgumentException if the lease is not longer than 0
     * @throws LostException if the lock is lost
     * @throws LockException if the server refuses, or the lock was released
     * @throws InterruptedException if this thread is interrupted; the lease may be extended all the same
     */
    void extend(Duration lease) throws InterruptedException;

    /** As {@link #extend}, without waiting. */
    CompletableFuture<Void> extendAsync(Duration lease);

    /**
     * A fenced write: the server runs the command if the lock is held. It is sent once. In a cluster, the lock and the
     * keys of the command need the same hash tag.
     *
     * @param command the name of the command
     * @param args text, numbers or {@code byte[]}
     * @return text, a Long, a Double, a Boolean, a list of these, or null; text is read as UTF-8
     * @throws LostException if the lock is lost: the command has not run
     * @throws LockException if the server refuses, or the lock was released; with the word CONNECTION, the
     *     connection was lost, or the server silent for 3 s, and the command may have run
     * @throws InterruptedException if this thread is interrupted; the command may run all the same
     */
    @Nullable Object query(String command, Object... args) throws InterruptedException;

    /** As {@link #query}, without waiting. */
    CompletableFuture<@Nullable Object> queryAsync(String command, Object... args);

    /**
     * Releases the lock. Waits for at most 10 s, and no longer than the lease, also if this thread is interrupted.
     * Further calls have the same outcome.
     *
     * @throws LostException if the lock was, or may have been, lost before; its word UNCONFIRMED says that there was no
     *     reply, and that the release goes on in the background
     * @throws LockException if the server refuses
     */
    void release();

    /** As {@link #release}, without waiting. */
    CompletableFuture<Void> releaseAsync();

    /**
     * Releases the lock, unless that was tried before.
     *
     * @throws LockException as {@link #release}
     */
    @Override
    void close();
}
