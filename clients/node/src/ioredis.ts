import { once } from "node:events";
import { TIMEOUT, type Client, type Connection } from "./client.js";
import { parse } from "./slot.js";

/** What is used of an ioredis client. */
interface IoRedis {
  options: { host?: string | undefined; port?: number | undefined };
  duplicate(options: object): any;
  call(command: string, ...args: string[]): Promise<unknown>;
}

interface IoRedisCluster {
  connect(): Promise<unknown>;
  nodes(): IoRedis[];
  slots: string[][];
  status: string;
}

/** Options that would time out, reconnect, or repeat commands. */
const TIMEOUTS = { commandTimeout: undefined, socketTimeout: undefined };
const STRATEGIES = { retryStrategy: null, sentinelRetryStrategy: null, reconnectOnError: null };

/** Locks on the server, the primary of the Sentinels, or the cluster of this client of ioredis 5 or 6. */
export function fromIoredis(client: IoRedis | IoRedisCluster): Client {
  if (!("nodes" in client)) return { connection: async () => connection(client) };
  const ready = async () => {
    if (client.status === "wait") await client.connect();
    else if (client.status !== "ready") await once(client as never, "ready", { signal: AbortSignal.timeout(TIMEOUT) });
    return client;
  };
  return {
    connection: async (address) => connection((await ready()).nodes()[0]!, parse(address)),
    nodes: () => client.nodes().map(({ options }) => `${options.host}:${options.port}`),
    primary: async (slot) => (await ready()).slots[slot]?.[0],
  };
}

function connection(client: IoRedis, address?: object): Connection {
  const own = client.duplicate({ lazyConnect: true, ...TIMEOUTS, ...STRATEGIES, ...address });
  let cause: unknown;
  own.on("error", (error: unknown) => (cause = error));
  return {
    async connect(onEnd) {
      own.on("end", onEnd);
      await own.connect().catch((error: unknown) => Promise.reject(cause ?? error));
      own.stream.unref();
    },
    send: (args) => own.call(...args),
    close: () => own.disconnect(),
  };
}
