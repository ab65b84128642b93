import { setMaxListeners } from "node:events";

import type { Client } from "./client.js";
import { MAX_TIMER, now } from "./clock.js";
import { AcquireTimeout, ServerError } from "./errors.js";
import { Lock } from "./lock.js";
import { Request, type LockOptions } from "./request.js";
import { PATIENCE, Router } from "./router.js";

/** How long `close` waits for what is under way, in ms. */
const CLOSES_WITHIN = 3_000;

export interface TryOptions extends LockOptions {
  /** Cancels the acquisition. */
  signal?: AbortSignal;
}

export interface AcquireOptions extends TryOptions {
  /** How long to wait, in ms. Without it there is no limit. */
  timeout?: number;
}

/** Locks of one server, or of the primaries of a cluster. Create one per process. */
export class Locks {
  readonly #router: Router;

  constructor(client: Client) {
    this.#router = new Router(client);
  }

  /** Waits for the lock, in order of arrival. Rejects with AcquireTimeout, or with the reason of the signal. */
  async acquire(key: string, options: AcquireOptions = {}): Promise<Lock> {
    const lock = await this.#router.track(this.#acquire(key, options, true));
    return lock!;
  }

  /** Does not wait: null means that others hold the lock, or wait for it. */
  async tryAcquire(key: string, options: TryOptions = {}): Promise<Lock | null> {
    return await this.#router.track(this.#acquire(key, options, false));
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
    const { signal, ...rest } = typeof options === "number" ? { lease: options } : (options as AcquireOptions);
    const wanted = [keys].flat();
    const held = new Map<string, Lock>();
    const either = () => AbortSignal.any([...(signal ? [signal] : []), ...Array.from(held.values(), (lock) => lock.signal)]);
    const release = async () => {
      const releases = Array.from(held.values(), (lock) => lock.release());
      await Promise.allSettled(releases);
      await Promise.all(releases);
    };
    let result: T;
    try {
      for (const key of [...new Set(wanted)].sort()) {
        held.set(key, await this.acquire(key, { ...rest, signal: either() }));
      }
      const [first, ...others] = wanted.map((key) => held.get(key)!);
      result = await routine(either(), first!, ...others);
    } catch (error) {
      await release().catch(() => {});
      throw error;
    }
    await release();
    return result;
  }

  /** Gives up all requests and locks, and closes the connections. The client that was passed in stays open. */
  async close(): Promise<void> {
    for (const request of [...this.#router.requests.values()]) {
      if (request.lock) request.lock.lose("CLOSED");
      else request.fail(new Error("the Locks were closed"));
    }
    await this.#router.close(CLOSES_WITHIN);
  }

  async #acquire(key: string, options: AcquireOptions, waits: boolean): Promise<Lock | null> {
    const { signal, timeout } = options;
    signal?.throwIfAborted();
    let request: Request;
    const onAbort = () => request.fail(signal!.reason);
    const onTimeout = () => request.fail(timedOut(request, timeout!));
    // Any number of tasks may wait with one signal.
    if (signal) setMaxListeners(0, signal);
    signal?.addEventListener("abort", onAbort, { once: true });
    const timer = timeout === undefined ? undefined : setTimeout(onTimeout, Math.min(timeout, MAX_TIMER));
    try {
      for (;;) {
        request = new Request(key, options, waits ? undefined : now() + PATIENCE);
        const lock = await this.#request(request, signal);
        if (lock !== undefined) return lock;
      }
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    }
  }

  /** `undefined`: the lease had expired when the grant arrived. */
  async #request(request: Request, signal: AbortSignal | undefined): Promise<Lock | null | undefined> {
    this.#router.requests.set(request.id, request);
    this.#router.submit(request);
    let isOver = false;
    try {
      const grant = await request.outcome;
      signal?.throwIfAborted();
      if (grant && grant.deadline > now()) return new Lock(this.#router, request, grant);
      isOver = !grant;
      return grant && undefined;
    } catch (error) {
      isOver = error instanceof ServerError;
      throw error;
    } finally {
      if (!request.lock) this.#router.abandon(request, isOver);
    }
  }
}

function timedOut(request: Request, timeout: number): AcquireTimeout {
  const cause = request.lastError;
  const why = cause ? cause.message : "others hold the lock, or wait for it";
  return new AcquireTimeout(`${request.key}: not granted within ${timeout} ms: ${why}`, { cause });
}
