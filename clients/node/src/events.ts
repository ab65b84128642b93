import type { LockError } from "./errors.js";
import type { Key } from "./options.js";

/** What happens to a lock, for metrics. Times are in ms. */
export type LockEvent = { readonly key: Key; readonly owner: string } & (
  | { readonly type: "queued"; /** How many wait before it. */ readonly ahead: number }
  | { readonly type: "waiting"; readonly ms: number; /** None: the server has not told it. */ readonly holder?: string }
  | { readonly type: "acquired"; /** After how long. */ readonly ms: number; readonly fence: number }
  | { readonly type: "not acquired"; readonly ms: number; /** None: it is taken. */ readonly error: unknown }
  | { readonly type: "released"; /** For how long it was held. */ readonly ms: number }
  | { readonly type: "lost"; readonly ms: number; readonly error: LockError }
);

/** Calls a function of the program. If that throws, there is a warning, and the lock goes on. */
export function report(onEvent: (event: LockEvent) => void, event: LockEvent): void {
  try {
    onEvent(event);
  } catch (error) {
    process.emitWarning(error as Error);
  }
}
