package dlock.conformance;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import dlock.AcquireTimeoutException;
import dlock.Held;
import dlock.LockEvent;
import dlock.LockException;
import dlock.LockOptions;
import dlock.Locks;
import dlock.LostException;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.resource.ClientResources;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/**
 * The driver for the conformance kit: {@code Driver blocking|async ADDRESS}. It reads commands from stdin, and answers on
 * stdout, in lines of JSON. With {@code blocking}, each command has a thread, which a cancellation interrupts.
 */
public final class Driver {
    /** Nobody listens there. */
    private static final String NOWHERE = "redis://127.0.0.1:1/";

    private final PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final boolean isAsync;
    private final String address;
    /** Of all clients: what Lettuce has of its own is not ours to count. */
    private final ClientResources resources = ClientResources.create();

    private final RedisClient client;
    private final Locks locks;
    private final Map<Integer, Held> held = new ConcurrentHashMap<>();
    /** How to cancel the acquisitions that wait. */
    private final Map<Integer, Runnable> waiting = new ConcurrentHashMap<>();
    private final List<Held> many = new ArrayList<>();

    /** A value that the types of Java cannot express. */
    private static final class Inexpressible extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    private Driver(String kind, String address) {
        this.isAsync = kind.equals("async");
        this.address = address;
        this.client = RedisClient.create(resources, address);
        this.locks = Locks.open(client, this::tellWaiting);
    }

    public static void main(String[] args) throws Exception {
        Driver driver = new Driver(args[0], args[1]);
        driver.warmUp();
        driver.say("driver", "java-" + args[0], "renews_while_blocked", true);
        driver.run();
        // Without waiting for the threads of Lettuce.
        System.exit(0);
    }

    /** Loads classes, of Lettuce above all, which takes seconds on a busy machine. */
    private void warmUp() throws InterruptedException {
        try (var connection = client.connect()) {
            connection.sync().clientInfo();
        } catch (RedisException noServer) {
            // Scenarios say what is told then.
        }
        try (RedisClient nobody = RedisClient.create(resources, NOWHERE)) {
            Locks.open(nobody).acquire("warm-up");
        } catch (LockException expected) {
            // Nobody listens.
        }
    }

