package dlock;

import dlock.Acquisition.Granted;
import dlock.Acquisition.LastReply;
import dlock.Acquisition.Stage;
import dlock.Errors.Sent;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import org.jspecify.annotations.Nullable;

/** One server, on two connections: one for requests, and one for answers while somebody waits. */
final class Session {
    /** In ms: how long connecting may take, and a reply: short compared with a lease. */
    static final long TIMEOUT_MS = 3_000;

    /** In ms: how long a DLOCK.GRANTS waits, and the inbox lasts without one. */
    private static final long BLOCK_MS = 2_000;

    private static final long TTL_MS = 5_000;
    /** In ms: how late the reply to a DLOCK.GRANTS may be until it is missed. */
    private static final long LATE_MS = 500;

    /** What a session tells. */
    interface Table {
        @Nullable Acquisition find(String id);

        /** A request can get its grant twice, and after its end. */
        void onGranted(Granted granted, long fence, long until);

        /** A connection was lost: how long the server was away, and what it still has, is not known. */
        void renewAll();
    }

    final String address;
    final Link link;
    private final Link reader;
    private final Loop loop;
    private final Table table;
    /** Requests that were sent and have no outcome, the oldest first. */
    private final Set<Acquisition> queued = new LinkedHashSet<>();
    /** Late requests with the name of an old inbox are not queued. */
    private String inbox = newName();
    /** Requests that wait until the inbox is created, and all that were sent before have a reply. Null: nothing is. */
    private @Nullable List<Copy> opening;

    private boolean isCreated;
    /** How many requests that wait for their turn have no reply. */
    private int inFlight;
    /** When the reader sent the call that has no reply yet. */
    private long asking = Clock.NEVER;

    Session(String address, Client client, Loop loop, Table table) {
        String server = address.isEmpty() ? "the server" : address;
        this.address = address;
        this.loop = loop;
        this.table = table;
        this.link = new Link(client, loop, address, server, TIMEOUT_MS, table::renewAll);
        this.reader = new Link(client, loop, address, server, 2 * BLOCK_MS, () -> {});
    }

    /** Sends a request, and waits while it is queued: until it has an outcome, or has to be sent again. */
    void ask(Acquisition request, Done<Void> done) {
        Copy copy = new Copy(request, done);
        if (request.waits && opening != null) {
            opening.add(copy);
        } else {
            link.send(copy::command, copy::onReply);
        }
    }

    /** A request on its way. */
    private final class Copy {
        private final Acquisition request;
        private final Done<Void> done;
        private String sentInbox = "";
        private long sent = Clock.NEVER;
        /** Its answer has overtaken the reply, or its inbox has ended, perhaps with an error. */
        private boolean isDequeued;

        private @Nullable LockException dequeueError;

        Copy(Acquisition request, Done<Void> done) {
            this.request = request;
            this.done = done;
        }

        @Nullable List<byte[]> command() {
            // Without a place in an inbox that is opened, it could be queued before older ones.
            if (request.stage != Stage.WAITING || request.waits && opening != null) {
                return null;
            }
            inFlight += request.waits ? 1 : 0;
            // Before it is sent, because its answer may overtake the reply.
            queued.add(request);
            request.dequeue = this::dequeue;
            request.isKnown = true;
            request.lastReply = LastReply.NONE;
            sentInbox = inbox;
            sent = Clock.now();
            return request.command(inbox);
        }

        void onReply(@Nullable Object reply, @Nullable Throwable cause) {
            LockException error = (LockException) cause;
            if (request.waits && sent != Clock.NEVER && --inFlight == 0) {
                // Not here: this one may be sent again, too.
                loop.execute(() -> loop.execute(Session.this::sendOpened));
            }
            if (error != null && error.word().equals("NOINBOX")) {
                request.lastReply = LastReply.NO_INBOX;
                request.lastError = null;
                if (sentInbox.equals(inbox) && opening == null) {
                    open();
                }
                end(null);
            } else if (error != null || sent == Clock.NEVER) {
                end(error);
            } else {
                onReply((List<?>) reply);
            }
        }

        private void onReply(@Nullable List<?> reply) {
            if (reply == null) {
                request.refuse();
                end(null);
            } else if (reply.size() >= 4) {
                long waitedAndLease = number(reply, 3) + number(reply, 2);
                table.onGranted(request.granted(), number(reply, 0), Clock.deadline(sent, waitedAndLease));
                end(null);
            } else {
                request.queue(number(reply, 0));
                if (isDequeued) {
                    end(dequeueError);
                } else {
                    request.dequeue = this::end;
                }
            }
        }

        /** Before the reply. */
        private void dequeue(@Nullable LockException error) {
            isDequeued = true;
            dequeueError = error;
        }

        private void end(@Nullable LockException error) {
            request.dequeue = nothing -> {};
            queued.remove(request);
            done.take(null, error);
        }
    }

