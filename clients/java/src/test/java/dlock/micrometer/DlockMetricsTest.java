package dlock.micrometer;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dlock.Held;
import dlock.LockOptions;
import dlock.Locks;
import dlock.testing.TestServer;
import io.lettuce.core.RedisClient;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class DlockMetricsTest {
    @Test
    void meters_count_waits_holds_and_losses() throws Exception {
        SimpleMeterRegistry meters = new SimpleMeterRegistry();
        try (TestServer server = new TestServer(); RedisClient client = server.client()) {
            Locks locks = Locks.open(client, new DlockMetrics(meters));
            try (Held held = locks.acquire("k")) {
                locks.tryAcquire("k");
            }
            locks.acquire("k", LockOptions.defaults().maxHold(Duration.ofMillis(10))).lost().get();
            TestServer.until("the loss is counted", () -> meters.find("dlock.lost").counter() != null);
            assertEquals(2, meters.get("dlock.wait").tag("outcome", "acquired").timer().count());
            assertEquals(1, meters.get("dlock.wait").tag("outcome", "taken").timer().count());
            assertEquals(1, meters.get("dlock.hold").tag("outcome", "released").timer().count());
            assertEquals(1, meters.get("dlock.hold").tag("outcome", "lost").timer().count());
            assertEquals(1, meters.get("dlock.lost").tag("reason", "MAXHOLD").counter().count());
        }
    }
}
