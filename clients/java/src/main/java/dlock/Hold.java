package dlock;

import dlock.Errors.Sent;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/** A request that becomes a lock. It has its own id and owner: repeating it is safe, and nobody else can release it. */
final class Hold extends Acquisition implements Held {
    private static final String PROCESS = hostname() + ":" + ProcessHandle.current().pid() + ":";

    /** In ms: how long a release waits for a server that does not confirm it. */
    private static final long RELEASED_MS = 10_000;

    /** After how long the program is told that it waits. */
    private static final long TOLD_AFTER = Clock.ms(1_000);

    /** Between two renewals after an error. */
    private static final long MIN_PAUSE = Clock.ms(20);

    private static final long MAX_PAUSE = Clock.ms(1_000);

    private final Scope scope;
    private final Router router;
    private final Loop loop;
    private final String key;
    private final LockOptions options;
    /** Is called with whether it was granted, or with an error, until it is taken. */
    private @Nullable Done<Boolean> onOutcome;

    private volatile long fence;
    private final long began = Clock.now();
    private boolean wasQueued;
    private long grantedAt;
    /** Until when the lease lasts for certain, and until when the lock may be held. */
    private volatile long deadline;

    private volatile long maxEnd = Clock.NEVER;
    private boolean isRenewing;
    private Timers.@Nullable Timer timer;
    private @Nullable LostException loss;
    private final CompletableFuture<LostException> lost = new CompletableFuture<>();
    /** The calls that extend the lease. */
    private final List<Done<Void>> extending = new ArrayList<>();

    private @Nullable Release release;
    private volatile boolean isReleased;

    Hold(Scope scope, byte[] rawKey, LockOptions options, boolean waits, Done<Boolean> onOutcome) {
        this(scope, rawKey, options, waits, UUID.randomUUID().toString(), onOutcome);
    }

    private Hold(Scope scope, byte[] rawKey, LockOptions options, boolean waits, String id, Done<Boolean> onOutcome) {
        super(id, rawKey, options.owner() == null ? PROCESS + id : options.owner(), options.lease().toMillis(), waits);
        this.scope = scope;
        this.router = scope.router;
        this.loop = router.loop;
        this.key = Words.text(rawKey);
        this.options = options;
        this.onOutcome = onOutcome;
        scope.holds.add(this);
    }

    @Override
    public String key() {
        return key;
    }

    @Override
    public String owner() {
        return owner;
    }

    @Override
    public long fence() {
        return fence;
    }

    @Override
    public boolean isHeld() {
        return left() > 0;
    }

    @Override
    public Duration remaining() {
        return Duration.ofNanos(left());
    }

    /** In nanoseconds: for how much longer it is certainly held. */
    private long left() {
        return stage == Stage.HELD ? Math.max(0, end() - Clock.now()) : 0;
    }

    private long end() {
        return Math.min(deadline, maxEnd);
    }

    @Override
    public CompletableFuture<LostException> lost() {
        loop.execute(this::expireIfOver);
        return lost.copy();
    }

    @Override
    public void extend(Duration lease) throws InterruptedException {
        Done.<@Nullable Void>await(done -> beginExtend(lease, done));
    }

    @Override
    public CompletableFuture<Void> extendAsync(Duration lease) {
        return Done.future(done -> beginExtend(lease, done));
    }

    private void beginExtend(Duration lease, Done<Void> done) {
        long leaseMs = LockOptions.wholeMs("lease", lease, false).toMillis();
        loop.execute(() -> {
            LockException over = check();
            if (over == null) {
                extend(leaseMs, unlessLost(done));
            } else {
                done.take(null, over);
            }
        });
    }

    @Override
    public @Nullable Object query(String command, Object... args) throws InterruptedException {
        return Done.<@Nullable Object>await(done -> beginQuery(command, args, done));
    }

    @Override
    public CompletableFuture<@Nullable Object> queryAsync(String command, Object... args) {
        return Done.future(done -> beginQuery(command, args, done));
    }

    private void beginQuery(String command, Object[] args, Done<@Nullable Object> done) {
        List<byte[]> guard = new ArrayList<>(Words.of("DLOCK.GUARD", rawKey, owner, fence, command));
        guard.addAll(Words.of(args));
        loop.execute(() -> {
            LockException over = check();
            if (over != null) {
                done.take(null, over);
                return;
            }
            Predicate<LockException> isRepeated = error -> isHeld() && Errors.isAgain(error, Sent.GUARD);
            router.call(rawKey, () -> guard, isRepeated, (reply, error) -> {
                done.take(Words.readable(reply), error == null ? null : lostBy((LockException) error, Sent.GUARD));
            });
        });
    }

