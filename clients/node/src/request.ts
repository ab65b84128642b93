import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import type { LockError } from "./errors.js";

const PROCESS = `${hostname()}:${process.pid}`;

export interface LockOptions {
  /** The lease in ms, 30 000 by default. It is renewed after each third of it. */
  lease?: number;
  /** How many holders there may be: 1 by default. */
  limit?: number;
  /** Any number of holders, if all are shared. */
  shared?: boolean;
}

/** One acquisition. It has its own id and owner, so that repeating it is safe, and nobody else can release it. */
export class Request {
  readonly id: string = randomUUID();
  readonly owner = `${PROCESS}:${this.id}`;
  readonly lease: number;
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

  constructor(readonly key: string, private readonly options: LockOptions, readonly waits: boolean) {
    this.lease = options.lease ?? 30_000;
  }

  acquire(inbox: string): string[] {
    const { limit, shared } = this.options;
    const kind = shared ? ["SHARED"] : limit === undefined ? [] : ["LIMIT", String(limit)];
    const queue = this.waits ? ["QUEUE", inbox, "0"] : [];
    return ["DLOCK.ACQUIRE", this.key, this.owner, String(this.lease), ...kind, ...queue, "REQID", this.id];
  }
}
