import { TIMEOUT, type Client, type Connection } from "./client.js";
import { parse } from "./slot.js";

/** What is used of a client of node-redis. */
interface NodeRedis {
  options?: { socket?: object };
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

/** Locks on the server, the primary of the Sentinels, or the cluster of this client of node-redis 5 or 6. */
export function fromNodeRedis(client: NodeRedis | NodeRedisSentinel | NodeRedisCluster): Client {
  if ("getMasterNode" in client) {
    return { connection: () => client._execute(false, async (primary) => connection(primary)) };
  }
  if (!("nodeByAddress" in client)) return { connection: async () => connection(client) };
  return {
    async connection(address) {
      const nodes = [...client.nodeByAddress.values()];
      const node = await client.nodeClient(nodes.find(({ client }) => client) ?? nodes[0]);
      return connection(node, parse(address));
    },
    nodes: () => [...client.nodeByAddress.keys()],
    primary: async (slot) => client.slots[slot]?.master.address,
  };
}

function connection(client: NodeRedis, address?: object): Connection {
  const own = client.duplicate({ ...OWN, socket: { ...client.options?.socket, ...address, ...SOCKET } });
  own.unref();
  return {
    connect(onEnd) {
      own.on("error", onEnd);
      return own.connect();
    },
    send: (args) => own.sendCommand(args),
    close: () => own.destroy(),
  };
}
