import { randomUUID } from "node:crypto";
import { hostname } from "node:os";

import type { Lock } from "./lock.js";

const PROCESS = `${hostname()}:${process.pid}`;

export interface LockOptions {
  /** How long the lock is held without renewal, in ms. 30 000 by default. It is renewed after each third of it. */
  lease?: number;
  /** How many holders there may be: 1 by default. */
  limit?: number;
  /** Any number of holders, if all are shared. */
  shared?: boolean;
}

/** What was granted: the fence, and until when the lease lasts for certain. */
export interface Grant {
  fence: number;
  deadline: number;
}

/** One acquisition. It has its own id and owner, so that repeating it is safe, and nobody else can release it. */
export class Request {
  readonly id = randomUUID();
  readonly owner = `${PROCESS}:${this.id}`;
  readonly lease: number;
  readonly outcome: Promise<Grant | null>;
  grant!: (grant: Grant | null) => void;
  fail!: (error: unknown) => void;
  isSettled = false;
  /** Whether it is in the queue of its server, as far as known. */
  isQueued = false;
  /** Whether it has been sent, and has no reply yet. */
  isSent = false;
  /** Whether a copy of it may arrive late. */
  hasLostCopies = false;
  lastError: Error | undefined;
  /** The server that it was sent to last. */
  session: unknown;
  lock: Lock | undefined;

  constructor(
    readonly key: string,
    private readonly options: LockOptions,
    /** Until when one that does not wait in the queue is repeated. */
    readonly triedUntil?: number,
  ) {
    this.lease = options.lease ?? 30_000;
    this.outcome = new Promise((resolve, reject) => {
      const settle = <T>(how: (value: T) => void) => (value: T) => {
        this.isSettled = true;
        how(value);
      };
      [this.grant, this.fail] = [settle(resolve), settle(reject)];
    });
  }

  get waits(): boolean {
    return this.triedUntil === undefined;
  }

  acquire(inbox: string): string[] {
    const { limit, shared } = this.options;
    const command = ["DLOCK.ACQUIRE", this.key, this.owner, String(this.lease)];
    if (shared) command.push("SHARED");
    if (limit !== undefined) command.push("LIMIT", String(limit));
    if (this.waits) command.push("QUEUE", inbox, "0");
    command.push("REQID", this.id);
    return command;
  }

  release(fence?: number): string[] {
    const checked = fence === undefined ? [] : ["FENCE", String(fence)];
    return ["DLOCK.RELEASE", this.key, this.owner, ...checked, "REQID", this.id];
  }
}
