package dlock;

import org.jspecify.annotations.Nullable;

/** One call that acquires a lock. */
final class Acquire {
    /** A lease that is shorter than the way to the server never arrives in time: so many grants may be too late. */
    private static final int MAX_LATE_GRANTS = 10;

    private final Scope scope;
    private final byte[] rawKey;
    private final LockOptions options;
    private final boolean waits;
    private final Done<@Nullable Hold> done;
    private final long began = Clock.now();
    private Hold hold;
    private int grants;
    private Timers.@Nullable Timer timer;

    /** {@code done} gets null if others hold or await the lock. */
    Acquire(Scope scope, byte[] rawKey, LockOptions options, boolean waits, Done<@Nullable Hold> done) {
        this.scope = scope;
        this.rawKey = rawKey;
        this.options = options;
        this.waits = waits;
        this.done = done;
        this.hold = new Hold(scope, rawKey, options, waits, this::onOutcome);
    }

    void begin() {
        long timeout = LockOptions.nanos(options.timeout());
        if (timeout != Clock.NEVER) {
            timer = scope.router.loop.after(timeout, this::onTime);
        }
        ask();
    }

    /** Gives it up, unless it has an outcome. */
    void cancel(Throwable reason) {
        hold.fail(reason);
    }

    private void ask() {
        Hold asked = hold;
        scope.router.submit(asked, (nothing, error) -> {
            if (error != null) {
                asked.fail(error);
            }
        });
    }

    private void onTime() {
        scope.router.explain(hold, (cause, none) -> {
            hold.fail(new AcquireTimeoutException(hold.key(), options.timeout(), cause));
        });
    }

    private void onOutcome(@Nullable Boolean isGranted, @Nullable Throwable error) {
        if (error != null) {
            end(null, error);
        } else if (hold.isHeld()) {
            end(hold, null);
        } else if (!isGranted) {
            end(null, null);
        } else if (++grants < MAX_LATE_GRANTS) {
            // The lease had expired when the grant arrived: it is asked for anew.
            hold.finish();
            hold = new Hold(scope, rawKey, options, waits, this::onOutcome);
            ask();
        } else {
            String why = "EXPIRED %d grants came after the end of their lease of %d ms: take a longer one"
                    .formatted(MAX_LATE_GRANTS, hold.leaseMs);
            end(null, new LostException(hold.key(), "EXPIRED", new LockException("EXPIRED", why, null)));
        }
    }

    private void end(@Nullable Hold held, @Nullable Throwable error) {
        if (timer != null) {
            timer.cancel();
        }
        var waited = Clock.sinceAsDuration(began);
        if (held == null) {
            hold.finish();
            scope.report(new LockEvent.NotAcquired(hold.key(), hold.owner(), waited, error));
        } else {
            scope.report(new LockEvent.Acquired(held.key(), held.owner(), waited, held.fence()));
        }
        done.take(held, error);
    }
}
