// The clients that the tests and the driver run on, by name. Each takes an address, and perhaps more options. Those of
// one server are not connected: Locks open their own connections.
import { fromIoredis, fromNodeRedis } from "redis-dlock";

const CLUSTER = "redis+cluster:";
/** A Sentinel that knows the primary `main`. */
const SENTINEL = "redis+sentinel:";

/** Clients tell the loss of their own connections, too. */
const withoutErrors = (client) => client.on("error", () => {});

const ioredis = (module) => async (url, options) => {
  const { Cluster, Redis } = await import(module);
  const { protocol, hostname: host, port } = new URL(url);
  const node = { host, port: Number(port) };
  if (protocol === CLUSTER) return fromIoredis(withoutErrors(new Cluster([node])));
  const sentinels = protocol === SENTINEL ? [{ sentinels: [node], name: "main" }] : [url];
  return fromIoredis(new Redis(...sentinels, { lazyConnect: true, ...options }));
};

const nodeRedis = (module) => async (url, options) => {
  const { createClient, createCluster, createSentinel } = await import(module);
  const { protocol, hostname: host, port } = new URL(url);
  if (protocol === CLUSTER) {
    const client = withoutErrors(createCluster({ rootNodes: [{ url: `redis://${host}:${port}` }] }));
    return fromNodeRedis(await client.connect());
  }
  if (protocol === SENTINEL) {
    const client = withoutErrors(createSentinel({ name: "main", sentinelRootNodes: [{ host, port: Number(port) }] }));
    return fromNodeRedis(await client.connect());
  }
  return fromNodeRedis(createClient({ url, ...options }));
};

export const clients = {
  ioredis: ioredis("ioredis"),
  "ioredis-5": ioredis("ioredis-5"),
  "node-redis": nodeRedis("redis"),
  "node-redis-5": nodeRedis("redis-5"),
};

/** Options with which a client itself times out, repeats or rejects commands, or changes replies. */
export const hostile = (name) => (name.startsWith("ioredis") ? HOSTILE_IOREDIS : HOSTILE_NODE_REDIS);

const HOSTILE_IOREDIS = {
  commandTimeout: 300,
  socketTimeout: 300,
  retryStrategy: () => 10,
  reconnectOnError: () => 2,
  autoResendUnfulfilledCommands: true,
  enableOfflineQueue: true,
  enableAutoPipelining: true,
  readOnly: true,
  stringNumbers: true,
  keyPrefix: "prefix:",
};

const BLOB_STRING = 36;
const HOSTILE_NODE_REDIS = {
  commandsQueueMaxLength: 2,
  commandOptions: { typeMapping: { [BLOB_STRING]: Buffer } },
  pingInterval: 300,
  disableOfflineQueue: false,
  RESP: 3,
  emitInvalidate: true,
  maintNotifications: "auto",
  socket: { socketTimeout: 300, reconnectStrategy: () => 10 },
};
