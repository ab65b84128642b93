package dlock;

import static org.junit.jupiter.api.Assertions.assertNull;

import dlock.testing.ScriptedClient;
import dlock.testing.ScriptedClient.Sent;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class SessionTest {
    private final ScriptedClient client = new ScriptedClient();

    @Test
    void request_that_could_not_be_sent_yet_waits_for_older_ones_when_an_inbox_is_opened() throws Exception {
        Locks locks = Locks.open(client);
        // One more than may be without a reply.
        List<CompletableFuture<Held>> acquired = IntStream.rangeClosed(0, 1_000)
                .mapToObj(n -> locks.acquireAsync("k" + n, LockOptions.defaults()))
                .toList();
        Sent first = client.next("DLOCK.ACQUIRE");
        for (int n = 1; n < 1_000; n++) {
            client.next("DLOCK.ACQUIRE");
        }
        first.fail("NOINBOX none");
        client.next("DLOCK.GRANTS");
        assertNull(client.next(200), "it could be queued before older ones");
        acquired.forEach(each -> each.cancel(true));
    }
}
