package dlock;

import static dlock.testing.TestServer.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import dlock.testing.ScriptedClient;
import dlock.testing.ScriptedClient.Sent;
import io.lettuce.core.ClientOptions;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;

class LinkTest {
    private static final long TIMEOUT_MS = 1_000;
    private final ScriptedClient client = new ScriptedClient();
    private final Loop loop = new Loop();
    /** Replies, and the words of errors, as they come. */
    private final List<Object> outcomes = new CopyOnWriteArrayList<>();

    private Link link() {
        return new Link(new Client.OfServer(client), loop, "", "the server", TIMEOUT_MS, () -> {});
    }

    private void send(Link link) {
        Done<Object> tell = (reply, error) -> outcomes.add(error == null ? reply : ((LockException) error).word());
        loop.execute(() -> link.send(() -> Words.of("PING"), tell));
    }

    @Test
    void server_that_replies_slowly_keeps_its_connection() throws Exception {
        Link link = link();
        for (int n = 0; n < 6; n++) {
            send(link);
        }
        for (int n = 0; n < 6; n++) {
            Sent sent = client.next("PING");
            Thread.sleep(TIMEOUT_MS / 4);
            sent.reply(n);
        }
        until("all have a reply", () -> outcomes.size() == 6);
        assertEquals(List.of(0, 1, 2, 3, 4, 5), outcomes);
    }

    @Test
    void server_that_is_silent_loses_its_connection() throws Exception {
        Link link = link();
        send(link);
        send(link);
        client.next("PING").reply("PONG");
        until("the silence is told", () -> outcomes.size() == 2);
        assertEquals(List.of("PONG", "CONNECTION"), outcomes);
    }

    @Test
    void command_that_a_connection_refuses_is_told_and_the_next_has_another_connection() throws Exception {
        Link link = link();
        send(link);
        client.next("PING").reply("PONG");
        client.refuse();
        send(link);
        until("it is told", () -> outcomes.equals(List.of("PONG", "CONNECTION")));
        send(link);
        client.next("PING").reply("PONG");
        until("it has a reply", () -> outcomes.size() == 3);
    }

    @Test
    void callback_that_fails_keeps_no_other_from_its_outcome() throws Exception {
        Link link = link();
        loop.execute(() -> link.send(() -> Words.of("PING"), (reply, error) -> {
            throw new IllegalStateException("the test wants it");
        }));
        send(link);
        client.next("PING");
        client.next("PING");
        client.loseConnections();
        until("the other is told", () -> outcomes.equals(List.of("CONNECTION")));
    }

    @Test
    void no_more_is_sent_than_the_queue_of_the_client_takes() throws Exception {
        client.setOptions(ClientOptions.builder().requestQueueSize(2).build());
        Link link = link();
        for (int n = 0; n < 3; n++) {
            send(link);
        }
        Sent first = client.next("PING");
        client.next("PING");
        assertNull(client.next(200), "it would be refused");
        first.reply("PONG");
        client.next("PING");
    }
}
