package dlock;

import dlock.Acquisition.Granted;
import dlock.Acquisition.LastReply;
import dlock.Acquisition.Stage;
import dlock.Errors.Sent;
import io.lettuce.core.cluster.SlotHash;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/** All requests on one client of the program, and the way to their servers. */
final class Router implements Session.Table {
    /** In ms: how long it is tried to give something back, at least: a server that hangs may grant it late. */
    private static final long GIVEN_BACK_MS = 30_000;
    /** In ms: copies of a request that a lost connection may still deliver arrive within this time. */
    private static final long LATE_COPIES_MS = 500;
    /** In ms: after a lost connection, all leases are renewed within this time. */
    private static final long RENEWED_MS = 500;
    /** In ms: thousands of holds may be renewed at once while a server is loading. */
    private static final long MAX_PAUSE_MS = 400;
    /** In ms: how late a timeout may be because its cause is asked for. */
    private static final long ASKED_MS = 200;
    /** How often the program is told that it waits. */
    private static final long TOLD_EVERY = Clock.ms(10_000);
    /** In ms: for how long connections that nothing uses stay open. */
    private static final long IDLE_MS = 5_000;

    /** By the client of the program. */
    private static final Map<Object, WeakReference<Router>> ROUTERS = new WeakHashMap<>();

    private static final ReentrantLock ROUTERS_LOCK = new ReentrantLock();

    final Loop loop = new Loop();
    private final Client client;
    /** Those that wait and those that are held, by id, the oldest first. */
    private final Map<String, Acquisition> requests = new LinkedHashMap<>();

    private final Map<String, Session> sessions = new HashMap<>();
    /** Where slots are that the client does not know of yet. */
    private final Map<Integer, String> moved = new HashMap<>();

    private long tellsAt;
    private boolean isPrepared;
    private int calls;
    private long lastCall;
    private boolean isResting;

    private Router(Client client) {
        this.client = client;
        this.isPrepared = !client.isCluster();
    }

    /** The same for all Locks on a client: a program may make new ones all the time, and close none. */
    static Router of(Object source, Supplier<Client> client) {
        ROUTERS_LOCK.lock();
        try {
            WeakReference<Router> known = ROUTERS.get(source);
            Router router = known == null ? null : known.get();
            if (router == null) {
                router = new Router(client.get());
                ROUTERS.put(source, new WeakReference<>(router));
            }
            return router;
        } finally {
            ROUTERS_LOCK.unlock();
        }
    }

    /** What messages call the server or cluster. */
    String server() {
        if (client.isCluster()) {
            return "the cluster";
        }
        Session session = sessions.get("");
        return session == null ? "the server" : session.link.server();
    }

    /** Sends a request, and sends it again, until it has an outcome. */
    void submit(Acquisition request, Done<Void> done) {
        requests.put(request.id, request);
        Predicate<LockException> isRepeated = error -> {
            request.lastError = error;
            request.hasLostCopies |= Errors.isNoReply(error) && request.isKnown;
            // The first request does not wait for a server that is not there, but for one that is loading.
            boolean hasConnected = sessions.values().stream().anyMatch(session -> session.link.hasOpened());
            boolean isThere = hasConnected || !Errors.isNoReply(error);
            Sent sent = request.waits ? Sent.WAIT : Sent.TRY;
            return isThere && request.stage == Stage.WAITING && Errors.isAgain(error, sent);
        };
        new Repeated<Void>(request.rawKey, (session, each) -> ask(session, request, each), isRepeated, done).run();
    }

    private void ask(Session session, Acquisition request, Done<Void> done) {
        session.ask(request, (nothing, error) -> {
            if (error == null && request.stage == Stage.WAITING) {
                // Not here: answers come in the middle of others.
                loop.execute(() -> {
                    if (request.stage == Stage.WAITING) {
                        ask(session, request, done);
                    } else {
                        done.take(null, null);
                    }
                });
            } else {
                done.take(null, error);
            }
        });
    }

