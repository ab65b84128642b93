package dlock;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dlock.testing.ScriptedClient;
import dlock.testing.ScriptedClient.Sent;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
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

    @Test
    void grant_for_a_request_that_has_timed_out_is_given_back() throws Exception {
        LockOptions options = LockOptions.defaults().timeout(Duration.ofMillis(100));
        CompletableFuture<Held> acquired = Locks.open(client).acquireAsync("k", options);
        Sent acquire = client.next("DLOCK.ACQUIRE");
        Sent withdrawal = client.next("DLOCK.RELEASE");
        assertThrows(ExecutionException.class, acquired::get);
        withdrawal.fail("NOTHELD nothing");
        acquire.reply(List.of(7L, 1L, 30_000L, 0L));
        Sent release = client.next("DLOCK.RELEASE");
        assertArrayEquals(withdrawal.lastWord(), release.lastWord(), "another request");
        release.reply(1L);
    }
}
