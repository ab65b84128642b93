export type { Client, Connection } from "./client.js";
export { AcquireTimeout, ConnectionError, Lost, ServerError, type LostReason } from "./errors.js";
export { fromIoredis } from "./ioredis.js";
export type { Lock } from "./lock.js";
export { Locks, type AcquireOptions, type TryOptions } from "./locks.js";
export { fromNodeRedis } from "./node-redis.js";
