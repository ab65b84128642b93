export type { Client, Connection } from "./client.js";
export { AcquireTimeout, LockError, Lost } from "./errors.js";
export type { Lock, LockOptions } from "./hold.js";
export { fromIoredis } from "./ioredis.js";
export { Locks } from "./locks.js";
export { fromNodeRedis } from "./node-redis.js";
