package dlock;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/** One connection: opened when something is to be sent, and again after it was lost. Nothing is sent twice. */
final class Link {
    /** How many commands may be without a reply. More would only wait in buffers. */
    private static final int MAX_PENDING = 1_000;

    /** The first connection of a program may take so many times as long: it loads the classes of Lettuce. */
    private static final int FIRST_TIMES = 10;

    /** Whether any connection of the program has opened. Links have several loops. */
    private static volatile boolean hasAnyOpened;

    /** In ms: within which what has arrived is read. */
    private static final long READ_MS = 20;

    private final Client client;
    private final Loop loop;
    private final String address;
    private final long timeoutMs;
    private final Runnable onLoss;
    private final int maxPending;

    /** What messages call the server. */
    private String server;
    private boolean hasOpened;
    private boolean isShutDown;
    private @Nullable Connection connection;
    /** What opens a connection now. */
    private @Nullable Object opening;
    private int failures;
    /** When the last reply came. */
    private long heard = Long.MIN_VALUE;
    private boolean isWatching;
    private final Deque<Call> unsent = new ArrayDeque<>();
    private final Deque<Call> pending = new ArrayDeque<>();

    private static final class Call {
        final Supplier<@Nullable List<byte[]>> command;
        final Done<@Nullable Object> done;
        long sent;

        Call(Supplier<@Nullable List<byte[]>> command, Done<@Nullable Object> done) {
            this.command = command;
            this.done = done;
        }
    }

    /** In ms: how long to wait for a reply, and for a connection. */
    Link(Client client, Loop loop, String address, String server, long timeoutMs, Runnable onLoss) {
        this.client = client;
        this.loop = loop;
        this.address = address;
        this.server = server;
        this.timeoutMs = timeoutMs;
        this.onLoss = onLoss;
        this.maxPending = Math.min(MAX_PENDING, client.source().getOptions().getRequestQueueSize());
    }

    String server() {
        return server;
    }

    boolean hasOpened() {
        return hasOpened;
    }

    /** Sends once. The command is made when it can be sent at once; it is null if it is wanted no more. */
    void send(Supplier<@Nullable List<byte[]>> command, Done<@Nullable Object> done) {
        unsent.add(new Call(command, done));
        if (connection != null) {
            flush(connection);
        } else if (opening == null) {
            open();
        }
    }

    void close() {
        drop(Errors.noReply(server, "the connection was closed", null));
    }

    private void open() {
        if (isShutDown) {
            drop(Errors.shutDown(server, null));
            return;
        }
        Object attempt = new Object();
        opening = attempt;
        Runnable connect = () -> {
            long limitMs = hasAnyOpened ? timeoutMs : FIRST_TIMES * timeoutMs;
            loop.after(Clock.ms(limitMs), () -> {
                if (attempt == opening) {
                    drop(Errors.noReply(server, "no connection within " + limitMs + " ms", null));
                }
            });
            Loop.BLOCKING.execute(() -> connect(attempt));
        };
        if (failures++ == 0) {
            connect.run();
        } else {
            loop.after(Clock.about(Math.min(1_000, 10L << Math.min(failures, 10))), connect);
        }
    }

    /** Blocks. */
    private void connect(Object attempt) {
        try {
            client.check();
            Connection opened = client.connect(address);
            String name = opened.introduce();
            loop.execute(() -> onOpen(attempt, opened, name));
        } catch (RuntimeException error) {
            loop.execute(() -> {
                if (attempt == opening) {
                    drop(Errors.of(error, server));
                }
            });
        }
    }

    private void onOpen(Object attempt, Connection opened, @Nullable String name) {
        if (attempt != opening) {
            opened.close();
            return;
        }
        connection = opened;
        opening = null;
        hasOpened = true;
        hasAnyOpened = true;
        server = name == null ? server : name;
        opened.onEnd(() -> loop.execute(() -> {
            if (opened == connection) {
                drop(Errors.noReply(server, "the connection was lost", null));
            }
        }));
        flush(opened);
    }

    private void flush(Connection to) {
        while (to == connection && pending.size() < maxPending && !unsent.isEmpty()) {
            Call call = unsent.remove();
            List<byte[]> words = call.command.get();
            if (words == null) {
                call.done.take(null, null);
                continue;
            }
            call.sent = Clock.now();
            pending.add(call);
            to.send(words, (reply, error) -> loop.execute(() -> onReply(call, reply, error)));
            watch();
        }
    }

    private void onReply(Call call, @Nullable Object reply, @Nullable Throwable cause) {
        // It may have been given up.
        if (!pending.remove(call)) {
            return;
        }
        LockException error = cause == null ? null : Errors.of(cause, server);
        if (error != null && Errors.isNoReply(error)) {
            pending.addFirst(call);
            drop(error);
            return;
        }
        // Only now: a connection that is lost before a reply is opened again after a pause, too.
        failures = 0;
        heard = Clock.now();
        call.done.take(reply, error);
        if (error != null && error.word().equals("READONLY")) {
            // A primary that was demoted.
            drop(Errors.noReply(server, "it is a replica now", error));
        } else if (connection != null) {
            flush(connection);
        }
    }

    /**
     * Drops the connection when the server owes replies and has sent none for too long. One that is slow is not dropped:
     * to send all again would make it slower. If the program was stopped, what has arrived meanwhile is read first.
     */
    private void watch() {
        if (!isWatching && !pending.isEmpty()) {
            isWatching = true;
            loop.after(silentAt() - Clock.now(), () -> loop.after(Clock.ms(READ_MS), this::look));
        }
    }

    /** When the server has been silent for too long. */
    private long silentAt() {
        return Math.max(pending.element().sent, heard) + Clock.ms(timeoutMs);
    }

    private void look() {
        isWatching = false;
        if (!pending.isEmpty() && Clock.now() >= silentAt()) {
            drop(Errors.noReply(server, "none within " + timeoutMs + " ms", null));
        } else {
            watch();
        }
    }

    /** Ends the connection, and all commands that have no reply. */
    private void drop(LockException error) {
        Connection dropped = connection;
        // To open another one, Lettuce would wait without end.
        isShutDown |= dropped != null && dropped.isShutDown();
        boolean isTold = error.word().equals("CLOSED");
        LockException reason = isShutDown && !isTold ? Errors.shutDown(server, error) : error;
        connection = null;
        opening = null;
        if (dropped != null) {
            dropped.close();
        }
        List<Call> failed = new ArrayList<>(pending);
        failed.addAll(unsent);
        pending.clear();
        unsent.clear();
        // Not here: a task that fails harms no other.
        failed.forEach(call -> loop.execute(() -> call.done.take(null, reason)));
        // Not after each attempt to open it again.
        if (dropped != null && failures == 0) {
            onLoss.run();
        }
    }
}
