import { deadline, now } from "./client.js";
import { isLost, isTransient, LockError, lockError, Lost } from "./errors.js";
import { Request, type LockOptions } from "./request.js";
import { PATIENCE, type Router } from "./router.js";

/** The longest pause before a failed renewal is tried again, and the longest time that a timer takes. */
const [MAX_RETRY_PAUSE, MAX_TIMER] = [1_000, 2 ** 31 - 1];

/** A held lock. Its lease is renewed until it is released or lost. */
export interface Lock extends AsyncDisposable {
  readonly key: string;
  readonly owner: string;
  /** The fencing token: send it with every write. Every later grant of the lock has a larger one. */
  readonly fence: number;
  /** Aborted with a Lost when the lock is lost: at its deadline at the latest. Not aborted by a release. */
  readonly signal: AbortSignal;
  readonly isHeld: boolean;
  /** For how many more ms the lock is certainly held if it is not renewed. */
  remaining(): number;
  /** Extends the lease once, if less than this is left of it. */
  extend(ms: number): Promise<void>;
  /** A fenced write: the server runs the command if the lock is held. Rejects with Lost if it has not run. */
  query(command: string, ...args: (string | number)[]): Promise<unknown>;
  /** Rejects with Lost if the lock was, or may have been, lost before. Later calls return the same. */
  release(): Promise<void>;
}

/** A request that becomes a lock. */
export class Hold extends Request implements Lock {
  fence = 0;
  #deadline = 0;
  #timer: NodeJS.Timeout | undefined;
  #isRenewing = false;
  #lost: Lost | undefined;
  #released: Promise<void> | undefined;
  #controller: AbortController | undefined;

  constructor(private readonly router: Router, key: string, options: LockOptions, waits: boolean) {
    super(key, options, waits);
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#lost) this.#controller.abort(this.#lost);
    return this.#controller.signal;
  }

  get isHeld(): boolean {
    return this.remaining() > 0;
  }

  remaining(): number {
    return this.stage === "held" ? Math.max(0, this.#deadline - now()) : 0;
  }

  async extend(ms: number): Promise<void> {
    this.#check();
    await this.router.track(this.#extend(ms, this.#deadline));
  }

  async query(command: string, ...args: (string | number)[]): Promise<unknown> {
    this.#check();
    return await this.router.track(this.#call(["DLOCK.GUARD", this.key, this.owner, this.fence, command, ...args]));
  }

  release(): Promise<void> {
    return (this.#released ??= this.router.track(this.#release()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#released) await this.release();
  }

  /** The server has granted it. */
  grant(fence: number, until: number): void {
    [this.stage, this.fence, this.#deadline] = ["held", fence, until];
    this.settle(true);
    this.dequeue();
    this.renewWithin(this.lease);
  }

  /** Renews the lease in this time, or after a third of what is left of it. */
  renewWithin(ms: number): void {
    if (this.stage !== "held") return;
    clearTimeout(this.#timer);
    const [third, left] = [Math.min(ms, this.lease / 3, (this.#deadline - now()) / 3), this.#deadline - now()];
    const pause = this.#isRenewing ? left : third;
    this.#timer = setTimeout(() => this.#onTime(), Math.max(0, Math.min(pause, MAX_TIMER))).unref();
  }

  lose(word: string): Lost {
    if (this.#lost) return this.#lost;
    const lost = new Lost(this.key, word);
    if (this.stage !== "held") return lost;
    this.#lost = lost;
    this.#end(!isLost(lost));
    this.#controller?.abort(lost);
    return lost;
  }

  /** Ends it here. What the server may have of it is given back. */
  #end(isGivenBack: boolean): void {
    clearTimeout(this.#timer);
    this.isKnown &&= isGivenBack;
    this.router.abandon(this);
  }

  #check(): void {
    if (this.#released) throw new LockError("RELEASED", `the lock ${this.key} was released: acquire it again`);
    if (!this.isHeld) throw this.lose("EXPIRED");
  }

  async #call(args: (string | number)[], until?: number): Promise<unknown> {
    try {
      return await this.router.call(this.key, args.map(String), until);
    } catch (cause) {
      throw isLost(lockError(cause)) ? this.lose(lockError(cause).word) : cause;
    }
  }

  async #extend(ms: number, until?: number): Promise<void> {
    const sent = now();
    const left = await this.#call(["DLOCK.EXTEND", this.key, this.owner, ms, "FENCE", this.fence], until);
    this.#deadline = Math.max(this.#deadline, deadline(sent, Number(left)));
  }

  #onTime(): void {
    if (now() < this.#deadline) return this.#isRenewing ? this.renewWithin(this.lease) : void this.#renew();
    // If the program was blocked, the reply to a renewal may have arrived: it is read first.
    setImmediate(() => (this.isHeld ? this.renewWithin(this.lease) : this.lose("EXPIRED")));
  }

  async #renew(): Promise<void> {
    this.#isRenewing = true;
    this.renewWithin(this.lease);
    const isRenewed = await this.#extend(this.lease).then(() => true, () => false);
    this.#isRenewing = false;
    this.renewWithin(isRenewed ? this.lease : Math.min(MAX_RETRY_PAUSE, this.lease / 10));
  }

  async #release(): Promise<void> {
    if (!this.isHeld) throw this.lose("EXPIRED");
    const until = Math.min(this.#deadline, now() + PATIENCE);
    let isUnclear = false;
    clearTimeout(this.#timer);
    this.stage = "over";
    try {
      const release = ["DLOCK.RELEASE", this.key, this.owner, "FENCE", String(this.fence), "REQID", this.id];
      await this.router.call(this.key, release, until, () => (isUnclear = true));
    } catch (cause) {
      const error = lockError(cause);
      if (!isLost(error) && !isTransient(error)) throw error;
      // After a lost reply, an earlier copy may have released it; without any reply, a late one may have to.
      isUnclear ||= !isLost(error);
      throw new Lost(this.key, isUnclear ? "UNCONFIRMED" : error.word, { cause });
    } finally {
      this.#end(isUnclear);
    }
  }
}
