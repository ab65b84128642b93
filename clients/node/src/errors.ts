/** `word` is stable: the first of the server's message, or CONNECTION (no reply: it may have run), RELEASED, CLOSED. */
export class LockError extends Error {
  constructor(readonly word: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The lock was not granted in time. `cause` says why, except if others hold or await it, as the server said. */
export class AcquireTimeout extends LockError {
  declare readonly cause?: LockError | undefined;

  constructor(key: string, ms: number, cause?: LockError) {
    super("TIMEOUT", `${key}: not granted within ${ms} ms: ${cause?.message ?? "others hold or await it"}`, { cause });
  }
}

/** The reasons of a loss that no server tells. */
const REASONS = {
  EXPIRED: "its lease ended before it was renewed",
  MAXHOLD: "it was held for as long as its maxHold allows",
  UNCONFIRMED: "no reply confirms its release",
  CLOSED: "its Locks were closed",
};

/** The lock is, or may be, held by others. `word`: NOTHELD, NOTOWNER, STALE, WRONGTYPE, or one of the REASONS. */
export class Lost extends LockError {
  declare readonly cause?: LockError | undefined;

  /** `cause`: the server's error, or the last one before the loss, such as NOPERM of the renewals. */
  constructor(key: string, word: string, cause?: LockError) {
    const reason = `${word} ${REASONS[word as keyof typeof REASONS]}${cause ? `: ${cause.message}` : ""}`;
    const why = cause?.word === word ? cause.message : reason;
    super(word, `the lock ${key} is lost, stop the work that depends on it: ${why}`, { cause });
  }
}

/** A node of a cluster has sent elsewhere, but the program's client knows only one server. */
export class NoCluster extends LockError {
  constructor(server: string, cause: LockError) {
    super(cause.word, `${cause.message}: ${server} is a node of a cluster: pass a client of the cluster`, { cause });
  }
}

export const noReply = (server: string, why: string, cause?: unknown) =>
  new LockError("CONNECTION", `no reply from ${server}: ${why}`, { cause });

export const closed = () => new LockError("CLOSED", "the Locks were closed");

/** An error of a client library as one of ours. Only messages of servers begin with a word in capitals. */
export function lockError(error: unknown, server = "the server"): LockError {
  if (error instanceof LockError) return error;
  const { message, code } = error as NodeJS.ErrnoException;
  const word = /^[A-Z][A-Z0-9]+(?= |$)/.exec(message)?.[0];
  if (!word) return noReply(server, message || String(code), error);
  const hasNoModule = /^ERR unknown command ['`]?dlock/i.test(message);
  const advice = `ERR ${server} does not have the DLOCK module: load it, or connect to another server`;
  return new LockError(word, hasNoModule ? advice : message, { cause: error });
}

/** What is sent: an ACQUIRE that waits or one that does not, EXTEND, RELEASE, GUARD. */
export type Sent = "wait" | "try" | "extend" | "release" | "guard";
type Rules = [words: string, sent: string][];

/** The tables of docs/client-authors.md: what is sent again after an error with one of these words. */
const AGAIN: Rules = [
  ["CONNECTION", "wait try extend release"],
  ["MOVED ASK", "wait try extend release guard"],
  ["TRYAGAIN CLUSTERDOWN READONLY MASTERDOWN LOADING UNBLOCKED", "wait extend release"],
  ["BUSY MISCONF NOREPLICAS OOM", "wait extend release"],
  ["GRACE QUEUEFULL", "wait extend"],
];

/** What finds with these words that the lock is lost. */
const LOST: Rules = [
  ["NOTHELD NOTOWNER STALE", "extend release guard"],
  ["WRONGTYPE", "extend release"],
];

const has = (rules: Rules, { word }: LockError, sent: Sent) =>
  rules.some(([words, commands]) => words.split(" ").includes(word) && commands.split(" ").includes(sent));

export const isAgain = (error: LockError, sent: Sent): boolean =>
  !(error instanceof NoCluster) && has(AGAIN, error, sent);
export const isLost = (error: LockError, sent: Sent): boolean => has(LOST, error, sent);
