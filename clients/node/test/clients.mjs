// The clients that the tests and the driver run on, by name. Each takes an address. None is connected: Locks open their
// own connections.
import { fromIoredis, fromNodeRedis } from "redis-dlock";

const ioredis = (module) => async (url) => {
  const { Redis } = await import(module);
  return fromIoredis(new Redis(url, { lazyConnect: true }));
};

const nodeRedis = (module) => async (url) => {
  const { createClient } = await import(module);
  return fromNodeRedis(createClient({ url }));
};

export const clients = {
  ioredis: ioredis("ioredis"),
  "ioredis-5": ioredis("ioredis-5"),
  "node-redis": nodeRedis("redis"),
  "node-redis-5": nodeRedis("redis-5"),
};
