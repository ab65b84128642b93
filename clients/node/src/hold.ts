import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { deadline, MAX_TIMER, now } from "./client.js";
import { isLost, isTransient, LockError, lockError, Lost } from "./errors.js";
import { PATIENCE, type Router } from "./router.js";

/** A failed renewal is tried again after at most this time. */
const MAX_RETRY_PAUSE = 1_000;
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
  #deadline = 0;
  #timer: NodeJS.Timeout | undefined;
  #lost: Lost | undefined;
  #released: Promise<void> | undefined;
  #controller: AbortController | undefined;

  constructor(
    private readonly router: Router,
    readonly key: string,
    private readonly options: LockOptions,
    /** Until when it is repeated if it does not wait for its turn. */
    readonly until: number,
  ) {
    this.lease = options.lease ?? 30_000;
  }

  /** Aborted with a Lost when the lock is lost: at its deadline at the latest. Not aborted by a release. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#lost) this.#controller.abort(this.#lost);
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
    await this.router.track(this.#extend(ms, this.#deadline));
  }

  /** A fenced write: the server runs the command if the lock is held. Rejects with Lost if it has not run. */
  async query(command: string, ...args: (string | number | Buffer)[]): Promise<unknown> {
    this.#check();
    return await this.router.track(this.#call(["DLOCK.GUARD", this.key, this.owner, this.fence, command, ...args]));
  }

  /** Rejects with Lost if the lock was, or may have been, lost before. Later calls return the same. */
  release(): Promise<void> {
    return (this.#released ??= this.router.track(this.#release()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#released) await this.release();
  }

  acquire(inbox: string): string[] {
    const { limit, shared } = this.options;
    const kind = shared ? ["SHARED"] : limit === undefined ? [] : ["LIMIT", String(limit)];
    const queue = this.waits ? ["QUEUE", inbox, "0"] : [];
    return ["DLOCK.ACQUIRE", this.key, this.owner, String(this.lease), ...kind, ...queue, "REQID", this.id];
  }

  /** Whether it waits for its turn. */
  get waits(): boolean {
    return this.until === Infinity;
  }

  /** Others hold the lock. */
  refuse(): void {
    this.isKnown = false;
    this.settle(false);
  }

  grant(fence: number, until: number): void {
    [this.stage, this.fence, this.#deadline] = ["held", fence, until];
    this.settle(true);
    this.dequeue();
    this.renewWithin(this.lease);
  }

  /** Renews the lease in this time, or after a third of what is left of it. */
  renewWithin(ms: number): void {
    this.#wakeAfter(Math.min(ms, this.lease / 3, (this.#deadline - now()) / 3));
  }

  lose(word: string): Lost {
    const lost = (this.#lost ??= new Lost(this.key, word));
    if (this.stage !== "held") return lost;
    this.#end(!isLost(lost));
    this.#controller?.abort(lost);
    return lost;
  }

  #end(isKnown: boolean): void {
    clearTimeout(this.#timer);
    this.isKnown = isKnown;
    this.router.abandon(this);
  }

  #check(): void {
    if (this.#released && !this.#lost) throw new LockError("RELEASED", `${this.key} was released: acquire it again`);
    if (!this.isHeld) throw this.lose("EXPIRED");
  }

  async #call(args: (string | number | Buffer)[], until?: number): Promise<unknown> {
    try {
      return await this.router.call(this.key, args.map((arg) => (Buffer.isBuffer(arg) ? arg : String(arg))), until);
    } catch (cause) {
      const error = lockError(cause);
      throw isLost(error) && this.stage === "held" ? this.lose(error.word) : error;
    }
  }

  async #extend(ms: number, until?: number): Promise<void> {
    const sent = now();
    const left = await this.#call(["DLOCK.EXTEND", this.key, this.owner, ms, "FENCE", this.fence], until);
    this.#deadline = Math.max(this.#deadline, deadline(sent, Number(left)));
  }

  #wakeAfter(ms: number): void {
    clearTimeout(this.#timer);
    if (this.stage !== "held") return;
    this.#timer = setTimeout(() => this.#wake(), Math.min(Math.max(0, ms), MAX_TIMER)).unref();
  }

  #wake(): void {
    if (now() < this.#deadline) return void this.#renew();
    // If the program was blocked, the reply to a renewal may have arrived: it is read first.
    setImmediate(() => (this.isHeld || this.stage !== "held" ? this.renewWithin(this.lease) : this.lose("EXPIRED")));
  }

  async #renew(): Promise<void> {
    // Wakes at the deadline, unless there is a reply.
    this.#wakeAfter(this.#deadline - now());
    const isRenewed = await this.#extend(this.lease).then(() => true, () => false);
    this.renewWithin(isRenewed ? this.lease : Math.min(MAX_RETRY_PAUSE, this.lease / 10));
  }

  async #release(): Promise<void> {
    this.#check();
    const until = Math.min(this.#deadline, now() + PATIENCE);
    const release = ["DLOCK.RELEASE", this.key, this.owner, "FENCE", String(this.fence), "REQID", this.id];
    let isUnclear = false;
    this.stage = "over";
    try {
      await this.router.call(this.key, release, until, () => (isUnclear = true));
    } catch (cause) {
      const error = lockError(cause);
      if (!isLost(error) && !isTransient(error)) throw error;
      // After a lost reply, an earlier copy may have released it; without any reply, a late one may have to.
      isUnclear ||= !isLost(error);
      throw (this.#lost = new Lost(this.key, isUnclear ? "UNCONFIRMED" : error.word, { cause }));
    } finally {
      this.#end(isUnclear);
    }
  }
}
