import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setImmediate } from "node:timers/promises";
import { deadline, MAX_TIMER, now, PATIENCE, type Args } from "./client.js";
import { isLost, isTransient, LockError, Lost, type IsRepeated } from "./errors.js";
import type { Router } from "./router.js";

const PROCESS = `${hostname()}:${process.pid}`;

export interface LockOptions {
  /** The lease in ms, 30 000 by default. It is renewed after each third of it. */
  lease?: number;
  /** How many holders there may be: 1 by default. */
  limit?: number;
  /** Any number of holders, if all are shared. */
  shared?: boolean;
  /** How long to wait, in ms. Without it there is no limit. */
  timeout?: number;
  /** Cancels the acquisition. */
  signal?: AbortSignal;
}

/** A held lock. Its lease is renewed until it is released or lost. */
export type Lock = AsyncDisposable &
  Pick<Hold, "key" | "owner" | "fence" | "signal" | "isHeld" | "remaining" | "extend" | "query" | "release">;

/** A request that becomes a lock. It has its own id and owner: repeating it is safe, and nobody else can release it. */
export class Hold {
  readonly id: string = randomUUID();
  readonly owner: string = `${PROCESS}:${this.id}`;
  readonly lease: number;
  /** The fencing token: send it with every write. Every later grant of the lock has a larger one. */
  fence = 0;
  stage: "waiting" | "held" | "over" = "waiting";
  /** Whether the server may have it, and whether a copy of it may arrive late. */
  isKnown = false;
  hasLostCopies = false;
  lastError: LockError | undefined;
  /** Takes it out of the queue: it is granted or over, or has to be sent again, perhaps because of an error. */
  dequeue = (_error?: LockError): void => {};
  settle!: (isGranted: boolean) => void;
  fail!: (error: unknown) => void;
  readonly outcome = new Promise<boolean>((settle, fail) => Object.assign(this, { settle, fail }));
  readonly #controller = new AbortController();
  #deadline = 0;
  #timer: NodeJS.Timeout | undefined;
  #released: Promise<void> | undefined;

  constructor(
    private readonly router: Router,
    readonly key: string,
    private readonly options: LockOptions,
    /** Whether it waits for its turn. */
    readonly waits: boolean,
  ) {
    this.lease = options.lease ?? 30_000;
  }

  /** Aborted with a Lost when the lock is lost: at its deadline at the latest. Not aborted by a release. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get isHeld(): boolean {
    return this.remaining() > 0;
  }

  /** For how many more ms the lock is certainly held if it is not renewed. */
  remaining(): number {
    return this.stage === "held" ? Math.max(0, this.#deadline - now()) : 0;
  }

  /** Extends the lease once, if less than this is left of it. */
  async extend(ms: number): Promise<void> {
    this.#check();
    await this.router.track(this.#extend(ms));
  }

  /** A fenced write: the server runs the command if the lock is held. Rejects with Lost if it has not run. */
  async query(command: string, ...args: Args): Promise<unknown> {
    this.#check();
    const guard = () => ["DLOCK.GUARD", this.key, this.owner, this.fence, command, ...args];
    return await this.router.track(this.#call(guard, ({ word }) => word === "MOVED"));
  }

  /** Rejects with Lost if the lock was, or may have been, lost before. Later calls return the same. */
  release(): Promise<void> {
    return (this.#released ??= this.router.track(this.#release()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#released) await this.release();
  }

  acquire(inbox: string): Args {
    const { limit, shared } = this.options;
    const kind = shared ? ["SHARED"] : limit === undefined ? [] : ["LIMIT", limit];
    const queue = this.waits ? ["QUEUE", inbox, 0] : [];
    return ["DLOCK.ACQUIRE", this.key, this.owner, this.lease, ...kind, ...queue, "REQID", this.id];
  }

  grant(fence: number, until: number): void {
    [this.stage, this.fence, this.#deadline] = ["held", fence, until];
    this.settle(true);
    this.dequeue();
    this.renewWithin(this.remaining());
  }

  /** Renews the lease in this time, or after a third of what is left of it. */
  renewWithin(ms: number): void {
    this.#wakeAfter(Math.min(ms, this.lease / 3, this.remaining() / 3));
  }

  /** Others hold the lock. */
  refuse(): void {
    this.isKnown = false;
    this.settle(false);
  }

  lose(word: string): Lost {
    const lost = new Lost(this.key, word);
    if (this.stage === "held") {
      this.end();
      this.#controller.abort(lost);
    }
    return lost;
  }

  /** It is withdrawn, or given back, if the server may have it. */
  end(): void {
    this.stage = "over";
    clearTimeout(this.#timer);
    this.dequeue();
    const isNew = this.router.requests.delete(this.id);
    if (isNew && (this.isKnown || this.hasLostCopies)) this.router.giveBack(this);
  }

  #check(): void {
    if (this.isHeld) return;
    if (this.stage === "held") throw this.lose("EXPIRED");
    throw this.signal.reason ?? new LockError("RELEASED", `${this.key} was released: acquire it again`);
  }

  async #call(command: () => Args, isRepeated: IsRepeated): Promise<unknown> {
    try {
      return await this.router.call(this.key, command, (error) => this.isHeld && isRepeated(error));
    } catch (cause) {
      const error = cause as LockError;
      throw isLost(error) ? this.lose(error.word) : error;
    }
  }

  async #extend(ms: number): Promise<void> {
    let sent = 0;
    const extend = () => {
      sent = now();
      return ["DLOCK.EXTEND", this.key, this.owner, ms, "FENCE", this.fence];
    };
    const left = await this.#call(extend, () => true);
    this.#deadline = Math.max(this.#deadline, deadline(sent, Number(left)));
  }

  #wakeAfter(ms: number): void {
    clearTimeout(this.#timer);
    if (this.stage !== "held") return;
    this.#timer = setTimeout(() => void this.#wake(), Math.min(ms, MAX_TIMER)).unref();
  }

  /** Renews the lease, or tells that it is over. */
  async #wake(): Promise<void> {
    // If the program was blocked, the reply to a renewal may have arrived: it is read first.
    if (!this.isHeld) await setImmediate();
    if (this.stage !== "held") return;
    if (!this.isHeld) return void this.lose("EXPIRED");
    this.#wakeAfter(this.remaining());
    await this.#extend(this.lease).catch(() => {});
    this.renewWithin(this.remaining());
  }

  async #release(): Promise<void> {
    this.#check();
    const until = Math.min(this.#deadline, now() + PATIENCE);
    const release = () => ["DLOCK.RELEASE", this.key, this.owner, "FENCE", this.fence, "REQID", this.id];
    let isUnclear = false;
    this.stage = "over";
    try {
      await this.router.call(this.key, release, (error) => {
        isUnclear ||= error.word === "CONNECTION";
        return now() < until;
      });
      this.isKnown = false;
    } catch (cause) {
      const error = cause as LockError;
      if (!isLost(error) && !isTransient(error)) throw error;
      // After a lost reply, an earlier copy may have released it.
      throw new Lost(this.key, isLost(error) && !isUnclear ? error.word : "UNCONFIRMED", { cause });
    } finally {
      this.end();
    }
  }
}
