import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

/** The words of a command. */
export type Args = (string | number | Buffer)[];

/** What Locks need of a Redis client. */
export interface Client {
  /** The client of the program: all Locks on it share their connections. */
  readonly source: object;
  /** What messages call the server: HOST:PORT, if that is known. */
  readonly server: string;
  /** Makes a connection to the primary, or to the node of a cluster at this address. */
  connection(address: string, replies: Replies): Promise<Connection>;
  /** In a cluster: the addresses of its nodes, and that of a slot's primary, as far as the client knows. */
  nodes?(): string[];
  primary?(slot: number): Promise<string | undefined>;
}

/** What strings in replies become. Keys may be bytes that are not text. */
export type Replies = "text" | "bytes";

/** An own connection, which neither reconnects nor repeats commands by itself. */
export interface Connection {
  /** `onEnd` is called when the connection is lost. */
  connect(onEnd: () => void): Promise<unknown>;
  /** Is rejected when the connection is lost or closed. */
  send(args: (string | Buffer)[]): Promise<unknown>;
  close(): void;
}

/** The name of own connections in CLIENT LIST, unless the program's client has one. */
export const NAME = "dlock";

/** How long connecting may take, and a reply, in ms: short compared with a lease. */
export const TIMEOUT = 3_000;

/** How long a caller who does not wait for a lock waits for a server that does not reply. */
export const PATIENCE = 3 * TIMEOUT;

/** The longest time that a timer takes. */
export const MAX_TIMER = 2 ** 31 - 1;

/** The monotonic clock, in ms. It stands still while the machine is suspended: Node.js has no other. */
export const now = () => performance.now();

/** Until when a lease that was confirmed by a request sent at `sent` lasts for certain. */
export const deadline = (sent: number, ms: number) => sent + ms * 0.999 - 2;

/** Rejects after this time. If the program was blocked, what has arrived is read first. */
export function inTime<T>(promise: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const onTime = () => setImmediate(() => reject(new Error(`none within ${Math.round(ms)} ms`)));
    const timer = setTimeout(onTime, ms).unref();
    void promise.then(resolve, reject).then(() => clearTimeout(timer));
  });
}

/** Waits about this long, without keeping the process alive. */
export const pause = (ms: number) => sleep(ms * (0.5 + Math.random() / 2), undefined, { ref: false });

/** Calls this on an abort. Any number of tasks may wait with one signal. Returns how to end that. */
export function onAbort(signal: AbortSignal | undefined, abort: (reason: unknown) => void): () => void {
  const listener = () => abort(signal?.reason);
  if (signal?.aborted) listener();
  if (signal) setMaxListeners(0, signal);
  signal?.addEventListener("abort", listener);
  return () => signal?.removeEventListener("abort", listener);
}

/** Rejects with the reason of the signal if that is aborted first. */
export async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  let ignore = () => {};
  const aborted = new Promise<never>((_, reject) => (ignore = onAbort(signal, reject)));
  return await Promise.race([promise, aborted]).finally(ignore);
}
