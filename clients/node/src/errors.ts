/** Why a lock is lost: the server's word, or what the client knows. */
export type LostReason = "NOTHELD" | "NOTOWNER" | "STALE" | "EXPIRED" | "UNCONFIRMED" | "CLOSED";

const REASONS: Record<LostReason, string> = {
  NOTHELD: "nobody holds it: its lease has expired, or its key was deleted",
  NOTOWNER: "another owner holds it",
  STALE: "it is held under a newer fence",
  EXPIRED: "its lease may have expired, because no renewal was confirmed in time",
  UNCONFIRMED: "it is not known whether it was held until its release, because replies were lost",
  CLOSED: "its Locks were closed",
};

/** The lock is, or may be, held by others: stop the work that depends on it. */
export class Lost extends Error {
  override readonly name = "Lost";
  constructor(key: string, readonly reason: LostReason, options?: ErrorOptions) {
    super(`the lock ${key} is lost: ${REASONS[reason]}`, options);
  }
}

/** The lock was not granted within the timeout. Its `cause` is the last error, if any. */
export class AcquireTimeout extends Error {
  override readonly name = "AcquireTimeout";
}

/** There was no reply: a command that was sent may have run, or not. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
  constructor(message: string, readonly wasSent: boolean, options?: ErrorOptions) {
    super(message, options);
  }
}

/** The server rejected a command. `word`, the first one of its message, is stable. */
export class ServerError extends Error {
  override readonly name = "ServerError";
  constructor(readonly word: string, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}

const LOST = new Set(["NOTHELD", "NOTOWNER", "STALE"]);
const TRANSIENT = new Set(
  "LOADING READONLY CLUSTERDOWN MOVED ASK TRYAGAIN UNBLOCKED MASTERDOWN".split(" "),
);

/** The error of any client library as one of ours. Only messages of servers begin with a word in capitals. */
export function translate(error: unknown, wasSent = true): ServerError | ConnectionError {
  if (error instanceof ServerError || error instanceof ConnectionError) return error;
  const message = error instanceof Error ? error.message : String(error);
  const word = /^[A-Z][A-Z0-9]+(?= |$)/.exec(message)?.[0];
  if (word) return new ServerError(word, message, { cause: error });
  const what = wasSent ? "no reply from the server" : "no connection to the server";
  return new ConnectionError(`${what}: ${message}`, wasSent, { cause: error });
}

/** The server's word if the error means that the lock is lost. */
export function lostReason(error: unknown): LostReason | undefined {
  return error instanceof ServerError && LOST.has(error.word) ? (error.word as LostReason) : undefined;
}

/** Whether the same request can succeed later, perhaps on another server. */
export function isTransient(error: unknown): boolean {
  return error instanceof ConnectionError || (error instanceof ServerError && TRANSIENT.has(error.word));
}