    /** Sends a command, and sends it again after an error for as long as this is wanted. */
    void call(
            byte[] rawKey,
            Supplier<@Nullable List<byte[]>> command,
            Predicate<LockException> isRepeated,
            Done<@Nullable Object> done) {
        new Repeated<@Nullable Object>(rawKey, (session, each) -> session.link.send(command, each), isRepeated, done)
                .run();
    }

    /**
     * Asks who holds a lock that is waited for: null if the server does not say that. Seldom, so that a crowd costs the
     * server nothing: otherwise {@code done} is not called.
     */
    void holder(byte[] rawKey, Done<@Nullable String> done) {
        if (Clock.now() < tellsAt) {
            return;
        }
        tellsAt = Clock.now() + TOLD_EVERY;
        call(rawKey, () -> Words.of("DLOCK.OWNER", rawKey), error -> false, (owner, error) -> {
            done.take((String) Words.readable(owner), null);
        });
    }

    /** Why a request is not granted yet. Null: others hold the lock, or wait for it, as the server says. */
    void explain(Acquisition request, Done<@Nullable LockException> done) {
        if (request.lastError != null) {
            done.take(request.lastError, null);
            return;
        }
        if (request.lastReply == LastReply.NONE) {
            done.take(Errors.noReply(server(), "none to this request", null), null);
            return;
        }
        Done<@Nullable LockException> once = once(done);
        LockException late = Errors.noReply(server(), "none within " + ASKED_MS + " ms", null);
        loop.after(Clock.ms(ASKED_MS), () -> once.take(late, null));
        locate(request.rawKey, (session, error) -> {
            if (session == null) {
                once.take((LockException) error, null);
            } else {
                session.explain(request, once);
            }
        });
    }

    @Override
    public @Nullable Acquisition find(String id) {
        return requests.get(id);
    }

    @Override
    public void onGranted(Granted granted, long fence, long until) {
        Acquisition known = requests.get(granted.id());
        if (known == null) {
            giveBack(granted, (nothing, error) -> {});
        } else if (known.stage == Stage.WAITING) {
            known.grant(fence, until);
        }
    }

    @Override
    public void renewAll() {
        for (Acquisition request : requests.values()) {
            request.renewWithin(ThreadLocalRandom.current().nextLong(Clock.ms(RENEWED_MS)));
        }
    }

    /** Forgets a request. Returns whether it was known. */
    boolean forget(Acquisition request) {
        return requests.remove(request.id) != null;
    }

    /** Withdraws a request, or releases its hold. What cannot be given back ends with its lease. */
    void giveBack(Granted granted, Done<Void> done) {
        long until = Clock.now() + Clock.ms(Math.max(granted.leaseMs(), GIVEN_BACK_MS));
        List<byte[]> command = Words.of("DLOCK.RELEASE", granted.rawKey(), granted.owner(), "REQID", granted.id());
        boolean[] hasLostCopies = {granted.hasLostCopies()};
        Predicate<LockException> isRepeated = error -> {
            // The connection may have had a copy of the request, too.
            hasLostCopies[0] |= Errors.isNoReply(error);
            return Clock.now() < until && Errors.isAgain(error, Sent.RELEASE);
        };
        call(granted.rawKey(), () -> command, isRepeated, (reply, error) -> {
            if (hasLostCopies[0]) {
                Runnable again = () -> call(
                        granted.rawKey(), () -> command, isRepeated, (second, late) -> done.take(null, null));
                loop.after(Clock.ms(LATE_COPIES_MS), again);
            } else {
                done.take(null, null);
            }
        });
    }

    /** Closes the connections if nothing uses them. They are opened again when they are needed. */
    void rest() {
        if (calls == 0 && requests.isEmpty()) {
            sessions.values().forEach(Session::close);
        }
    }

    /** Rests when nothing was sent for a while. */
    private void restLater() {
        lastCall = Clock.now();
        if (!isResting) {
            isResting = true;
            loop.after(Clock.ms(IDLE_MS), this::restIfIdle);
        }
    }

