import { onAbort } from "./client.js";
import type { Lock } from "./hold.js";
import { checkKey, checkOptions, kindOf, type Key, type LockOptions } from "./options.js";

export type Routine<T> = (signal: AbortSignal, ...locks: Lock[]) => T | Promise<T>;

/** Runs the routine while all locks are held. They are acquired in the order of the bytes of their keys. */
export async function using<T>(
  acquire: (key: Key, options: LockOptions) => Promise<Lock>,
  keys: Key | Key[],
  options: number | LockOptions,
  routine: Routine<T>,
): Promise<T> {
  if (typeof routine !== "function") {
    const advice = "all settings are options, such as { lease: 5_000, timeout: 2_000 }";
    throw new TypeError(`using takes keys, options and a routine, not ${kindOf(routine)}: ${advice}`);
  }
  const all: LockOptions = typeof options === "number" ? { lease: options } : options;
  const { signal } = checkOptions(all, true);
  const wanted = [keys].flat() as Key[];
  if (wanted.length === 0) throw new TypeError("using needs at least one key");
  const names = wanted.map((key) => Buffer.from(checkKey(key)).toString("hex"));
  const held = new Map<string, Lock>();
  // Not AbortSignal.any, of which a signal that lives long keeps something.
  const cancel = new AbortController();
  const abort = (reason: unknown) => cancel.abort(reason);
  const ignore = onAbort(signal, abort);
  const releases = () => Array.from(held.values(), (lock) => lock.release());
  try {
    // The order of their hexadecimal digits is that of the bytes.
    for (const name of [...new Set(names)].sort()) {
      const lock = await acquire(wanted[names.indexOf(name)]!, { ...all, signal: cancel.signal });
      held.set(name, lock);
      onAbort(lock.signal, abort);
    }
    const result = await routine(cancel.signal, ...names.map((name) => held.get(name)!));
    await Promise.all(releases());
    return result;
  } finally {
    ignore();
    await Promise.allSettled(releases());
  }
}
