import { once } from "node:events";
import { NAME, TIMEOUT, type Client, type Connection, type Replies } from "./client.js";
import { checkKind } from "./kinds.js";
import { parse } from "./slot.js";

/** What is used of an ioredis client. */
interface IoRedis {
  options: {
    host?: string | undefined;
    port?: number | undefined;
    path?: string | undefined;
    sentinels?: unknown;
    name?: string | undefined;
    connectionName?: string | undefined;
  };
  duplicate(options: object): any;
  call(command: string, ...args: string[]): Promise<unknown>;
}

interface IoRedisCluster {
  connect(): Promise<unknown>;
  nodes(): IoRedis[];
  slots: string[][];
  status: string;
}

/** Instead of options that would time out, reconnect, or repeat commands. Pipelines lose the name of a callBuffer. */
const TIMEOUTS = { commandTimeout: undefined, socketTimeout: undefined, enableAutoPipelining: false };
const STRATEGIES = { retryStrategy: null, sentinelRetryStrategy: null, reconnectOnError: null };

/** How many commands go in one write at most. */
const MOST_TOGETHER = 100;

/** Locks on the server, the primary of the Sentinels, or the cluster of this client of ioredis 5 or 6. */
export function fromIoredis(client: IoRedis | IoRedisCluster): Client {
  checkKind(client, "fromIoredis");
  return "nodes" in client ? fromCluster(client) : fromRedis(client);
}

function fromRedis(client: IoRedis): Client {
  const { host, port, path, sentinels, name } = client.options;
  const server = sentinels ? `the primary ${name}` : (path ?? `${host}:${port}`);
  return { source: client, server, connection: async (_address, replies) => connection(client, replies) };
}

function fromCluster(client: IoRedisCluster): Client {
  const ready = async () => {
    if (client.status === "wait") await client.connect();
    else if (client.status !== "ready") await once(client as never, "ready", { signal: AbortSignal.timeout(TIMEOUT) });
    return client;
  };
  return {
    source: client,
    server: "the cluster",
    connection: async (address, replies) => connection((await ready()).nodes()[0]!, replies, parse(address)),
    nodes: () => client.nodes().map(({ options }) => `${options.host}:${options.port}`),
    primary: async (slot) => (await ready()).slots[slot]?.[0],
  };
}

function connection(client: IoRedis, replies: Replies, address?: object): Connection {
  const connectionName = client.options.connectionName ?? NAME;
  const own = client.duplicate({ lazyConnect: true, connectionName, ...TIMEOUTS, ...STRATEGIES, ...address });
  let corked = 0;
  // What one turn of the event loop sends goes together, but the server need not wait for all of it.
  const cork = () => {
    const { stream } = own;
    if (corked % MOST_TOGETHER === 0) {
      stream.uncork();
      stream.cork();
    }
    if (corked++ > 0) return;
    process.nextTick(() => {
      corked = 0;
      stream.uncork();
    });
  };
  let cause: unknown;
  own.on("error", (error: unknown) => (cause = error));
  return {
    async connect(onEnd) {
      own.on("end", onEnd);
      await own.connect().catch((error: unknown) => Promise.reject(cause ?? error));
      own.stream.unref();
    },
    send: (args) => {
      cork();
      return replies === "bytes" ? own.callBuffer(...args) : own.call(...args);
    },
    close() {
      own.disconnect();
      // That alone waits for the server.
      own.stream?.destroy();
    },
  };
}
