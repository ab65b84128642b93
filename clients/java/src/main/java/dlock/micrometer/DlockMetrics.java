package dlock.micrometer;

import dlock.LockEvent;
import dlock.LockException;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Meters of locks: {@code Locks.open(client, new DlockMetrics(registry))}. They have no tag with the key, of which there
 * may be any number.
 *
 * <ul>
 *   <li>{@code dlock.wait}: a timer of acquisitions. Its tag {@code outcome} is {@code acquired}, {@code taken}, or the
 *       word of the error, such as {@code TIMEOUT}
 *   <li>{@code dlock.hold}: a timer of holds. Its tag {@code outcome} is {@code released} or {@code lost}
 *   <li>{@code dlock.lost}: a counter of lost locks. Its tag {@code reason} is the word of the loss
 * </ul>
 */
public final class DlockMetrics implements Consumer<LockEvent> {
    private final MeterRegistry registry;

    /** Meters in this registry. */
    public DlockMetrics(MeterRegistry registry) {
        this.registry = registry;
    }

    @Override
    public void accept(LockEvent event) {
        if (event instanceof LockEvent.Acquired acquired) {
            timer("dlock.wait", "acquired").record(acquired.waited());
        } else if (event instanceof LockEvent.NotAcquired refused) {
            timer("dlock.wait", outcome(refused.error())).record(refused.waited());
        } else if (event instanceof LockEvent.Released released) {
            timer("dlock.hold", "released").record(released.held());
        } else if (event instanceof LockEvent.Lost lost) {
            timer("dlock.hold", "lost").record(lost.held());
            registry.counter("dlock.lost", "reason", lost.error().word()).increment();
        }
    }

    private static String outcome(@Nullable Throwable error) {
        if (error == null) {
            return "taken";
        }
        return error instanceof LockException refusal ? refusal.word() : "cancelled";
    }

    private Timer timer(String name, String outcome) {
        return registry.timer(name, "outcome", outcome);
    }
}
