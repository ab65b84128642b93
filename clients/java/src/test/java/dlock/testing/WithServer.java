package dlock.testing;

import dlock.Locks;
import io.lettuce.core.RedisClient;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;

/** Tests on one server, on which each of them begins and ends with no lock. */
public abstract class WithServer {
    protected static TestServer server;
    protected RedisClient client;
    protected Locks locks;

    @BeforeAll
    protected static void startServer() {
        server = new TestServer();
    }

    @AfterAll
    protected static void stopServer() {
        if (server != null) {
            server.close();
        }
    }

    @BeforeEach
    protected void open() {
        client = server.client();
        locks = Locks.open(client);
    }

    @AfterEach
    protected void nothingIsLeft() {
        locks.close();
        client.shutdown();
        server.untilNothingIsLeft();
    }
}
