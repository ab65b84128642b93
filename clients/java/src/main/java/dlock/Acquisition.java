package dlock;

import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** What a session and the router need of a request that becomes a lock. */
abstract class Acquisition {
    enum Stage {
        WAITING,
        HELD,
        OVER
    }

    enum LastReply {
        NONE,
        QUEUED,
        NO_INBOX
    }

    /** What is needed to give a lock back. */
    record Granted(String id, byte[] rawKey, String owner, long leaseMs, boolean hasLostCopies) {}

    private static final AtomicLong LAST = new AtomicLong();

    /** The older, the smaller. */
    final long number = LAST.incrementAndGet();

    final String id;
    final byte[] rawKey;
    final String owner;
    final long leaseMs;
    /** Whether it waits for its turn. */
    final boolean waits;

    volatile Stage stage = Stage.WAITING;
    /** Whether the server may have it, and whether a copy of it may arrive late. */
    boolean isKnown;
    boolean hasLostCopies;
    /** What the server has replied to the last copy, and the last error if only errors came since. */
    LastReply lastReply = LastReply.NONE;
    @Nullable LockException lastError;
    /** Takes it out of the queue: it is granted or over, or has to be sent again, perhaps because of an error. */
    Consumer<@Nullable LockException> dequeue = error -> {};

    Acquisition(String id, byte[] rawKey, String owner, long leaseMs, boolean waits) {
        this.id = id;
        this.rawKey = rawKey;
        this.owner = owner;
        this.leaseMs = leaseMs;
        this.waits = waits;
    }

    Granted granted() {
        return new Granted(id, rawKey, owner, leaseMs, hasLostCopies);
    }

    /** The command, with this inbox for its answer. */
    abstract List<byte[]> command(String inbox);

    abstract void queue(long ahead);

    abstract void grant(long fence, long until);

    /** Others hold the lock, or wait for it. */
    abstract void refuse();

    /** Renews the lease in this time at the latest. */
    abstract void renewWithin(long nanos);
}
