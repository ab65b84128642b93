package dlock;

import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The lock is, or may be, held by others. Its word is the server's NOTHELD, NOTOWNER, STALE or WRONGTYPE, or
 *
 * <ul>
 *   <li>EXPIRED: its lease ended before it was renewed; the cause is the last error of the renewals, if any
 *   <li>MAXHOLD: it was held for as long as {@link LockOptions#maxHold} allows
 *   <li>UNCONFIRMED: no reply confirms its release, which goes on in the background
 *   <li>CLOSED: its {@link Locks} were closed
 * </ul>
 */
public final class LostException extends LockException {
    private static final long serialVersionUID = 1;

    /** The reasons that no server tells. */
    private static final Map<String, String> REASONS = Map.of(
            "EXPIRED", "its lease ended before it was renewed",
            "MAXHOLD", "it was held for as long as its maxHold allows",
            "UNCONFIRMED", "no reply confirms its release",
            "CLOSED", "its Locks were closed");

    LostException(String key, String word, @Nullable LockException cause) {
        super(word, "the lock " + key + " is lost, stop the work that depends on it: " + why(word, cause), cause);
    }

    private static String why(String word, @Nullable LockException cause) {
        if (cause == null) {
            return word + " " + REASONS.get(word);
        }
        boolean isTold = cause.word().equals(word);
        return isTold ? String.valueOf(cause.getMessage()) : word + " " + REASONS.get(word) + ": " + cause.getMessage();
    }

    /** The server's error, the last error before the loss, or null. */
    @Override
    public synchronized @Nullable LockException getCause() {
        return (LockException) super.getCause();
    }
}
