import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setImmediate } from "node:timers/promises";
import type { Acquisition } from "./acquisition.js";
import { deadline, inTime, MAX_TIMER, now, unlessAborted, type Args } from "./client.js";
import { closed, isAgain, isLost, LockError, lockError, Lost, noReply } from "./errors.js";
import { report, type LockEvent } from "./events.js";
import { checkKey, checkLease, checkWord, type Key, type Settings, type Word } from "./options.js";
import type { Router } from "./router.js";
import type { Tasks } from "./tasks.js";

const PROCESS = `${hostname()}:${process.pid}`;
/** Names of requests: what no other process has, and a number. */
const NAMES = randomUUID();
let requests = 0;

/** How long a release waits for a server that does not confirm it. */
const RELEASED_WITHIN = 10_000;

/** After how long the program is told that it waits. */
const TOLD_AFTER = 1_000;

/** What all requests of a Locks share. */
export interface Scope {
  readonly router: Router;
  readonly tasks: Tasks;
  readonly holds: Set<Hold>;
  readonly onEvent: ((event: LockEvent) => void) | undefined;
}

/** A held lock. Its lease is renewed until it is released or lost. */
export type Lock = AsyncDisposable &
  Pick<Hold, "key" | "owner" | "fence" | "signal" | "isHeld" | "remaining" | "extend" | "query" | "release">;

/** A request that becomes a lock. It has its own id and owner: repeating it is safe, and nobody else can release it. */
export class Hold implements Acquisition {
  readonly number = ++requests;
  readonly id = `${NAMES}:${this.number}`;
  readonly rawKey: string | Buffer;
  readonly owner: string;
  readonly lease: number;
  /** The fencing token: send it with every write. Every later grant of the lock has a larger one. */
  fence = 0;
  stage: "waiting" | "held" | "over" = "waiting";
  isKnown = false;
  hasLostCopies = false;
  lastReply: "queued" | "no inbox" | undefined;
  lastError: LockError | undefined;
  dequeue = (_error?: LockError): void => {};
  settle!: (isGranted: boolean) => void;
  fail!: (error: unknown) => void;
  readonly outcome = new Promise<boolean>((settle, fail) => {
    this.settle = settle;
    this.fail = fail;
  });
  /** Made when somebody asks for the signal. */
  #controller: AbortController | undefined;
  #lost: Lost | undefined;
  #wasQueued = false;
  #granted = 0;
  /** Until when the lease lasts for certain, and until when the lock may be held. */
  #deadline = 0;
  #maxEnd = Infinity;
  #isRenewing = false;
  #timer: NodeJS.Timeout | undefined;
  #released: Promise<void> | undefined;

  constructor(
    private readonly scope: Scope,
    readonly key: Key,
    private readonly settings: Settings,
    readonly waits: boolean,
  ) {
    this.rawKey = checkKey(key);
    this.lease = settings.lease;
    this.owner = settings.owner ?? `${PROCESS}:${this.id}`;
    scope.holds.add(this);
  }