    private void restIfIdle() {
        long left = lastCall + Clock.ms(IDLE_MS) - Clock.now();
        isResting = left > 0;
        if (isResting) {
            loop.after(left, this::restIfIdle);
        } else {
            rest();
        }
    }

    /** What is done at the server of a key, and again after an error that may pass there or on another server. */
    private final class Repeated<T extends @Nullable Object> {
        private final byte[] rawKey;
        private final Action<T> action;
        private final Predicate<LockException> isRepeated;
        private final Done<T> done;
        private String address = "";
        private long pauseMs = 50;

        Repeated(byte[] rawKey, Action<T> action, Predicate<LockException> isRepeated, Done<T> done) {
            this.rawKey = rawKey;
            this.action = action;
            this.isRepeated = isRepeated;
            this.done = done;
        }

        void run() {
            calls++;
            once();
        }

        private void once() {
            locate(rawKey, (session, error) -> {
                if (session == null) {
                    onOutcome(null, error);
                } else {
                    address = session.address;
                    action.at(session, this::onOutcome);
                }
            });
        }

        private void onOutcome(@Nullable T value, @Nullable Throwable cause) {
            LockException error = cause == null ? null : reroute(rawKey, (LockException) cause, address);
            if (error == null || !isRepeated.test(error)) {
                calls--;
                restLater();
                done.take(value, error);
            } else if (Errors.isNoReply(error)) {
                // A link has its own pauses.
                loop.execute(this::once);
            } else {
                loop.after(Clock.about(pauseMs), this::once);
                pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS);
            }
        }
    }

    /** Something to do at a server. */
    private interface Action<T extends @Nullable Object> {
        void at(Session session, Done<T> done);
    }

    /** Takes note of where a key is after this error of a node. */
    private LockException reroute(byte[] rawKey, LockException error, String address) {
        boolean isElsewhere = error.word().equals("MOVED") || error.word().equals("ASK");
        if (!client.isCluster()) {
            return isElsewhere ? new Errors.NoCluster(server(), error) : error;
        }
        if (error.word().equals("MOVED")) {
            String[] words = String.valueOf(error.getMessage()).split(" ");
            String host = address.substring(0, Math.max(0, address.lastIndexOf(':')));
            // A node may name only a port, for its own host.
            moved.put(Integer.valueOf(words[1]), words[2].startsWith(":") ? host + words[2] : words[2]);
        } else if (Errors.isNoReply(error) && isPrepared) {
            // Another node knows who has the slot now.
            List<String> others = new ArrayList<>(client.nodes());
            others.remove(address);
            if (!others.isEmpty()) {
                int any = ThreadLocalRandom.current().nextInt(others.size());
                moved.put(SlotHash.getSlot(rawKey), others.get(any));
            }
        }
        return error;
    }

    /** Finds the session with the server of a key. */
    private void locate(byte[] rawKey, Done<Session> done) {
        if (isPrepared) {
            done.take(session(rawKey), null);
            return;
        }
        Loop.BLOCKING.execute(() -> {
            try {
                client.prepare();
                loop.execute(() -> {
                    isPrepared = true;
                    done.take(session(rawKey), null);
                });
            } catch (RuntimeException error) {
                loop.execute(() -> done.take(null, Errors.of(error, server())));
            }
        });
    }

    private Session session(byte[] rawKey) {
        String address = "";
        if (client.isCluster()) {
            int slot = SlotHash.getSlot(rawKey);
            String primary = moved.containsKey(slot) ? moved.get(slot) : client.primary(slot);
            // A node that has not the slot says who has it.
            address = primary == null ? client.nodes().get(0) : primary;
        }
        return sessions.computeIfAbsent(address, each -> new Session(each, client, loop, this));
    }

    private static <T extends @Nullable Object> Done<T> once(Done<T> done) {
        boolean[] isDone = new boolean[1];
        return (value, error) -> {
            if (!isDone[0]) {
                isDone[0] = true;
                done.take(value, error);
            }
        };
    }
}
