import { setMaxListeners } from "node:events";
import { MAX_TIMER, PATIENCE, type Client } from "./client.js";
import { AcquireTimeout, Lost } from "./errors.js";
import { Hold, type Lock, type LockOptions } from "./hold.js";
import { Router } from "./router.js";

/** A lease that is shorter than the way to the server never arrives in time: after so many, it is given up. */
const MAX_LATE_GRANTS = 10;

/** Calls this on an abort. Any number of tasks may wait with one signal. Returns how to end that. */
function onAbort(signal: AbortSignal | undefined, abort: (reason: unknown) => void): () => void {
  const listener = () => abort(signal?.reason);
  if (signal?.aborted) listener();
  if (signal) setMaxListeners(0, signal);
  signal?.addEventListener("abort", listener);
  return () => signal?.removeEventListener("abort", listener);
}

/** Locks on one server, or on the primaries of a cluster. Create one per process. */
export class Locks {
  readonly #router: Router;

  constructor(client: Client) {
    this.#router = new Router(client);
  }

  /** Waits for the lock, in order of arrival. Rejects with AcquireTimeout, or with the reason of the signal. */
  async acquire(key: string, options: LockOptions = {}): Promise<Lock> {
    return (await this.#router.track(this.#acquire(key, options, true)))!;
  }

  /** Does not wait: null means that others hold or await the lock. AcquireTimeout: the server is silent for 9 s. */
  async tryAcquire(key: string, options: Omit<LockOptions, "timeout"> = {}): Promise<Lock | null> {
    return await this.#router.track(this.#acquire(key, { ...options, timeout: PATIENCE }, false));
  }

  /**
   * Runs the routine while all locks are held. They are acquired in sorted order, so that callers cannot deadlock, and
   * passed in the given one. The signal is aborted when one of them is lost; then the call rejects in any case.
   */
  async using<T>(
    keys: string | string[],
    options: number | LockOptions,
    routine: (signal: AbortSignal, ...locks: Lock[]) => T | Promise<T>,
  ): Promise<T> {
    const all: LockOptions = typeof options === "number" ? { lease: options } : options;
    const wanted = [keys].flat();
    const held = new Map<string, Lock>();
    // Not AbortSignal.any, of which a signal that lives long keeps something.
    const cancel = new AbortController();
    const abort = (reason: unknown) => cancel.abort(reason);
    const ignore = onAbort(all.signal, abort);
    const releases = () => Array.from(held.values(), (lock) => lock.release());
    try {
      for (const key of [...new Set(wanted)].sort()) {
        const lock = await this.acquire(key, { ...all, signal: cancel.signal });
        held.set(key, lock);
        onAbort(lock.signal, abort);
      }
      const result = await routine(cancel.signal, ...wanted.map((key) => held.get(key)!));
      await Promise.all(releases());
      return result;
    } finally {
      ignore();
      await Promise.allSettled(releases());
    }
  }

  /** Gives up all requests and locks, and closes the connections. The client that was passed in stays open. */
  async close(): Promise<void> {
    await this.#router.close();
  }

  async #acquire(key: string, options: LockOptions, waits: boolean): Promise<Lock | null> {
    const { signal, timeout } = options;
    signal?.throwIfAborted();
    let hold = new Hold(this.#router, key, options, waits);
    const onTime = () => hold.fail(new AcquireTimeout(key, timeout!, hold.lastError));
    const ignore = onAbort(signal, (reason) => hold.fail(reason));
    const timer = timeout === undefined ? undefined : setTimeout(onTime, Math.min(timeout, MAX_TIMER));
    try {
      for (let late = 0; ; late++, hold = new Hold(this.#router, key, options, waits)) {
        this.#router.submit(hold).catch(hold.fail);
        const isGranted = await hold.outcome;
        signal?.throwIfAborted();
        if (hold.isHeld) return hold;
        hold.end();
        if (!isGranted) return null;
        // The lease had expired when the grant arrived: it is asked for anew.
        if (late === MAX_LATE_GRANTS) throw new Lost(key, "EXPIRED");
      }
    } catch (error) {
      hold.end();
      throw error;
    } finally {
      clearTimeout(timer);
      ignore();
    }
  }
}
