import { setTimeout as sleep } from "node:timers/promises";

/** Milliseconds on the monotonic clock. It stands still while the machine is suspended: Node.js has no other. */
export const now = (): number => performance.now();

/** Until when a lease that was confirmed by a request sent at `sent` lasts for certain. */
export const safeDeadline = (sent: number, ms: number): number => sent + ms * 0.999 - 2;

/** Waits about `ms`, without keeping the process alive. */
export const pause = (ms: number): Promise<void> => sleep(ms * (0.5 + Math.random() / 2), undefined, { ref: false });

/** The longest time that a timer takes. */
export const MAX_TIMER = 2 ** 31 - 1;
