// by_hand.mjs PORT LOCKS ROUNDS: prints in how many ms ioredis alone sends that many DLOCK.ACQUIREs in the last round, all
// at once.
import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";

const [port, locks, rounds] = process.argv.slice(2).map(Number);
const redis = new Redis(port, "127.0.0.1");
const names = Array.from({ length: locks }, (_, number) => `by-hand:${number}`);
let took;
for (let round = 0; round < rounds; round++) {
  const began = performance.now();
  await Promise.all(
    names.map((name) => {
      const owner = `by-hand:${randomUUID()}`;
      return redis.call("DLOCK.ACQUIRE", name, owner, "30000", "REQID", owner);
    }),
  );
  took = performance.now() - began;
  await redis.del(...names);
}
console.log(took);
redis.disconnect();
