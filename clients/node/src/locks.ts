import { setMaxListeners } from "node:events";
import { now, type Client } from "./client.js";
import { AcquireTimeout, LockError } from "./errors.js";
import { Hold, type Lock, type LockOptions } from "./hold.js";
import { PATIENCE, Router } from "./router.js";

export interface TryOptions extends LockOptions {
  /** Cancels the acquisition. */
  signal?: AbortSignal;
}

export interface AcquireOptions extends TryOptions {
  /** How long to wait, in ms. Without it there is no limit. */
  timeout?: number;
}

/** Locks on one server, or on the primaries of a cluster. Create one per process. */
export class Locks {
  readonly #router: Router;

  constructor(client: Client) {
    this.#router = new Router(client);
  }

  /** Waits for the lock, in order of arrival. Rejects with AcquireTimeout, or with the reason of the signal. */
  async acquire(key: string, options: AcquireOptions = {}): Promise<Lock> {
    return (await this.#router.track(this.#acquire(key, options, Infinity)))!;
  }

  /** Does not wait: null means that others hold the lock, or wait for it. */
  async tryAcquire(key: string, options: TryOptions = {}): Promise<Lock | null> {
    return await this.#router.track(this.#acquire(key, options, now() + PATIENCE));
  }

  /**
   * Runs the routine while all locks are held. They are acquired in sorted order, so that callers cannot deadlock, and
   * passed in the given one. The signal is aborted when one of them is lost; then the call rejects in any case.
   */
  async using<T>(
    keys: string | string[],
    options: number | AcquireOptions,
    routine: (signal: AbortSignal, lock: Lock, ...others: Lock[]) => T | Promise<T>,
  ): Promise<T> {
    const all: AcquireOptions = typeof options === "number" ? { lease: options } : options;
    const held = new Map<string, Lock>();
    const signal = () => AbortSignal.any([all.signal ?? [], Array.from(held.values(), (lock) => lock.signal)].flat());
    const release = () => Promise.allSettled(Array.from(held.values(), (lock) => lock.release()));
    const wanted = [keys].flat();
    try {
      for (const key of [...new Set(wanted)].sort()) held.set(key, await this.acquire(key, { ...all, signal: signal() }));
      const [lock, ...others] = wanted.map((key) => held.get(key)!);
      const result = await routine(signal(), lock!, ...others);
      await release();
      await Promise.all(Array.from(held.values(), (lock) => lock.release()));
      return result;
    } finally {
      await release();
    }
  }

  /** Gives up all requests and locks, and closes the connections. The client that was passed in stays open. */
  async close(): Promise<void> {
    for (const hold of [...this.#router.requests.values()]) {
      if (hold.stage === "held") hold.lose("CLOSED");
      else hold.fail(new LockError("CLOSED", "the Locks were closed"));
    }
    await this.#router.close();
  }

  async #acquire(key: string, options: AcquireOptions, until: number): Promise<Lock | null> {
    const { signal, timeout } = options;
    signal?.throwIfAborted();
    let hold = new Hold(this.#router, key, options, until);
    const onAbort = () => hold.fail(signal!.reason);
    // Any number of tasks may wait with one signal.
    if (signal) setMaxListeners(0, signal);
    signal?.addEventListener("abort", onAbort, { once: true });
    const timer = timeout === undefined ? undefined : setTimeout(() => hold.fail(timedOut(hold, timeout)), timeout);
    try {
      for (; ; hold = new Hold(this.#router, key, options, until)) {
        void this.#router.submit(hold);
        const isGranted = await hold.outcome;
        signal?.throwIfAborted();
        if (hold.isHeld) return hold;
        // Otherwise the lease had expired when the grant arrived: it is given back, and asked for anew.
        this.#router.abandon(hold);
        if (!isGranted) return null;
      }
    } catch (error) {
      this.#router.abandon(hold);
      throw error;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    }
  }
}

function timedOut({ key, lastError: cause }: Hold, timeout: number): AcquireTimeout {
  const why = cause?.message ?? "others hold the lock, or wait for it";
  return new AcquireTimeout("TIMEOUT", `${key}: not granted within ${timeout} ms: ${why}`, { cause });
}
