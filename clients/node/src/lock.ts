import { MAX_TIMER, now, safeDeadline } from "./clock.js";
import { isTransient, Lost, lostReason, type LostReason } from "./errors.js";
import type { Grant, Request } from "./request.js";
import { PATIENCE, type Router } from "./router.js";

/** A failed renewal is tried again at least this often, in ms. */
const MAX_RETRY_PAUSE = 1_000;

/** A held lock. Its lease is renewed until it is released or lost. */
export class Lock {
  readonly key: string;
  readonly owner: string;
  /** The fencing token: send it with every write. Every later grant of the lock has a larger one. */
  readonly fence: number;
  readonly #router: Router;
  readonly #request: Request;
  #deadline: number;
  #timer: NodeJS.Timeout | undefined;
  #isRenewing = false;
  #lost: Lost | undefined;
  #released: Promise<void> | undefined;
  #controller: AbortController | undefined;

  /** @internal */
  constructor(router: Router, request: Request, grant: Grant) {
    [this.#router, this.#request] = [router, request];
    [this.key, this.owner] = [request.key, request.owner];
    [this.fence, this.#deadline] = [grant.fence, grant.deadline];
    request.lock = this;
    this.#wakeAfter(this.#third());
  }

  /** Aborted with a Lost when the lock is lost: at its deadline at the latest. Not aborted by a release. */
  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#lost) this.#controller.abort(this.#lost);
    }
    return this.#controller.signal;
  }

  get isHeld(): boolean {
    return this.remaining() > 0;
  }

  /** For how many more milliseconds the lock is certainly held if it is not renewed. 0 if it is not held. */
  remaining(): number {
    return this.#isOver ? 0 : Math.max(0, this.#deadline - now());
  }

  /** Releases the lock. Rejects with Lost if it was, or may have been, lost before. Later calls return the same. */
  release(): Promise<void> {
    return (this.#released ??= this.#router.track(this.#release()));
  }

  /** Releases the lock at the end of a block with `await using`, unless it was released there. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#released) await this.release();
  }

  /** Extends the lease, if less is left of it. Renewal goes on with the lease of the acquisition. */
  async extend(ms: number): Promise<void> {
    this.#check();
    await this.#router.track(this.#extend(ms, (args) => this.#router.repeat(this.key, args, this.#deadline)));
  }

  /** A fenced write: the server runs the command only while the lock is held. Rejects with Lost if it has not run. */
  async query(command: string, ...args: (string | number)[]): Promise<unknown> {
    this.#check();
    const guarded = ["DLOCK.GUARD", this.key, this.owner, this.fence, command, ...args].map(String);
    return await this.#router.track(this.#orLost(this.#router.call(this.key, guarded)));
  }

  /** @internal The connection was lost: how long the server was away is not known. */
  renewWithin(ms: number): void {
    if (this.isHeld) this.#wakeAfter(Math.random() * Math.min(ms, this.#third()));
  }

  /** @internal */
  lose(reason: LostReason): Lost {
    if (this.#lost) return this.#lost;
    const lost = new Lost(this.key, reason);
    if (this.#released) return lost;
    this.#lost = lost;
    this.#end();
    if (reason === "EXPIRED" || reason === "CLOSED" || this.#request.hasLostCopies) {
      this.#router.giveBack(this.#request);
    }
    this.#controller?.abort(lost);
    return lost;
  }

  get #isOver(): boolean {
    return this.#lost !== undefined || this.#released !== undefined;
  }

  /** A third of what is left of the lease. */
  #third(): number {
    return Math.min(this.#request.lease, this.#deadline - now()) / 3;
  }

  #check(): void {
    if (this.#released) throw new Error(`the lock ${this.key} was released: acquire it again`);
    if (!this.isHeld) throw this.lose("EXPIRED");
  }

  #end(): void {
    clearTimeout(this.#timer);
    this.#router.requests.delete(this.#request.id);
  }

  async #orLost<T>(reply: Promise<T>): Promise<T> {
    try {
      return await reply;
    } catch (error) {
      const reason = lostReason(error);
      throw reason ? this.lose(reason) : error;
    }
  }

  async #extend(ms: number, send: (args: string[]) => Promise<unknown>): Promise<void> {
    const sent = now();
    const args = ["DLOCK.EXTEND", this.key, this.owner, String(ms), "FENCE", String(this.fence)];
    const left = Number(await this.#orLost(send(args)));
    this.#deadline = Math.max(this.#deadline, safeDeadline(sent, left));
  }

  #wakeAfter(ms: number): void {
    clearTimeout(this.#timer);
    const pause = Math.max(0, Math.min(ms, this.#deadline - now(), MAX_TIMER));
    this.#timer = setTimeout(() => this.#onTime(), pause).unref();
  }

  #onTime(): void {
    if (now() >= this.#deadline) {
      // If the program was blocked, the reply to a renewal may be there: it is read first.
      setImmediate(() => {
        if (this.#isOver) return;
        if (now() >= this.#deadline) this.lose("EXPIRED");
        else this.#wakeAfter(this.#third());
      });
    } else if (this.#isRenewing) {
      this.#wakeAfter(MAX_TIMER);
    } else {
      void this.#renew();
    }
  }

  async #renew(): Promise<void> {
    this.#isRenewing = true;
    // Meanwhile, the deadline is watched.
    this.#wakeAfter(MAX_TIMER);
    let next: number;
    try {
      await this.#extend(this.#request.lease, (args) => this.#router.call(this.key, args));
      next = this.#third();
    } catch {
      next = Math.min(MAX_RETRY_PAUSE, this.#request.lease / 10);
    }
    this.#isRenewing = false;
    if (!this.#isOver) this.#wakeAfter(next);
  }

  async #release(): Promise<void> {
    if (!this.isHeld) throw this.lose("EXPIRED");
    this.#end();
    const until = Math.min(this.#deadline, now() + PATIENCE);
    const release = this.#request.release(this.fence);
    let isRepeated = false;
    try {
      await this.#router.repeat(this.key, release, until, () => (isRepeated = true));
    } catch (error) {
      const reason = lostReason(error);
      if (reason && !isRepeated) throw new Lost(this.key, reason);
      if (!reason && !isTransient(error)) throw error;
      // An earlier copy may have released it, or a later one may have to.
      isRepeated = true;
      throw new Lost(this.key, "UNCONFIRMED", { cause: error });
    } finally {
      if (isRepeated || this.#request.hasLostCopies) this.#router.giveBack(this.#request);
    }
  }
}
