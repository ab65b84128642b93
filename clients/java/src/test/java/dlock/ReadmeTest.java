package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.testing.TestServer;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The programs of README.md compile, and run one after the other. Of a change, what it adds and leaves does. */
class ReadmeTest {
    private static final Pattern PROGRAM = Pattern.compile("```(java|diff)\n(.*?)```", Pattern.DOTALL);

    @TempDir
    private Path directory;

    @Test
    void programs_of_the_readme_run() throws Exception {
        try (TestServer server = new TestServer()) {
            String output = run(server, programs()).replaceAll("[0-9]{6,}", "N");
            assertEquals("""
                    shipping order 42 with fence N
                    shipping order 42
                    order 42 with fence N
                    printing
                    stock 7 with fence N
                    """, output);
            server.untilNothingIsLeft();
        }
    }

    private static List<String> programs() throws IOException {
        return PROGRAM.matcher(Files.readString(Path.of("README.md"))).results()
                .map(program -> program.group(1).equals("java") ? program.group(2) : after(program.group(2)))
                // The bean of an application, which DlockLockRegistryTest has.
                .filter(program -> !program.startsWith("@Bean")).toList();
    }

    /** What is there after a change. */
    private static String after(String change) {
        return change.lines().filter(line -> !line.startsWith("-")).map(line -> line.substring(1))
                .collect(Collectors.joining("\n"));
    }

    private String run(TestServer server, List<String> programs) throws Exception {
        String program = """
                import dlock.*;
                import io.lettuce.core.RedisClient;
                import java.time.Duration;
                import java.util.concurrent.CompletableFuture;
                import java.util.concurrent.TimeUnit;

                class Readme {
                    public static void main(String[] args) throws Exception {
                        %s
                        locks.close();
                        System.exit(0);
                    }
                }
                """.formatted(String.join("\n", programs).replace("7379", "" + server.port));
        Path file = Files.writeString(directory.resolve("Readme.java"), program);
        String path = System.getProperty("java.class.path");
        List<String> compile = List.of("-d", directory.toString(), "-cp", path, file.toString());
        int failed = ToolProvider.getSystemJavaCompiler().run(null, null, null, compile.toArray(String[]::new));
        assertEquals(0, failed, program);
        List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/java"));
        command.addAll(List.of("-cp", directory + ":" + path, "Readme"));
        Path output = directory.resolve("output");
        Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT)
                .redirectOutput(output.toFile()).start();
        boolean hasEnded = process.waitFor(60, TimeUnit.SECONDS);
        process.destroyForcibly();
        assertTrue(hasEnded, "the programs do not end");
        assertEquals(0, process.exitValue(), Files.readString(output));
        return Files.readString(output);
    }
}
