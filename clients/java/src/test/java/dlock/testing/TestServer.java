package dlock.testing;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisException;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.resource.ClientResources;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

/** A server with the module that DLOCK_MODULE names, by the program that DLOCK_SERVER may name. */
public final class TestServer implements AutoCloseable {
    /** Of all clients of the tests. */
    public static final ClientResources RESOURCES = ClientResources.create();

    /** A cluster's bus has a port that is 10 000 higher. */
    private static final int MAX_PORT = 55_535;

    public final int port = freePort();
    private final Path directory;
    private final List<String> command = new ArrayList<>();
    private final RedisClient client;
    private Process process;
    private StatefulRedisConnection<String, String> connection;

    /** A server with the module, and with these settings. */
    public TestServer(String... settings) {
        this("", List.of(settings));
        String module = System.getenv("DLOCK_MODULE");
        assumeTrue(module != null, "DLOCK_MODULE names no module");
        Collections.addAll(command, "--loadmodule", module);
        start();
    }

    public static TestServer withoutModule() {
        TestServer server = new TestServer("", List.of());
        server.start();
        return server;
    }

    /** A Sentinel of a server, which it calls {@code main}. */
    public static TestServer sentinelOf(TestServer watched) {
        String configuration = """
                sentinel monitor main 127.0.0.1 %d 1
                sentinel down-after-milliseconds main 1000
                sentinel failover-timeout main 3000
                """.formatted(watched.port);
        TestServer sentinel = new TestServer(configuration, List.of("--sentinel"));
        sentinel.start();
        return sentinel;
    }

    private TestServer(String configuration, List<String> settings) {
        try {
            directory = Files.createTempDirectory("dlock-java-");
            Path file = Files.writeString(directory.resolve("redis.conf"), configuration);
            String program = System.getenv().getOrDefault("DLOCK_SERVER", "redis-server");
            Collections.addAll(command, program, file.toString(), "--port", "" + port, "--bind", "127.0.0.1");
            Collections.addAll(command, "--dir", directory.toString(), "--save", "");
            command.addAll(settings);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        client = client();
    }

    /** Starts it, after {@link #kill} again. */
    public void start() {
        try {
            process = new ProcessBuilder(command).redirectErrorStream(true)
                    .redirectOutput(new File(directory.toFile(), "log")).start();
        } catch (IOException error) {
            assumeTrue(false, command.get(0) + " is not installed");
        }
        until("the server starts", () -> {
            try {
                connection = client.connect();
                return true;
            } catch (RedisConnectionException notYet) {
                return false;
            }
        });
    }

    public String uri() {
        return "redis://127.0.0.1:" + port;
    }

    /** A new client, as a program has it. */
    public RedisClient client() {
        return RedisClient.create(RESOURCES, uri());
    }

    /** Sends a command, and returns its reply, or the first part of it. */
    public String call(String line) {
        String[] words = line.split(" ");
        CommandArgs<String, String> args = new CommandArgs<>(StringCodec.UTF8);
        for (int n = 1; n < words.length; n++) {
            args.add(words[n]);
        }
        var output = new NestedMultiOutput<>(StringCodec.UTF8);
        return String.valueOf(connection.sync().dispatch(new Name(words[0]), output, args).get(0));
    }

    private record Name(String word) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return word.getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        public String toString() {
            return word;
        }
    }

    public String info(String section) {
        return connection.sync().info(section);
    }

    public String clusterInfo() {
        return connection.sync().clusterInfo();
    }

    /** A number of INFO dlock, such as {@code locks}. */
    public long stat(String name) {
        return number(connection.sync().info("dlock"), "dlock_" + name + ":");
    }

    /** How often a command was called. */
    public long calls(String name) {
        return number(connection.sync().info("commandstats"), "cmdstat_" + name.toLowerCase() + ":calls=");
    }

    /** How many connections have the name of the library. */
    public long connections() {
        return connection.sync().clientList().lines().filter(line -> line.contains(" name=dlock ")).count();
    }

    private static long number(String info, String start) {
        return info.lines().filter(line -> line.startsWith(start)).findFirst()
                .map(line -> Long.valueOf(line.substring(start.length()).split(",")[0].trim())).orElse(0L);
    }

    public void untilNothingIsLeft() {
        until("nothing is left", () -> stat("locks") == 0 && stat("waiters") == 0);
    }

    public void untilWaiting(long count) {
        until(count + " wait", () -> stat("waiters") == count);
    }

    /** Has it hang, or go on. */
    public void signal(String name) {
        try {
            new ProcessBuilder("kill", "-" + name, "" + process.pid()).start().waitFor();
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    public void kill() {
        process.destroyForcibly();
        try {
            process.waitFor();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void close() {
        client.shutdownAsync(0, 0, TimeUnit.SECONDS);
        kill();
        try (Stream<Path> files = Files.walk(directory)) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Waits until the condition holds, for 20 s at most. */
    public static void until(String what, BooleanSupplier condition) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!holds(condition)) {
            if (System.nanoTime() > end) {
                throw new AssertionError("not in 20 s: " + what);
            }
            try {
                Thread.sleep(10);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** A server that changes its role drops connections. */
    private static boolean holds(BooleanSupplier condition) {
        try {
            return condition.getAsBoolean();
        } catch (RedisException lost) {
            return false;
        }
    }

    private static int freePort() {
        while (true) {
            try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                if (socket.getLocalPort() <= MAX_PORT) {
                    return socket.getLocalPort();
                }
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
