package dlock;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** What happened to a lock, for metrics. Each {@link Acquired} is followed by one {@link Released} or {@link Lost}. */
public sealed interface LockEvent {
    /** The name of the lock. */
    String key();

    /** Who acquires or holds it. */
    String owner();

    /**
     * The lock is taken, and the request waits in the server's queue.
     *
     * @param ahead how many wait before it
     */
    record Queued(String key, String owner, long ahead) implements LockEvent {}

    /**
     * The lock was waited for for a second. It is told once for an acquisition, and at most once in 10 s for a client, and
     * logged as well.
     *
     * @param waited for how long
     * @param holder who holds the lock, or null if the server has not told that
     */
    record Waiting(String key, String owner, Duration waited, @Nullable String holder) implements LockEvent {}

    /**
     * The lock was granted.
     *
     * @param waited how long its acquisition took
     * @param fence its fencing token
     */
    record Acquired(String key, String owner, Duration waited, long fence) implements LockEvent {}

    /**
     * The lock was not granted.
     *
     * @param waited how long that took
     * @param error why, or null if it is taken, and was not waited for
     */
    record NotAcquired(String key, String owner, Duration waited, @Nullable Throwable error) implements LockEvent {}

    /**
     * The lock was released.
     *
     * @param held for how long it was held
     */
    record Released(String key, String owner, Duration held) implements LockEvent {}

    /**
     * The lock was lost, or its release failed.
     *
     * @param held for how long it was held
     * @param error why
     */
    record Lost(String key, String owner, Duration held, LockException error) implements LockEvent {}
}
