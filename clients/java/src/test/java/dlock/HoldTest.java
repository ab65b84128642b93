package dlock;

import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.testing.ScriptedClient;
import dlock.testing.ScriptedClient.Sent;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

class HoldTest {
    private final ScriptedClient client = new ScriptedClient();

    @Test
    void renewal_without_a_reply_is_repeated_once_on_the_next_connection() throws Exception {
        LockOptions options = LockOptions.defaults().lease(Duration.ofSeconds(6));
        CompletableFuture<Held> held = Locks.open(client).acquireAsync("k", options);
        client.next("DLOCK.ACQUIRE").reply(List.of(7L, 0L, 6_000L, 0L));
        client.next("DLOCK.EXTEND");
        client.loseConnections();
        Sent renewal = client.next("DLOCK.EXTEND");
        // After a loss, all locks are renewed within 500 ms.
        assertNull(client.next(1_000), "a renewal was sent twice");
        renewal.reply(6_000L);
        assertTrue(held.get().isHeld());
    }
}