    @Override
    public void release() {
        Done.<@Nullable Void>join(this::beginRelease);
    }

    @Override
    public CompletableFuture<Void> releaseAsync() {
        return Done.future(this::beginRelease);
    }

    @Override
    public void close() {
        if (!isReleased) {
            release();
        }
    }

    private void beginRelease(Done<Void> done) {
        isReleased = true;
        loop.execute(() -> {
            if (release == null) {
                release = new Release();
                release.begin();
            }
            release.whenOver(done);
        });
    }

    @Override
    List<byte[]> command(String inbox) {
        List<Object> words = new ArrayList<>(List.of("DLOCK.ACQUIRE", rawKey, owner, leaseMs));
        words.addAll(options.kind());
        words.addAll(waits ? List.of("QUEUE", inbox, 0) : List.of());
        words.addAll(List.of("REQID", id));
        return Words.of(words.toArray());
    }

    @Override
    void queue(long ahead) {
        lastReply = LastReply.QUEUED;
        lastError = null;
        if (!wasQueued) {
            scope.report(new LockEvent.Queued(key, owner, ahead));
            timer = loop.after(TOLD_AFTER, this::tellWaiting);
        }
        wasQueued = true;
    }

    private void tellWaiting() {
        router.holder(rawKey, (holder, error) -> {
            if (stage == Stage.WAITING) {
                scope.reportWaiting(new LockEvent.Waiting(key, owner, Clock.sinceAsDuration(began), holder));
            }
        });
    }

    @Override
    void grant(long fence, long until) {
        this.fence = fence;
        deadline = until;
        grantedAt = Clock.now();
        maxEnd = Clock.after(grantedAt, LockOptions.nanos(options.maxHold()));
        lastError = null;
        stage = Stage.HELD;
        dequeue.accept(null);
        renewWithin(Clock.ms(leaseMs));
        settle(true, null);
    }

    @Override
    void renewWithin(long nanos) {
        long third = Math.min(Clock.ms(leaseMs), deadline - Clock.now()) / 3;
        wakeAfter(Math.min(Math.min(nanos, third), left()));
    }

    @Override
    void refuse() {
        isKnown = false;
        settle(false, null);
    }

    /** It will not be acquired any more, because of this. */
    void fail(Throwable error) {
        settle(null, error);
    }

    private void settle(@Nullable Boolean isGranted, @Nullable Throwable error) {
        Done<Boolean> outcome = onOutcome;
        onOutcome = null;
        if (outcome != null) {
            outcome.take(isGranted, error);
        }
    }

    /** Its Locks are closed. */
    void closeBy(LockException closed) {
        lose("CLOSED", null);
        fail(closed);
        finish();
    }

    /** It is withdrawn, or given back, if the server may have it. */
    void finish() {
        stage = Stage.OVER;
        if (timer != null) {
            timer.cancel();
        }
        dequeue.accept(null);
        scope.holds.remove(this);
        boolean isNew = router.forget(this);
        if (isNew && (isKnown || hasLostCopies)) {
            router.giveBack(granted(), scope.track((nothing, error) -> {}));
        }
    }

    /** Throws why it can no longer be used, if it cannot. */
    void checkHeld() {
        Done.<@Nullable Void>join(done -> loop.execute(() -> done.take(null, check())));
    }

    /** Why it can no longer be used, or null. */
    private @Nullable LockException check() {
        expireIfOver();
        if (isHeld()) {
            return null;
        }
        return loss != null ? loss : new LockException("RELEASED", key + " was released: acquire it again", null);
    }

    private void expireIfOver() {
        if (stage == Stage.HELD && !isHeld()) {
            expire();
        }
    }

    private void expire() {
        if (Clock.now() >= maxEnd) {
            lose("MAXHOLD", null);
            return;
        }
        LockException silence = isRenewing ? Errors.noReply(router.server(), "none to its renewal", null) : null;
        lose("EXPIRED", lastError == null ? silence : lastError);
    }

    private LostException lose(String word, @Nullable LockException cause) {
        LostException reason = new LostException(key, word, cause);
        if (stage == Stage.HELD) {
            loss = reason;
            finish();
            reportEnd(reason);
            List<Done<Void>> told = new ArrayList<>(extending);
            extending.clear();
            told.forEach(done -> done.take(null, reason));
            // Not here: the program may do something with it.
            lost.completeAsync(() -> reason, Loop.BLOCKING);
        }
        return reason;
    }