    /** Why a request that has a reply is not granted yet. Null: others hold the lock, or wait for it. */
    void explain(Acquisition request, Done<@Nullable LockException> done) {
        if (asking != Clock.NEVER && Clock.now() - asking > Clock.ms(BLOCK_MS + LATE_MS)) {
            done.take(Errors.noReply(link.server(), "no answers to waiting requests", null), null);
            return;
        }
        // Names what keeps the server from granting anything. It changes nothing: this owner waits.
        List<byte[]> probe = Words.of("DLOCK.EXTEND", request.rawKey, request.owner, 1);
        link.send(() -> probe, (reply, cause) -> {
            LockException error = (LockException) cause;
            if (error != null && Errors.isAgain(error, Sent.WAIT)) {
                done.take(error, null);
                return;
            }
            boolean isTaken = request.lastReply == LastReply.QUEUED
                    || error != null && error.word().equals("NOTOWNER");
            done.take(isTaken ? null : Errors.noReply(link.server(), "no inbox for the answer", null), null);
        });
    }

    void close() {
        endInbox();
        link.close();
    }

    /** A request has to wait, and the inbox does not exist, or no longer. */
    private void open() {
        endInbox();
        String created = inbox;
        List<Copy> waiting = new ArrayList<>();
        opening = waiting;
        isCreated = false;
        reader.send(() -> Words.of("DLOCK.GRANTS", created, 0), (reply, error) -> {
            boolean isCurrent = waiting == opening;
            if (isCurrent && error == null) {
                isCreated = true;
                new Reading(created, number((List<?>) reply, 0)).next();
                sendOpened();
                return;
            }
            if (isCurrent) {
                opening = null;
                // It may exist all the same: the next one has another name. Meanwhile, free locks can be acquired.
                endInbox();
            }
            waiting.forEach(copy -> copy.end((LockException) error));
        });
    }

    /** The oldest first. */
    private void sendOpened() {
        List<Copy> waiting = opening;
        if (waiting != null && isCreated && inFlight == 0) {
            opening = null;
            waiting.sort(Comparator.comparingLong(copy -> copy.request.number));
            waiting.forEach(copy -> link.send(copy::command, copy::onReply));
        }
    }

    /** The calls for the answers in one inbox, one after the other. */
    private final class Reading {
        private final String name;
        private long cursor;
        /** When the first copy of a call was sent, from which the leases in its answers are counted. */
        private long since = Clock.NEVER;

        Reading(String name, long cursor) {
            this.name = name;
            this.cursor = cursor;
        }

        void next() {
            if (!name.equals(inbox)) {
                return;
            }
            since = since == Clock.NEVER ? Clock.now() : since;
            asking = since;
            reader.send(() -> Words.of("DLOCK.GRANTS", name, cursor, "BLOCK", BLOCK_MS), this::onReply);
        }

        private void onReply(@Nullable Object reply, @Nullable Throwable cause) {
            if (cause instanceof LockException error) {
                boolean isEnd = error.word().equals("NOINBOX") || error.word().equals("CLOSED");
                boolean isOver = isEnd || Clock.now() - since > Clock.ms(TTL_MS);
                if (isOver && name.equals(inbox)) {
                    endInbox();
                } else if (Errors.isNoReply(error)) {
                    next();
                } else {
                    loop.after(Clock.about(50), this::next);
                }
                return;
            }
            List<?> parts = (List<?>) reply;
            List<?> answers = (List<?>) parts.get(2);
            answers.forEach(answer -> receive((List<?>) answer, since, number(parts, 1)));
            cursor = number(parts, 0);
            since = Clock.NEVER;
            if (name.equals(inbox)) {
                asking = Clock.NEVER;
                if (answers.isEmpty() && queued.isEmpty()) {
                    endInbox();
                }
            }
            next();
        }
    }

    private void receive(List<?> answer, long since, long waitedMs) {
        String word = text(answer, 0);
        String id = text(answer, 1);
        Acquisition request = table.find(id);
        if (word.equals("granted")) {
            long lease = number(answer, 6);
            Granted granted = new Granted(id, (byte[]) answer.get(2), text(answer, 3), lease, false);
            table.onGranted(granted, number(answer, 4), Clock.deadline(since, waitedMs + lease));
        } else if (request != null && word.equals("error")) {
            request.dequeue.accept(Errors.ofServer(text(answer, 4), link.server(), null));
        } else if (request != null && (word.equals("timeout") || word.equals("withdrawn"))) {
            request.dequeue.accept(null);
        }
    }

    /** The inbox is over: requests that wait there are sent again, the oldest first. */
    private void endInbox() {
        inbox = newName();
        asking = Clock.NEVER;
        reader.close();
        List<Acquisition> waiting = new ArrayList<>(queued);
        waiting.sort(Comparator.comparingLong(request -> request.number));
        waiting.forEach(request -> request.dequeue.accept(null));
    }

    private static String newName() {
        return UUID.randomUUID().toString();
    }

    private static long number(List<?> reply, int at) {
        return ((Number) reply.get(at)).longValue();
    }

    private static String text(List<?> reply, int at) {
        return Words.text((byte[]) reply.get(at));
    }
}
