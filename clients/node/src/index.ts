export type { Client, Connection, Replies } from "./client.js";
export { AcquireTimeout, LockError, Lost } from "./errors.js";
export type { LockEvent } from "./events.js";
export type { Lock } from "./hold.js";
export { fromIoredis } from "./ioredis.js";
export { Locks, type LocksOptions } from "./locks.js";
export { fromNodeRedis } from "./node-redis.js";
export type { Key, LockOptions, TryOptions, Word } from "./options.js";