    private void run() throws IOException {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonObject command = JsonParser.parseString(line).getAsJsonObject();
            int id = command.get("id").getAsInt();
            String what = command.get("do").getAsString();
            switch (what) {
                case "close" -> {
                    close();
                    say("id", id, "ok", true);
                    return;
                }
                case "acquire", "try" -> acquire(id, command, what.equals("acquire"));
                case "cancel" -> {
                    waiting.getOrDefault(of(command), () -> {}).run();
                    say("id", id, "ok", true);
                }
                case "state" -> state(id, held.get(of(command)));
                case "block" -> {
                    // Nothing else is read meanwhile.
                    pause(command.get("ms").getAsLong());
                    say("id", id, "ok", true);
                }
                default -> threads.execute(() -> answer(id, command, what));
            }
        }
        close();
    }

    private void acquire(int id, JsonObject command, boolean waits) {
        byte[] key;
        LockOptions options;
        try {
            key = key(command);
            options = options(command);
            if (isAsync) {
                // A wrong argument is told at once.
                acquireAsync(id, waits ? locks.acquireAsync(key, options) : locks.tryAcquireAsync(key, options));
                return;
            }
        } catch (RuntimeException error) {
            fail(id, error);
            return;
        }
        Thread thread = new Thread(() -> {
            try {
                onAcquired(id, waits ? locks.acquire(key, options) : locks.tryAcquire(key, options));
            } catch (InterruptedException | RuntimeException error) {
                fail(id, error);
            }
        });
        // Known before a command about it is read.
        waiting.put(id, thread::interrupt);
        thread.start();
    }

    private void acquireAsync(int id, CompletableFuture<Held> acquisition) {
        waiting.put(id, () -> acquisition.cancel(true));
        acquisition.whenComplete((lock, error) -> {
            if (error == null) {
                onAcquired(id, lock);
            } else {
                fail(id, error);
            }
        });
    }

    private void onAcquired(int id, Held lock) {
        waiting.remove(id);
        if (lock == null) {
            say("id", id, "held", false, "because", "TAKEN");
            return;
        }
        held.put(id, lock);
        say("id", id, "held", true, "fence", lock.fence());
        lock.onLost(loss -> {
            if (!loss.word().equals("CLOSED")) {
                JsonObject event = object("event", "lost", "of", id);
                because(event, loss);
                output.println(event);
            }
        });
    }

    private void state(int id, Held lock) {
        if (lock != null && lock.isHeld()) {
            say("id", id, "held", true, "remaining_ms", lock.remaining().toMillis(), "fence", lock.fence());
        } else {
            say("id", id, "held", false, "remaining_ms", 0);
        }
    }

    private void answer(int id, JsonObject command, String what) {
        try {
            switch (what) {
                case "release" -> {
                    Held lock = held.get(of(command));
                    if (isAsync) {
                        lock.releaseAsync().join();
                    } else {
                        lock.release();
                    }
                    say("id", id, "released", true);
                }
                case "extend" -> {
                    Held lock = held.get(of(command));
                    Duration lease = duration(command.get("lease_ms"));
                    if (isAsync) {
                        lock.extendAsync(lease).join();
                    } else {
                        lock.extend(lease);
                    }
                    say("id", id, "extended", true);
                }
                case "query" -> query(id, held.get(of(command)), command.getAsJsonArray("command"));
                case "churn" -> churn(id, command);
                case "hold_many" -> holdMany(id, command);
                case "release_many" -> releaseMany(id);
                case "resources" -> {
                    System.gc();
                    say("id", id, "tasks", Thread.activeCount());
                }
                default -> say("id", id, "error", "UNKNOWN");
            }
        } catch (InterruptedException | RuntimeException error) {
            fail(id, error);
        }
    }

    private void query(int id, Held lock, JsonArray command) throws InterruptedException {
        Object[] args = new Object[command.size() - 1];
        for (int n = 0; n < args.length; n++) {
            args[n] = command.get(n + 1).getAsString();
        }
        String name = command.get(0).getAsString();
        Object reply = isAsync ? lock.queryAsync(name, args).join() : lock.query(name, args);
        JsonObject answer = object("id", id);
        answer.add("reply", json(reply));
        output.println(answer);
    }

    /** Uses new clients as careless code does. */
    private void churn(int id, JsonObject command) throws InterruptedException {
        boolean fails = command.has("fails");
        LockOptions options = LockOptions.defaults();
        for (int n = 0; n < command.get("times").getAsInt(); n++) {
            String uri = fails ? NOWHERE : address;
            RedisClient each = command.has("same_client") ? client : RedisClient.create(resources, uri);
            LockOptions chosen = fails ? options.timeout(Duration.ofMillis(50)) : options;
            try (Held lock = Locks.open(each).acquire(command.get("key").getAsString(), chosen)) {
                if (fails) {
                    throw new IllegalStateException("granted by nobody: " + lock);
                }
            } catch (LockException error) {
                if (!fails) {
                    throw error;
                }
            }
        }
        say("id", id, "ok", true);
    }

    private void holdMany(int id, JsonObject command) {
        long began = System.nanoTime();
        String prefix = command.get("prefix").getAsString();
        LockOptions options = options(command);
        many.clear();
        var all = IntStream.range(0, command.get("locks").getAsInt())
                .mapToObj(n -> locks.acquireAsync(prefix + n, options)).toList();
        all.forEach(each -> {
            try {
                many.add(each.join());
            } catch (CompletionException error) {
                // It is not counted.
            }
        });
        say("id", id, "held", many.size(), "took_ms", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began));
    }

    private void releaseMany(int id) {
        int[] lost = new int[1];
        many.stream().map(Held::releaseAsync).toList().forEach(each -> {
            try {
                each.join();
            } catch (CompletionException error) {
                lost[0]++;
            }
        });
        say("id", id, "released", many.size() - lost[0], "lost", lost[0]);
    }

    private void close() {
        waiting.values().forEach(Runnable::run);
        locks.close();
        threads.shutdown();
    }

    private static int of(JsonObject command) {
        return command.get("of").getAsInt();
    }

    private static byte[] key(JsonObject command) {
        return command.has("key_hex")
                ? HexFormat.of().parseHex(command.get("key_hex").getAsString())
                : text(command.get("key")).getBytes(StandardCharsets.UTF_8);
    }

    private static LockOptions options(JsonObject command) {
        LockOptions options = LockOptions.defaults();
        if (command.has("options")) {
            throw new Inexpressible();
        }
        if (command.has("lease_ms")) {
            options = options.lease(duration(command.get("lease_ms")));
        }
        if (command.has("timeout_ms")) {
            options = options.timeout(duration(command.get("timeout_ms")));
        }
        if (command.has("max_hold_ms")) {
            options = options.maxHold(duration(command.get("max_hold_ms")));
        }
        if (command.has("limit")) {
            options = options.limit(integer(command.get("limit")));
        }
        if (command.has("shared") && command.get("shared").getAsBoolean()) {
            options = options.shared();
        }
        if (command.has("owner")) {
            options = options.owner(text(command.get("owner")));
        }
        return command.has("renew") && !command.get("renew").getAsBoolean() ? options.withoutRenewal() : options;
    }

    private static Duration duration(JsonElement ms) {
        double nanos = number(ms) * 1e6;
        if (!(Math.abs(nanos) < Long.MAX_VALUE)) {
            throw new Inexpressible();
        }
        return Duration.ofNanos((long) nanos);
    }

    private static int integer(JsonElement value) {
        double number = number(value);
        if (number != (int) number) {
            throw new Inexpressible();
        }
        return (int) number;
    }

    private static double number(JsonElement value) {
        if (!value.isJsonPrimitive() || !value.getAsJsonPrimitive().isNumber()) {
            throw new Inexpressible();
        }
        return value.getAsDouble();
    }

    private static String text(JsonElement value) {
        if (!value.isJsonPrimitive() || !value.getAsJsonPrimitive().isString()) {
            throw new Inexpressible();
        }
        return value.getAsString();
    }

    private void fail(int id, Throwable failure) {
        waiting.remove(id);
        Throwable error = failure instanceof CompletionException ? failure.getCause() : failure;
        JsonObject answer = object("id", id);
        if (error instanceof InterruptedException || error instanceof CancellationException) {
            answer.addProperty("cancelled", true);
        } else if (error instanceof Inexpressible) {
            answer.addProperty("skipped", true);
        } else if (error instanceof LostException loss) {
            answer.addProperty("lost", true);
            because(answer, loss);
        } else if (error instanceof AcquireTimeoutException timeout) {
            answer.addProperty("held", false);
            answer.addProperty("because", timeout.getCause() == null ? "TAKEN" : timeout.getCause().word());
        } else if (error instanceof LockException refusal) {
            answer.addProperty("error", refusal.word());
        } else {
            answer.addProperty("error", error instanceof IllegalArgumentException ? "ARGUMENT" : error.toString());
        }
        output.println(answer);
    }

    /** Why a lock is lost, and the last error of its renewals. */
    private static void because(JsonObject line, LostException loss) {
        line.addProperty("because", loss.word());
        LockException last = loss.getCause();
        if (loss.word().equals("EXPIRED") && last != null && !last.word().equals("EXPIRED")) {
            line.addProperty("last", last.word());
        }
    }

    private void tellWaiting(LockEvent event) {
        if (event instanceof LockEvent.Waiting told) {
            long waited = told.waited().toMillis();
            say("event", "waiting", "key", told.key(), "holder", told.holder(), "waited_ms", waited);
        }
    }

    private void say(Object... members) {
        output.println(object(members));
    }

    private static JsonObject object(Object... members) {
        JsonObject object = new JsonObject();
        for (int n = 0; n < members.length; n += 2) {
            object.add((String) members[n], json(members[n + 1]));
        }
        return object;
    }

    private static JsonElement json(Object value) {
        if (value instanceof Boolean is) {
            return new JsonPrimitive(is);
        }
        if (value instanceof Number number) {
            return new JsonPrimitive(number);
        }
        return value == null ? JsonNull.INSTANCE : new JsonPrimitive(value.toString());
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
