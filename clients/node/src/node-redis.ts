import { hostAndPort, RESPONSE_TIMEOUT, type Client, type Connection } from "./client.js";

/** What is used of a client of node-redis 5 or 6. */
export interface NodeRedis {
  duplicate(overrides: object): NodeRedis;
  connect(): Promise<unknown>;
  sendCommand(args: string[]): Promise<unknown>;
  on(event: string, listener: (...args: any[]) => void): unknown;
  options?: { socket?: object };
  unref(): void;
  destroy(): void;
}

/** What is used of a Sentinel client of node-redis. */
export interface NodeRedisSentinel {
  getMasterNode(): unknown;
  /** Calls back with a client of the primary. */
  _execute<T>(isReadonly: boolean, callback: (primary: any) => Promise<T>): Promise<T>;
}

/** What is used of a cluster client of node-redis. */
export interface NodeRedisCluster {
  slots: { master: { address: string } }[];
  nodeByAddress: Map<string, any>;
  nodeClient(node: any): Promise<unknown>;
}

/** Options that would repeat or reject commands, reconnect, or change replies. */
const OWN = {
  disableOfflineQueue: true,
  commandsQueueMaxLength: undefined,
  commandOptions: { timeout: undefined },
  pingInterval: undefined,
  readonly: false,
  clientSideCache: undefined,
  emitInvalidate: false,
  maintNotifications: "disabled",
};

/** Locks on the server, the Sentinels or the cluster of this client, which is connected. */
export function fromNodeRedis(client: NodeRedis | NodeRedisSentinel | NodeRedisCluster): Client {
  if ("nodeByAddress" in client) {
    return {
      async connection(address) {
        const nodes = [...client.nodeByAddress.values()];
        const node = nodes.find((node) => node.client) ?? nodes[0];
        if (!node) throw new Error("the cluster client knows no node: connect it first");
        return connection((await client.nodeClient(node)) as NodeRedis, hostAndPort(address));
      },
      cluster: {
        nodes: () => [...client.nodeByAddress.keys()],
        primary: async (slot) => client.slots[slot]?.master.address,
      },
    };
  }
  if ("getMasterNode" in client) {
    return { connection: () => client._execute(false, async (primary) => connection(primary, {})) };
  }
  return { connection: async () => connection(client, {}) };
}

function connection(client: NodeRedis, address: object): Connection {
  const socket = { connectTimeout: RESPONSE_TIMEOUT, socketTimeout: undefined, reconnectStrategy: false };
  const own = client.duplicate({ ...OWN, socket: { ...client.options?.socket, ...address, ...socket } });
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
