import { acquire } from "./acquire.js";
import { PATIENCE, pause, TIMEOUT, type Client } from "./client.js";
import { AcquireTimeout, closed } from "./errors.js";
import type { LockEvent } from "./events.js";
import type { Hold, Lock, Scope } from "./hold.js";
import { checkAdapted } from "./kinds.js";
import { checkKey, checkNames, checkOptions } from "./options.js";
import type { Key, LockOptions, Settings, TryOptions } from "./options.js";
import { Router } from "./router.js";
import { Tasks } from "./tasks.js";
import { using, type Routine } from "./using.js";

export interface LocksOptions {
  /** Is called with each event of these locks, for metrics. */
  onEvent?: ((event: LockEvent) => void) | undefined;
}

/** Locks on one server, or on the primaries of a cluster. All Locks on one client share its connections. */
export class Locks {
  readonly #scope: Scope;
  #isClosed = false;

  constructor(client: Client, options: LocksOptions = {}) {
    checkAdapted(client);
    checkNames(options, ["onEvent"]);
    const { onEvent } = options;
    if (onEvent !== undefined && typeof onEvent !== "function") throw new TypeError("onEvent is a function");
    this.#scope = { router: Router.of(client), tasks: new Tasks(), holds: new Set(), onEvent };
  }

  /** Waits for the lock, in order of arrival. Rejects with AcquireTimeout, or with the reason of the signal. */
  async acquire(key: Key, options: LockOptions = {}): Promise<Lock> {
    const settings = checkOptions(options, true);
    const lock = await (settings.timeout === 0 ? this.#try(key, settings) : this.#acquire(key, settings, true));
    if (lock) return lock;
    throw new AcquireTimeout(String(checkKey(key)), 0);
  }

  /** Does not wait: null means that others hold or await the lock. AcquireTimeout: the server is silent for 9 s. */
  async tryAcquire(key: Key, options: TryOptions = {}): Promise<Lock | null> {
    return await this.#try(key, checkOptions(options, false));
  }

  /**
   * Runs the routine while all locks are held. They are acquired in the order of their bytes, so that callers cannot
   * deadlock, and passed in the given one. The signal is aborted when one of them is lost; then the call rejects in any
   * case.
   */
  async using<T>(keys: Key | Key[], options: number | LockOptions, routine: Routine<T>): Promise<T> {
    return await using((key, each) => this.acquire(key, each), keys, options, routine);
  }

  /** Gives up all requests and locks of this object, and closes the connections if nothing else uses them. */
  async close(): Promise<void> {
    const { router, tasks, holds } = this.#scope;
    this.#isClosed = true;
    for (const hold of [...holds]) hold.close();
    await Promise.race([tasks.settled(), pause(TIMEOUT)]);
    router.rest();
  }

  #try(key: Key, settings: Settings): Promise<Hold | null> {
    return this.#acquire(key, { ...settings, timeout: PATIENCE }, false);
  }

  #acquire(key: Key, settings: Settings, waits: boolean): Promise<Hold | null> {
    if (this.#isClosed) throw closed();
    return this.#scope.tasks.track(acquire(this.#scope, key, settings, waits));
  }
}
