package dlock;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** The lock was not granted in time. The cause says why; without one, others hold or await it, as the server said. */
public final class AcquireTimeoutException extends LockException {
    private static final long serialVersionUID = 1;

    AcquireTimeoutException(String key, Duration timeout, @Nullable LockException cause) {
        super("TIMEOUT", key + ": not granted within " + timeout.toMillis() + " ms: " + why(cause), cause);
    }

    private static @Nullable String why(@Nullable LockException cause) {
        return cause == null ? "others hold or await it" : cause.getMessage();
    }

    /** Why it was not granted, or null: others hold the lock or wait for it. */
    @Override
    public synchronized @Nullable LockException getCause() {
        return (LockException) super.getCause();
    }
}
