/** An own connection, of a client that neither reconnects nor repeats commands by itself. */
export interface Connection {
  /** `onEnd` is called when the connection was lost. All commands without a reply are rejected then. */
  connect(onEnd: () => void): Promise<unknown>;
  send(args: string[]): Promise<unknown>;
  close(): void;
}

/** What Locks need of a Redis client. */
export interface Client {
  /** Makes a connection to the primary, or to the node of a cluster at this address. */
  connection(address: string): Promise<Connection>;
  /** Only of a cluster. */
  cluster?: {
    /** The addresses of the nodes. */
    nodes(): string[];
    /** The address of the slot's primary, as far as the client knows. */
    primary(slot: number): Promise<string | undefined>;
  };
}

/** How long connecting may take, and how long a reply. Short compared with the lease. */
export const RESPONSE_TIMEOUT = 3_000;

export function hostAndPort(address: string): { host: string; port: number } {
  const colon = address.lastIndexOf(":");
  return { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) };
}