    /** The loss that this error tells, or the error. */
    private LockException lostBy(LockException error, Sent sent) {
        return Errors.isLost(error, sent) ? lose(error.word(), error) : error;
    }

    private void reportEnd(@Nullable LockException error) {
        Duration held = Clock.sinceAsDuration(grantedAt);
        scope.report(error == null
                ? new LockEvent.Released(key, owner, held)
                : new LockEvent.Lost(key, owner, held, error));
    }

    /** Is called with the loss of the lock, if that comes first. */
    private Done<Void> unlessLost(Done<Void> done) {
        extending.add(done);
        return (nothing, error) -> {
            if (extending.remove(done)) {
                done.take(null, error);
            }
        };
    }

    private void extend(long ms, Done<Void> done) {
        long[] sent = new long[1];
        Supplier<@Nullable List<byte[]>> command = () -> {
            sent[0] = Clock.now();
            return Words.of("DLOCK.EXTEND", rawKey, owner, ms, "FENCE", fence);
        };
        Predicate<LockException> isRepeated = error -> {
            boolean isAgain = Errors.isAgain(error, Sent.EXTEND);
            lastError = isAgain ? error : lastError;
            return isHeld() && isAgain;
        };
        router.call(rawKey, command, isRepeated, (reply, cause) -> {
            if (cause != null) {
                done.take(null, lostBy((LockException) cause, Sent.EXTEND));
                return;
            }
            deadline = Math.max(deadline, Clock.deadline(sent[0], ((Number) reply).longValue()));
            lastError = null;
            done.take(null, null);
        });
    }

    private void wakeAfter(long nanos) {
        // One that waits has another timer.
        if (stage != Stage.HELD) {
            return;
        }
        if (timer != null) {
            timer.cancel();
        }
        timer = loop.after(nanos, this::wake);
    }

    /** Renews the lease, or tells that it is over. */
    private void wake() {
        expireIfOver();
        if (stage != Stage.HELD) {
            return;
        }
        wakeAfter(left());
        // One renewal at a time: it is repeated itself.
        if (isRenewing || !options.isRenewed() || deadline >= maxEnd) {
            return;
        }
        isRenewing = true;
        extend(leaseMs, (nothing, error) -> {
            isRenewing = false;
            if (error == null) {
                renewWithin(Clock.ms(leaseMs));
            } else {
                lastError = (LockException) error;
                long pause = Math.max(MIN_PAUSE, Math.min(left() / 20, MAX_PAUSE));
                wakeAfter(Math.min(pause, left()));
            }
        });
    }

    /** A release, which is tried until the server has confirmed it, but not for long. */
    private final class Release {
        private final CompletableFuture<@Nullable Void> outcome = new CompletableFuture<>();
        private long until;
        private @Nullable LockException last;
        private boolean isUnclear;

        void begin() {
            LockException over = check();
            if (over != null) {
                outcome.completeExceptionally(over);
                return;
            }
            until = Math.min(deadline, Clock.now() + Clock.ms(RELEASED_MS));
            List<byte[]> command = Words.of("DLOCK.RELEASE", rawKey, owner, "FENCE", fence, "REQID", id);
            stage = Stage.OVER;
            Timers.Timer late = loop.after(until - Clock.now(), () -> {
                end(last == null ? Errors.noReply(router.server(), "none to the release", null) : last);
            });
            router.call(rawKey, () -> command, this::isRepeated, scope.track((reply, error) -> {
                late.cancel();
                end((LockException) error);
            }));
        }

        void whenOver(Done<Void> done) {
            outcome.whenComplete(done::take);
        }

        private boolean isRepeated(LockException error) {
            isUnclear |= Errors.isNoReply(error);
            last = error;
            return Clock.now() < until && Errors.isAgain(error, Sent.RELEASE);
        }

        private void end(@Nullable LockException error) {
            if (outcome.isDone()) {
                return;
            }
            LockException told = error == null ? null : told(error);
            isKnown &= told != null;
            reportEnd(told);
            finish();
            Done.complete(outcome, null, told);
        }

        /** What a release fails with after this error. */
        private LockException told(LockException error) {
            // After a lost reply, an earlier copy may have released it.
            if (Errors.isLost(error, Sent.RELEASE) && !isUnclear) {
                return new LostException(key, error.word(), error);
            }
            boolean isUnconfirmed = Errors.isLost(error, Sent.RELEASE) || Errors.isAgain(error, Sent.RELEASE);
            isKnown &= isUnconfirmed;
            return isUnconfirmed ? new LostException(key, "UNCONFIRMED", error) : error;
        }
    }

    private static String hostname() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException unnamed) {
            return "localhost";
        }
    }
}
