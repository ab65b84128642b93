// by_hand.mjs PORT LOCKS: prints in how many ms ioredis alone sends that many DLOCK.ACQUIREs, all at once.
import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";

const [port, locks] = process.argv.slice(2).map(Number);
const redis = new Redis(port, "127.0.0.1");
// It connects.
await redis.ping();
const names = Array.from({ length: locks }, (_, number) => `by-hand:${number}`);
const began = performance.now();
await Promise.all(
  names.map((name) => {
    const owner = `by-hand:${randomUUID()}`;
    return redis.call("DLOCK.ACQUIRE", name, owner, "30000", "REQID", owner);
  }),
);
console.log(performance.now() - began);
await redis.del(...names);
redis.disconnect();
