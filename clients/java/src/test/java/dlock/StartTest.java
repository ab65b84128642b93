package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.testing.TestServer;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.protocol.ProtocolVersion;
import java.time.Duration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** A server that starts while a program asks it for its first lock. */
class StartTest {
    private static final LockOptions PATIENT = LockOptions.defaults().timeout(Duration.ofSeconds(30));

    /** Needs 2 ms for each key that it loads, and replies meanwhile. */
    private final TestServer server =
            new TestServer("--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024");

    private final RedisClient client = server.client();
    private final Locks locks = Locks.open(client);

    @AfterEach
    void stop() {
        client.shutdown();
        server.close();
    }

    /** With RESP2, Lettuce sends a PING before all else, which a server that is loading refuses. */
    @ParameterizedTest
    @EnumSource(ProtocolVersion.class)
    void first_acquire_waits_for_a_server_that_is_loading(ProtocolVersion protocol) throws Exception {
        client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
        for (int n = 0; n < 1_000; n++) {
            server.call("SET k" + n + " value");
        }
        server.call("SAVE");
        server.kill();
        server.start();
        assertTrue(server.info("persistence").contains("loading:1"), "it has loaded already");
        assertEquals("LOADING", assertThrows(LockException.class, () -> locks.tryAcquire("k")).word());
        try (Held held = locks.acquire("k", PATIENT)) {
            assertTrue(held.isHeld());
        }
    }

    @Test
    void first_acquire_is_told_that_nobody_listens_and_the_next_has_the_lock() throws Exception {
        server.kill();
        assertEquals("CONNECTION", assertThrows(LockException.class, () -> locks.acquire("k", PATIENT)).word());
        server.start();
        try (Held held = locks.acquire("k", PATIENT)) {
            assertTrue(held.isHeld());
        }
    }
}
