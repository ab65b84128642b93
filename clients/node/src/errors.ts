/** `word` is stable: the first of the server's message, or CONNECTION (no reply: it may have run), RELEASED, CLOSED. */
export class LockError extends Error {
  constructor(readonly word: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The lock was not granted in time. `cause` is the last error of the server, if any. */
export class AcquireTimeout extends LockError {
  constructor(key: string, ms: number, cause?: LockError) {
    super("TIMEOUT", `${key}: not granted within ${ms} ms: ${cause?.message ?? "others hold or await it"}`, { cause });
  }
}

/** The lock is, or may be, held by others. `word`: NOTHELD, NOTOWNER, STALE, or EXPIRED, UNCONFIRMED, CLOSED. */
export class Lost extends LockError {
  constructor(key: string, word: string, options?: ErrorOptions) {
    super(word, `the lock ${key} is lost (${word}): stop the work that depends on it`, options);
  }
}

/** An error of a client library as one of ours. Only messages of servers begin with a word in capitals. */
export function lockError(error: unknown): LockError {
  if (error instanceof LockError) return error;
  const { message } = error as Error;
  const word = /^[A-Z][A-Z0-9]+(?= |$)/.exec(message)?.[0];
  return word
    ? new LockError(word, message, { cause: error })
    : new LockError("CONNECTION", `no reply from the server: ${message}`, { cause: error });
}

/** Whether a command is sent again after this error, which may pass. */
export type IsRepeated = (error: LockError) => boolean;

const LOST = "NOTHELD NOTOWNER STALE".split(" ");
const TRANSIENT = "CONNECTION LOADING READONLY CLUSTERDOWN MOVED ASK TRYAGAIN UNBLOCKED MASTERDOWN".split(" ");

export const isLost = (error: LockError): boolean => LOST.includes(error.word);

export const isTransient = (error: LockError): boolean => TRANSIENT.includes(error.word);
