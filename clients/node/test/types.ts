// Is compiled, not run: each client of both libraries fits, and what a program does with a lock has types.
import { Cluster, Redis } from "ioredis";
import { Cluster as Cluster5, Redis as Redis5 } from "ioredis-5";
import { createClient, createCluster, createSentinel } from "redis";
import * as redis5 from "redis-5";
import { fromIoredis, fromNodeRedis, LockError, Locks, Lost, type Lock } from "redis-dlock";

const sentinels = { name: "locks", sentinelRootNodes: [{ host: "127.0.0.1", port: 26379 }] };
export const clients = () => [
  fromIoredis(new Redis()),
  fromIoredis(new Cluster([])),
  fromIoredis(new Redis5()),
  fromIoredis(new Cluster5([])),
  fromNodeRedis(createClient()),
  fromNodeRedis(createClient({ RESP: 2 })),
  fromNodeRedis(createCluster({ rootNodes: [] })),
  fromNodeRedis(createSentinel(sentinels)),
  fromNodeRedis(redis5.createClient()),
  fromNodeRedis(redis5.createCluster({ rootNodes: [] })),
  fromNodeRedis(redis5.createSentinel(sentinels)),
];

export async function work(locks: Locks): Promise<number | null> {
  await using tried = await locks.tryAcquire("k", { shared: true });
  if (!tried) return null;
  const held: Lock = await locks.acquire("l", { timeout: 1_000, signal: tried.signal });
  const sum: number = await locks.using("m", 1_000, (signal, lock) => (signal.aborted ? 0 : lock.fence));
  return await held.release().then(
    () => sum,
    (error: LockError) => (error instanceof Lost ? null : error.word.length),
  );
}
