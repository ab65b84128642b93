// Clusters and Sentinels, on each client library.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fromIoredis, fromNodeRedis, Locks } from "redis-dlock";
import { cleanUp, skip, startCluster, startSentinel, startServer, until } from "./server.mjs";

const ioredis = (module) => ({
  async cluster(port) {
    const { Cluster } = await import(module);
    const client = new Cluster([{ host: "127.0.0.1", port }]);
    client.on("error", () => {});
    return [fromIoredis(client), () => client.disconnect()];
  },
  async sentinel(port) {
    const { Redis } = await import(module);
    const sentinels = [{ host: "127.0.0.1", port }];
    return [fromIoredis(new Redis({ sentinels, name: "locks", lazyConnect: true })), () => {}];
  },
});

const nodeRedis = (module) => ({
  async cluster(port) {
    const { createCluster } = await import(module);
    const client = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] });
    client.on("error", () => {});
    await client.connect();
    return [fromNodeRedis(client), () => client.destroy()];
  },
  async sentinel(port) {
    const { createSentinel } = await import(module);
    const client = createSentinel({ name: "locks", sentinelRootNodes: [{ host: "127.0.0.1", port }] });
    client.on("error", () => {});
    await client.connect();
    return [fromNodeRedis(client), () => client.destroy()];
  },
});

const libraries = {
  ioredis: ioredis("ioredis"),
  "ioredis-5": ioredis("ioredis-5"),
  "node-redis": nodeRedis("redis"),
  "node-redis-5": nodeRedis("redis-5"),
};

/** Keys whose slots are of the first and of the second primary. */
const [FIRST, SECOND] = ["b", "a"];

for (const [name, connect] of Object.entries(libraries)) {
  describe(name, { skip, concurrency: true }, () => {
    const begin = async (t, topology, port) => {
      const [client, end] = await connect[topology](port);
      const locks = new Locks(client);
      cleanUp(t, async () => {
        await locks.close();
        await end();
      });
      return locks;
    };

    test("a cluster's locks are acquired, waited for and renewed on each primary", async (t) => {
      const { first, second } = await startCluster(t);
      const locks = await begin(t, "cluster", first.port);
      const useBoth = [[FIRST, first], [SECOND, second]].map(async ([key, node]) => {
        const lock = await locks.acquire(key, { lease: 4_000 });
        const work = async () => (await locks.acquire(key, { lease: 4_000 })).release();
        const waiting = Array.from({ length: 20 }, work);
        await until(async () => (await node.info(key)).waiting === 20);
        await sleep(5_000);
        assert.equal(await lock.query("SET", `{${key}}:data`, 1), "OK");
        await lock.release();
        await Promise.all(waiting);
      });
      await Promise.all(useBoth);
      assert.equal(await first.connections("cmd=dlock"), 2);
      await locks.using([FIRST, SECOND], 4_000, async (signal, one, other) => assert.ok(one.isHeld && other.isHeld));
    });

    test("a waiting request follows its slot to another primary", async (t) => {
      const { first, second, replica } = await startCluster(t);
      const locks = await begin(t, "cluster", first.port);
      const slot = await first.ask("CLUSTER", "KEYSLOT", FIRST);
      const held = await locks.acquire(FIRST);
      const waiting = locks.acquire(FIRST);
      await until(async () => (await first.info(FIRST)).waiting === 1);
      const [from, to] = [await first.ask("CLUSTER", "MYID"), await second.ask("CLUSTER", "MYID")];
      await second.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", from);
      await first.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", to);
      await first.ask("MIGRATE", "127.0.0.1", second.port, FIRST, 0, 5_000);
      for (const node of [second, first]) await node.ask("CLUSTER", "SETSLOT", slot, "NODE", to);
      await until(async () => (await second.info(FIRST)).waiting === 1);
      await held.release();
      await (await waiting).release();
      assert.equal((await second.info(FIRST)).holders, 0);
      await replica.ask("PING");
    });

    test("after a failover of a cluster's primary, waiting requests and locks go on", async (t) => {
      const { first, replica } = await startCluster(t);
      const locks = await begin(t, "cluster", first.port);
      const held = await locks.acquire(FIRST, { lease: 10_000 });
      const waiting = locks.acquire(FIRST);
      await until(async () => (await first.info(FIRST)).waiting === 1);
      await first.ask("WAIT", 1, 1_000);
      first.child.kill("SIGKILL");
      await replica.ask("CLUSTER", "FAILOVER", "TAKEOVER");
      await until(async () => (await replica.info(FIRST)).waiting === 1, 20_000);
      await held.release();
      await (await waiting).release();
    });

    test("after a failover by Sentinels, waiting requests and locks go on", async (t) => {
      const primary = await startServer(t);
      const replica = await startServer(t, "--replicaof", "127.0.0.1", primary.port);
      await until(async () => (await replica.ask("INFO", "replication")).includes("master_link_status:up"));
      const sentinel = await startSentinel(t, primary);
      await until(async () => (await sentinel.ask("SENTINEL", "REPLICAS", "locks")).length === 1, 20_000);
      const locks = await begin(t, "sentinel", sentinel.port);
      const held = await locks.acquire("k", { lease: 20_000 });
      const waiting = locks.acquire("k");
      await until(async () => (await primary.info("k")).waiting === 1);
      await primary.ask("WAIT", 1, 1_000);
      primary.child.kill("SIGKILL");
      await until(async () => (await replica.info("k").catch(() => ({}))).waiting === 1, 30_000);
      await held.release();
      await (await waiting).release();
    });
  });
}

for (const module of ["ioredis", "ioredis-5"]) {
  test(`a cluster's client of ${module} that has ended makes requests fail, and no program hang`, async () => {
    const { Cluster } = await import(module);
    const client = new Cluster([{ host: "127.0.0.1", port: 1 }], { lazyConnect: true });
    client.disconnect();
    const locks = new Locks(fromIoredis(client));
    await assert.rejects(locks.tryAcquire("k"), (error) => error.word === "CONNECTION");
    await locks.close();
  });
}
