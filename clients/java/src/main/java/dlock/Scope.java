package dlock;

import java.lang.System.Logger.Level;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** What all requests of a {@link Locks} share. */
final class Scope {
    private static final System.Logger LOGGER = System.getLogger("dlock");

    final Router router;
    /** Those that wait or are held. */
    final Set<Hold> holds = new HashSet<>();

    private final @Nullable Consumer<LockEvent> onEvent;
    /** When the program was told of the last event. */
    private CompletableFuture<@Nullable Void> told = CompletableFuture.completedFuture(null);
    /** How much is given back now, and what waits for its end. */
    private int givenBack;

    private final List<Runnable> settled = new ArrayList<>();

    Scope(Router router, @Nullable Consumer<LockEvent> onEvent) {
        this.router = router;
        this.onEvent = onEvent;
    }

    /** Tells the program of an event, in their order, without waiting for it. */
    void report(LockEvent event) {
        Consumer<LockEvent> action = onEvent;
        if (action != null) {
            told = told.thenRunAsync(() -> tell(action, event), Loop.BLOCKING);
        }
    }

    /** Tells the program and its log that it waits. */
    void reportWaiting(LockEvent.Waiting event) {
        String holder = event.holder() == null ? "an unknown holder" : event.holder();
        Loop.BLOCKING.execute(() -> LOGGER.log(
                Level.INFO,
                "waiting for lock {0} for {1} ms, which is held by {2}",
                event.key(),
                Long.toString(event.waited().toMillis()),
                holder));
        report(event);
    }

    private static void tell(Consumer<LockEvent> action, LockEvent event) {
        try {
            action.accept(event);
        } catch (Throwable error) {
            // Also an Error: what comes after it is told.
            LOGGER.log(Level.WARNING, "the program has failed to take an event", error);
        }
    }

    /** Something is given back until this is called. */
    <T extends @Nullable Object> Done<T> track(Done<T> done) {
        givenBack++;
        return (value, error) -> {
            givenBack--;
            done.take(value, error);
            if (givenBack == 0) {
                settled.forEach(Runnable::run);
                settled.clear();
            }
        };
    }

    /** Calls this when everything is given back. */
    void whenSettled(Runnable action) {
        if (givenBack == 0) {
            action.run();
        } else {
            settled.add(action);
        }
    }
}