  /** Aborted with a Lost when the lock is lost: at its deadline at the latest. Not aborted by a release. */
  get signal(): AbortSignal {
    this.#look();
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#lost) this.#controller.abort(this.#lost);
    }
    return this.#controller.signal;
  }

  /** The key as messages show it. */
  get name(): string {
    return String(this.rawKey);
  }

  get isHeld(): boolean {
    return this.remaining() > 0;
  }

  /** For how many more ms the lock is certainly held if it is not renewed. */
  remaining(): number {
    return this.stage === "held" ? Math.max(0, Math.min(this.#deadline, this.#maxEnd) - now()) : 0;
  }

  /** Extends the lease once, if less than this is left of it. */
  async extend(ms: number = this.lease): Promise<void> {
    const lease = checkLease(ms, "ms");
    this.#check();
    await this.scope.tasks.track(unlessAborted(this.#extend(lease), this.signal));
  }

  /** A fenced write: the server runs the command if the lock is held. Rejects with Lost if it has not run. */
  async query(command: string, ...args: Word[]): Promise<unknown> {
    const words = [command, ...args].map(checkWord);
    this.#check();
    const guard = () => ["DLOCK.GUARD", this.rawKey, this.owner, this.fence, ...words];
    const run = this.scope.router.call(this.rawKey, guard, (error) => this.isHeld && isAgain(error, "guard"));
    return await this.scope.tasks.track(run.catch((error: LockError) => Promise.reject(this.#lostBy(error, "guard"))));
  }

  /** Rejects with Lost if the lock was, or may have been, lost before. Later calls return the same. */
  release(): Promise<void> {
    return (this.#released ??= this.scope.tasks.track(this.#release()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#released) await this.release();
  }

  command(inbox: string): Args {
    const queue = this.waits ? ["QUEUE", inbox, 0] : [];
    return ["DLOCK.ACQUIRE", this.rawKey, this.owner, this.lease, ...this.settings.kind, ...queue, "REQID", this.id];
  }

  queue(ahead: number): void {
    [this.lastReply, this.lastError] = ["queued", undefined];
    if (!this.#wasQueued) {
      this.report({ type: "queued", ahead });
      const since = now();
      if (this.scope.onEvent) this.#timer = setTimeout(() => void this.#tellWaiting(since), TOLD_AFTER).unref();
    }
    this.#wasQueued = true;
  }

  grant(fence: number, until: number): void {
    this.stage = "held";
    this.fence = fence;
    this.#deadline = until;
    this.lastError = undefined;
    this.#granted = now();
    this.#maxEnd = this.#granted + this.settings.maxHold;
    this.settle(true);
    this.dequeue();
    this.renewWithin(this.lease);
  }

  renewWithin(ms: number): void {
    this.#wakeAfter(Math.min(ms, this.lease / 3, (this.#deadline - now()) / 3, this.remaining()));
  }

  refuse(): void {
    this.isKnown = false;
    this.settle(false);
  }

  /** Why it is not granted yet. Undefined: others hold the lock, or wait for it. */
  async explain(): Promise<LockError | undefined> {
    // If the program was blocked, what has arrived is read first.
    await setImmediate();
    return await this.scope.router.explain(this);
  }

  /** Its Locks are closed. */
  close(): void {
    this.#lose("CLOSED");
    this.fail(closed());
    this.end();
  }

  /** It is withdrawn, or given back, if the server may have it. */
  end(): void {
    this.stage = "over";
    clearTimeout(this.#timer);
    this.dequeue();
    this.scope.holds.delete(this);
    const isNew = this.scope.router.requests.delete(this.id);
    if (isNew && (this.isKnown || this.hasLostCopies)) this.scope.tasks.track(this.scope.router.giveBack(this));
  }

  report(event: Event): void {
    const { onEvent } = this.scope;
    if (onEvent) report(onEvent, { key: this.key, owner: this.owner, ...event });
  }

  async #tellWaiting(since: number): Promise<void> {
    if (!this.scope.router.tellsWaiting()) return;
    const holder = await this.scope.router.holder(this.rawKey);
    if (this.stage !== "waiting") return;
    this.report({ type: "waiting", ms: now() - since, ...(holder && { holder }) });
  }

  #reportEnd(error?: LockError): void {
    const ms = now() - this.#granted;
    this.report(error ? { type: "lost", ms, error } : { type: "released", ms });
  }

  /** Its lease may be over, although no timer has told that yet. */
  #look(): void {
    if (this.stage === "held" && !this.isHeld) this.#expire();
  }

  #check(): void {
    this.#look();
    if (this.isHeld) return;
    throw this.#lost ?? new LockError("RELEASED", `${this.name} was released: acquire it again`);
  }

  #lose(word: string, cause?: LockError): Lost {
    const lost = new Lost(this.name, word, cause);
    if (this.stage === "held") {
      this.end();
      this.#reportEnd(lost);
      this.#lost = lost;
      this.#controller?.abort(lost);
    }
    return lost;
  }

  #expire(): Lost {
    if (now() >= this.#maxEnd) return this.#lose("MAXHOLD");
    const silence = this.#isRenewing ? noReply(this.scope.router.server, "none to its renewal") : undefined;
    return this.#lose("EXPIRED", this.lastError ?? silence);
  }

  /** The loss that this error tells, or the error. */
  #lostBy(error: LockError, sent: "extend" | "guard"): LockError {
    return isLost(error, sent) ? this.#lose(error.word, error) : error;
  }

  async #extend(ms: number): Promise<void> {
    let sent = 0;
    const extend = () => {
      sent = now();
      return ["DLOCK.EXTEND", this.rawKey, this.owner, ms, "FENCE", this.fence];
    };
    const isRepeated = (error: LockError) => {
      if (isAgain(error, "extend")) this.lastError = error;
      return this.isHeld && isAgain(error, "extend");
    };
    try {
      const left = await this.scope.router.call(this.rawKey, extend, isRepeated);
      this.#deadline = Math.max(this.#deadline, deadline(sent, Number(left)));
      this.lastError = undefined;
    } catch (error) {
      throw this.#lostBy(error as LockError, "extend");
    }
  }

  #wakeAfter(ms: number): void {
    // One that waits has another timer.
    if (this.stage !== "held") return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#wake(), Math.min(ms, MAX_TIMER)).unref();
  }

  /** Renews the lease, or tells that it is over. */
  async #wake(): Promise<void> {
    // If the program was blocked, the reply to a renewal may have arrived: it is read first.
    if (!this.isHeld) await setImmediate();
    if (this.stage !== "held") return;
    if (!this.isHeld) return void this.#expire();
    this.#wakeAfter(this.remaining());
    // One renewal at a time: it is repeated itself.
    if (this.#isRenewing || !this.settings.renew || this.#deadline >= this.#maxEnd) return;
    this.#isRenewing = true;
    await this.#extend(this.lease).catch((error: LockError) => (this.lastError = error));
    this.#isRenewing = false;
    this.renewWithin(this.lease);
  }

  async #release(): Promise<void> {
    this.#check();
    const until = Math.min(this.#deadline, now() + RELEASED_WITHIN);
    const release = () => ["DLOCK.RELEASE", this.rawKey, this.owner, "FENCE", this.fence, "REQID", this.id];
    let last: LockError | undefined;
    let isUnclear = false;
    const isRepeated = (error: LockError) => {
      isUnclear ||= error.word === "CONNECTION";
      last = error;
      return now() < until && isAgain(error, "release");
    };
    this.stage = "over";
    try {
      await inTime(this.scope.router.call(this.rawKey, release, isRepeated), until - now());
      this.isKnown = false;
      this.#reportEnd();
    } catch (cause) {
      const error = this.#unreleased(last ?? lockError(cause, this.scope.router.server), isUnclear);
      this.#reportEnd(error);
      throw error;
    } finally {
      this.end();
    }
  }

  /** What a release rejects with after this error. */
  #unreleased(error: LockError, isUnclear: boolean): LockError {
    // After a lost reply, an earlier copy may have released it.
    if (isLost(error, "release") && !isUnclear) return new Lost(this.name, error.word, error);
    const isUnconfirmed = isLost(error, "release") || isAgain(error, "release");
    this.isKnown &&= isUnconfirmed;
    return isUnconfirmed ? new Lost(this.name, "UNCONFIRMED", error) : error;
  }
}

type Event = LockEvent extends infer Each ? (Each extends LockEvent ? Omit<Each, "key" | "owner"> : never) : never;
