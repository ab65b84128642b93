package dlock;

import static dlock.testing.TestServer.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dlock.testing.TestServer;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Clusters, and a primary that Sentinels watch. */
class TopologiesTest {
    private static final LockOptions LEASE = LockOptions.defaults().lease(Duration.ofSeconds(20));
    private final List<TestServer> servers = new ArrayList<>();

    @AfterEach
    void stop() {
        servers.forEach(TestServer::close);
    }

    private TestServer start(String... settings) {
        TestServer server = new TestServer(settings);
        servers.add(server);
        return server;
    }

    /** Three primaries, and a replica of the first. */
    private void startCluster() {
        for (int n = 0; n < 4; n++) {
            start("--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
                    "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0");
        }
        for (int n = 0; n < 3; n++) {
            int first = n * 16_384 / 3;
            servers.get(n).call("CLUSTER ADDSLOTSRANGE " + first + " " + ((n + 1) * 16_384 / 3 - 1));
            servers.get(n).call("CLUSTER SET-CONFIG-EPOCH " + (n + 1));
        }
        servers.subList(1, 4).forEach(each -> each.call("CLUSTER MEET 127.0.0.1 " + servers.get(0).port));
        untilAllSay("the nodes know each other", "cluster_known_nodes:4");
        servers.get(3).call("CLUSTER REPLICATE " + servers.get(0).call("CLUSTER MYID"));
        untilAllSay("the cluster is up", "cluster_state:ok");
        until("the replica is in sync", () -> servers.get(3).info("replication").contains("master_link_status:up"));
    }

    private void untilAllSay(String what, String line) {
        servers.forEach(each -> until(what, () -> each.clusterInfo().contains(line)));
    }

    private RedisClusterClient clusterClient() {
        return RedisClusterClient.create(TestServer.RESOURCES, servers.get(1).uri());
    }

    /** A key in the slots of the first node. */
    private static String keyOfFirst() {
        return IntStream.range(0, 100).mapToObj(n -> "k" + n)
                .filter(key -> SlotHash.getSlot(key) < 16_384 / 3).findFirst().orElseThrow();
    }

    @Test
    void locks_of_a_cluster_are_on_all_its_primaries() throws Exception {
        startCluster();
        try (RedisClusterClient client = clusterClient(); Locks locks = Locks.open(client)) {
            List<Held> held = new ArrayList<>();
            for (int n = 0; n < 30; n++) {
                held.add(locks.acquire("{k" + n + "}", LEASE));
            }
            assertEquals(30, servers.subList(0, 3).stream().mapToLong(each -> each.stat("locks")).sum());
            servers.subList(0, 3).forEach(each -> assertTrue(each.stat("locks") > 0));
            for (int n = 0; n < 30; n++) {
                assertEquals("OK", held.get(n).query("SET", "{k" + n + "}d", n));
            }
            CompletableFuture<Held> waiting = locks.acquireAsync("{k0}", LEASE);
            held.forEach(Held::release);
            waiting.get().release();
        }
    }

    @Test
    void client_of_one_server_is_told_that_it_is_a_node_of_a_cluster() {
        startCluster();
        try (RedisClient client = servers.get(1).client()) {
            LockException error = assertThrows(LockException.class, () -> Locks.open(client).acquire(keyOfFirst()));
            assertEquals("MOVED", error.word());
            assertTrue(error.getMessage().endsWith("is a node of a cluster: pass a RedisClusterClient"));
        }
    }

    @Test
    void lock_and_queue_survive_the_failover_of_a_node() throws Exception {
        startCluster();
        try (RedisClusterClient client = clusterClient(); RedisClusterClient other = clusterClient()) {
            assertSurvives(Locks.open(client), Locks.open(other), keyOfFirst(), servers.get(3));
        }
    }

    @Test
    void slot_that_has_moved_is_found() throws Exception {
        startCluster();
        String key = keyOfFirst();
        int slot = SlotHash.getSlot(key);
        try (RedisClusterClient client = clusterClient(); Locks locks = Locks.open(client)) {
            locks.acquire(key).release();
            String to = servers.get(1).call("CLUSTER MYID");
            for (int n : new int[] {1, 0, 2}) {
                servers.get(n).call("CLUSTER SETSLOT " + slot + " NODE " + to);
            }
            try (Held held = locks.acquire(key)) {
                assertTrue(held.isHeld());
                assertEquals(1, servers.get(1).stat("locks"));
            }
        }
    }

    @Test
    void lock_and_queue_survive_the_failover_of_a_primary_that_sentinels_watch() throws Exception {
        TestServer primary = start();
        TestServer replica = start("--replicaof", "127.0.0.1 " + primary.port, "--repl-diskless-sync-delay", "0");
        until("the replica is in sync", () -> replica.info("replication").contains("master_link_status:up"));
        TestServer sentinel = TestServer.sentinelOf(primary);
        servers.add(sentinel);
        until("the Sentinel knows the replica", () -> sentinel.info("sentinel").contains("slaves=1"));
        RedisURI uri = RedisURI.Builder.sentinel("127.0.0.1", sentinel.port, "main").build();
        try (RedisClient client = RedisClient.create(TestServer.RESOURCES, uri);
                RedisClient other = RedisClient.create(TestServer.RESOURCES, uri)) {
            assertSurvives(Locks.open(client), Locks.open(other), "k", replica);
        }
    }

    /** The first of the servers, which has the lock, is killed, and this one takes its place. */
    private void assertSurvives(Locks locks, Locks otherLocks, String key, TestServer next) throws Exception {
        Held held = locks.acquire(key, LEASE);
        CompletableFuture<Held> second = otherLocks.acquireAsync(key, LEASE);
        CompletableFuture<Held> third = locks.acquireAsync(key, LEASE);
        servers.get(0).untilWaiting(2);
        until("the replica has the lock", () -> next.stat("locks") == 1);
        servers.get(0).kill();
        until("the replica is promoted", () -> next.info("replication").contains("role:master"));
        next.untilWaiting(2);
        assertTrue(held.isHeld());
        held.extend(Duration.ofSeconds(30));
        assertFalse(second.isDone() || third.isDone());
        held.release();
        // The inboxes of the two clients may have ended meanwhile, and with them their places.
        Held later = (Held) CompletableFuture.anyOf(second, third).get(20, TimeUnit.SECONDS);
        assertTrue(later.fence() > held.fence());
        assertFalse(second.isDone() && third.isDone());
        later.release();
        CompletableFuture.allOf(second, third).get(20, TimeUnit.SECONDS);
        second.get().release();
        third.get().release();
        next.untilNothingIsLeft();
        locks.close();
        otherLocks.close();
    }
}
