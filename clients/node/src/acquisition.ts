import type { Args } from "./client.js";
import type { LockError } from "./errors.js";

/** What a session and the router need of a request that becomes a lock. */
export interface Acquisition {
  readonly id: string;
  /** Older ones have smaller ones. */
  readonly number: number;
  /** The key as it is sent: bytes, or text, with which clients are faster. */
  readonly rawKey: string | Buffer;
  readonly owner: string;
  readonly lease: number;
  /** Whether it waits for its turn. */
  readonly waits: boolean;
  readonly stage: "waiting" | "held" | "over";
  /** Whether the server may have it, and whether a copy of it may arrive late. */
  isKnown: boolean;
  hasLostCopies: boolean;
  /** What the server has replied to the last copy, and the last error if only errors came since. */
  lastReply: "queued" | "no inbox" | undefined;
  lastError: LockError | undefined;
  /** Takes it out of the queue: it is granted or over, or has to be sent again, perhaps because of an error. */
  dequeue: (error?: LockError) => void;

  /** The command, with this inbox for its answer. */
  command(inbox: string): Args;
  queue(ahead: number): void;
  grant(fence: number, until: number): void;
  /** Others hold the lock, or wait for it. */
  refuse(): void;
  /** Renews the lease in this time at the latest. */
  renewWithin(ms: number): void;
}

/** What is needed to give a lock back. */
export type Granted = Pick<Acquisition, "id" | "rawKey" | "owner" | "lease" | "hasLostCopies">;

/** What a session tells. */
export interface Table {
  find(id: string): Acquisition | undefined;
  /** A request can get its grant twice, and after its end. */
  onGranted(granted: Granted, fence: number, until: number): void;
  /** A connection was lost: how long the server was away, and what it still has, is not known. */
  renewAll(): void;
}
