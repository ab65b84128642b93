import { NAME, TIMEOUT, type Client, type Connection, type Replies } from "./client.js";
import { checkKind } from "./kinds.js";
import { parse } from "./slot.js";

/** What is used of a client of node-redis. */
interface NodeRedis {
  options?: { name?: string; socket?: object };
  duplicate(options: object): any;
}

interface NodeRedisSentinel {
  getMasterNode(): unknown;
  _execute<T>(isReadonly: boolean, withPrimary: (client: any) => Promise<T>): Promise<T>;
}

interface NodeRedisCluster {
  slots: { master: { address: string } }[];
  nodeByAddress: Map<string, any>;
  nodeClient(node: any): Promise<any>;
}

/** Instead of options that would reject commands, change replies, or set timers, which keep a process alive. */
const OWN = { commandsQueueMaxLength: undefined, commandOptions: { timeout: undefined }, pingInterval: 0 };
/** If connecting took longer than we wait for it, `destroy` would not end it. */
const SOCKET = { connectTimeout: TIMEOUT, socketTimeout: undefined, reconnectStrategy: false };

/** The type of RESP for strings, and what becomes of them for each kind of replies. */
const BLOB_STRING = 36;
const REPLIES = { text: {}, bytes: { typeMapping: { [BLOB_STRING]: Buffer } } };

/** Locks on the server, the primary of the Sentinels, or the cluster of this client of node-redis 5 or 6. */
export function fromNodeRedis(client: NodeRedis | NodeRedisSentinel | NodeRedisCluster): Client {
  checkKind(client, "fromNodeRedis");
  if ("getMasterNode" in client) return fromSentinel(client);
  return "nodeByAddress" in client ? fromCluster(client) : fromClient(client);
}

function fromClient(client: NodeRedis): Client {
  const socket: { host?: string; port?: number; path?: string } = client.options?.socket ?? {};
  const { host = "localhost", port = 6379, path } = socket;
  const server = path ?? `${host}:${port}`;
  return { source: client, server, connection: async (_address, replies) => connection(client, replies) };
}

function fromSentinel(client: NodeRedisSentinel): Client {
  return {
    source: client,
    server: "the primary of the Sentinels",
    connection: (_address, replies) => client._execute(false, async (primary) => connection(primary, replies)),
  };
}

function fromCluster(client: NodeRedisCluster): Client {
  return {
    source: client,
    server: "the cluster",
    async connection(address, replies) {
      const nodes = [...client.nodeByAddress.values()];
      const node = await client.nodeClient(nodes.find(({ client }) => client) ?? nodes[0]);
      return connection(node, replies, parse(address));
    },
    nodes: () => [...client.nodeByAddress.keys()],
    primary: async (slot) => client.slots[slot]?.master.address,
  };
}

function connection(client: NodeRedis, replies: Replies, address?: object): Connection {
  const own = client.duplicate({ ...OWN, socket: { ...client.options?.socket, ...address, ...SOCKET } });
  own.unref();
  return {
    async connect(onEnd) {
      own.on("error", onEnd);
      await own.connect();
      // As an option, it would need the right to it.
      if (!client.options?.name) own.sendCommand(["CLIENT", "SETNAME", NAME]).catch(() => {});
    },
    send: (args) => own.sendCommand(args, REPLIES[replies]),
    close: () => own.destroy(),
  };
}
