import { MAX_TIMER, now, onAbort } from "./client.js";
import { AcquireTimeout, LockError, Lost } from "./errors.js";
import { Hold, type Scope } from "./hold.js";
import type { Key, Settings } from "./options.js";

/** A lease that is shorter than the way to the server never arrives in time: after so many grants, it is given up. */
const MAX_LATE_GRANTS = 10;

/** Acquires a lock. Null: others hold or await it. `waits`: whether it waits for its turn. */
export async function acquire(scope: Scope, key: Key, settings: Settings, waits: boolean): Promise<Hold | null> {
  const began = now();
  const { signal, timeout } = settings;
  signal?.throwIfAborted();
  let hold = new Hold(scope, key, settings, waits);
  const onTime = async () => {
    const cause = await hold.explain();
    hold.fail(new AcquireTimeout(hold.name, timeout, cause));
  };
  const ignore = onAbort(signal, (reason) => hold.fail(reason));
  const timer = timeout === Infinity ? undefined : setTimeout(() => void onTime(), Math.min(timeout, MAX_TIMER));
  try {
    for (let grants = 1; ; grants++) {
      scope.router.submit(hold).catch(hold.fail);
      const isGranted = await hold.outcome;
      signal?.throwIfAborted();
      if (hold.isHeld) break;
      // The lease had expired when the grant arrived: it is asked for anew.
      hold.end();
      if (isGranted && grants === MAX_LATE_GRANTS) throw tooShort(hold);
      if (isGranted) hold = new Hold(scope, key, settings, waits);
      else {
        hold.report({ type: "not acquired", ms: now() - began, error: undefined });
        return null;
      }
    }
    hold.report({ type: "acquired", ms: now() - began, fence: hold.fence });
    return hold;
  } catch (error) {
    hold.end();
    hold.report({ type: "not acquired", ms: now() - began, error });
    throw error;
  } finally {
    clearTimeout(timer);
    ignore();
  }
}

function tooShort({ name, lease }: Hold): Lost {
  const why = `EXPIRED ${MAX_LATE_GRANTS} grants came after the end of their lease of ${lease} ms: take a longer one`;
  return new Lost(name, "EXPIRED", new LockError("EXPIRED", why));
}
