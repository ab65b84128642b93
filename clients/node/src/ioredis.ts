import { once } from "node:events";

import { hostAndPort, RESPONSE_TIMEOUT, type Client, type Connection } from "./client.js";

/** What is used of an ioredis client: of 5 and 6, and of iovalkey. */
export interface IoRedis {
  duplicate(override: object): IoRedis;
  connect(): Promise<unknown>;
  call(command: string, ...args: string[]): Promise<unknown>;
  on(event: string, listener: (...args: any[]) => void): unknown;
  disconnect(): void;
  stream: { unref(): unknown };
}

/** What is used of an ioredis Cluster. */
export interface IoRedisCluster {
  nodes(): IoRedis[];
  slots: string[][];
  status: string;
  connect(): Promise<unknown>;
  on(event: string, listener: (...args: any[]) => void): unknown;
}

/** Options that would repeat commands, reconnect, or change replies. */
const OWN = {
  lazyConnect: true,
  connectTimeout: RESPONSE_TIMEOUT,
  retryStrategy: null,
  sentinelRetryStrategy: null,
  reconnectOnError: null,
  autoResendUnfulfilledCommands: false,
  enableOfflineQueue: false,
  enableAutoPipelining: false,
  commandTimeout: undefined,
  socketTimeout: undefined,
  readOnly: false,
  stringNumbers: false,
};

/** Locks on the server, the Sentinels or the cluster of this client. */
export function fromIoredis(client: IoRedis | IoRedisCluster): Client {
  if (!("nodes" in client)) return { connection: async () => connection(client, {}) };
  const ready = async () => {
    if (client.status === "wait") await client.connect();
    else if (client.status !== "ready") await once(client as never, "ready");
  };
  return {
    async connection(address) {
      await ready();
      const [node] = client.nodes();
      if (!node) throw new Error("the cluster client knows no node");
      return connection(node, hostAndPort(address));
    },
    cluster: {
      nodes: () => Array.from(new Set(client.slots.flat())),
      async primary(slot) {
        await ready();
        return client.slots[slot]?.[0];
      },
    },
  };
}

function connection(client: IoRedis, address: object): Connection {
  const own = client.duplicate({ ...OWN, ...address });
  let cause: unknown;
  own.on("error", (error) => (cause = error));
  return {
    async connect(onEnd) {
      own.on("end", onEnd);
      await own.connect().catch((error) => Promise.reject(cause ?? error));
      own.stream.unref();
    },
    send: ([command, ...args]) => own.call(command!, ...args),
    close: () => own.disconnect(),
  };
}
