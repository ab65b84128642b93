/** A key is text, sent as UTF-8, or bytes. Both name the same lock if the bytes are the same. */
export type Key = string | Uint8Array;

/** A word of a command. */
export type Word = string | number | bigint | Uint8Array;

export interface LockOptions {
  /** The lease in ms, 30 000 by default. It is renewed after each third of it. */
  lease?: number | undefined;
  /** How long to wait, in ms: without it there is no limit, and 0 does not wait. */
  timeout?: number | undefined;
  /** Cancels the acquisition. */
  signal?: AbortSignal | undefined;
  /** Any number of holders, if all are shared. */
  shared?: boolean | undefined;
  /** How many holders there may be: 1 by default. */
  limit?: number | undefined;
  /** Who holds the lock: a name of its own by default. A name of several locks re-enters them, and finds deadlocks. */
  owner?: string | undefined;
  /** Whether the lease is renewed: true by default. */
  renew?: boolean | undefined;
  /** After how many ms the lock is lost and given back, however well it is renewed. */
  maxHold?: number | undefined;
}

/** Options of what does not wait. */
export type TryOptions = Omit<LockOptions, "timeout">;

/** Options that were checked. */
export interface Settings {
  lease: number;
  timeout: number;
  signal: AbortSignal | undefined;
  kind: (string | number)[];
  owner: string | undefined;
  renew: boolean;
  maxHold: number;
}

const NAMES = ["lease", "timeout", "signal", "shared", "limit", "owner", "renew", "maxHold"];
const MAX_LIMIT = 2 ** 31 - 1;
const LIMIT = `limit is a whole number from 1 to ${MAX_LIMIT}`;

const isNumber = (value: unknown): value is number => typeof value === "number";
const isBoolean = (value: unknown) => typeof value === "boolean";
const isText = (value: unknown) => typeof value === "string" && value !== "";
const isSignal = (value: unknown) => value instanceof AbortSignal;
const isLimit = (value: unknown) => Number.isInteger(value) && 1 <= Number(value) && Number(value) <= MAX_LIMIT;
const isTime = (value: unknown) => isNumber(value) && value > 0;
const isLease = (value: unknown) => isTime(value) && value !== Infinity;
const isTimeout = (value: unknown) => value === 0 || isTime(value);

/** A value as messages show it. */
const show = (value: unknown) => (isNumber(value) || isBoolean(value) ? String(value) : kindOf(value));

/** What kind of value this is. */
export function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  if (typeof value !== "object") return value === "" ? "an empty string" : `a ${typeof value}`;
  return `an object of ${value.constructor?.name ?? "no class"}`;
}

/** A lease in ms, rounded up. */
export function checkLease(value: unknown, name = "lease"): number {
  if (!isLease(value)) throw refusedNumber(value, `${name} is a number of ms above 0`);
  return Math.ceil(value as number);
}

export function checkKey(key: unknown): Buffer {
  if (Array.isArray(key)) throw new TypeError("a key is text or bytes, not an array: take several locks with using");
  const isKey = isText(key) || (key instanceof Uint8Array && key.length > 0);
  if (!isKey) throw new TypeError(`a key is text or bytes, and not empty: this is ${kindOf(key)}`);
  const bytes = Buffer.from(key as string);
  // All halves of surrogate pairs would become the same bytes.
  const isOther = typeof key === "string" && String(bytes) !== key;
  if (isOther) throw new TypeError("a key is text that UTF-8 can write, or bytes: this has half of a surrogate pair");
  return bytes;
}

export function checkWord(word: unknown): string | Buffer {
  if (word instanceof Uint8Array) return Buffer.from(word);
  if (["string", "number", "bigint"].includes(typeof word)) return String(word);
  throw new TypeError(`query takes text, numbers and bytes: this is ${kindOf(word)}`);
}

/** Refuses options that do not exist. */
export function checkNames(options: object, names: string[]): void {
  if (typeof options !== "object" || options === null) {
    throw new TypeError(`options are an object such as { ${names[0]}: ... }, not ${kindOf(options)}`);
  }
  const unknown = Object.keys(options).find((name) => !names.includes(name));
  if (unknown) throw new TypeError(`there is no option ${unknown} here: there are ${names.join(", ")}`);
}

/** Refuses options that do not exist, and values that mean nothing. `waits`: whether there is a timeout. */
export function checkOptions(options: LockOptions, waits: boolean): Settings {
  checkNames(options, waits ? NAMES : NAMES.filter((name) => name !== "timeout"));
  const { lease = 30_000, timeout = Infinity, maxHold = Infinity, renew = true } = options;
  const { signal, shared, limit, owner } = options;
  if (!isTimeout(timeout)) throw refusedNumber(timeout, "timeout is a number of ms, 0 or more");
  if (!isTime(maxHold)) throw refusedNumber(maxHold, "maxHold is a number of ms above 0");
  if (signal !== undefined && !isSignal(signal)) throw refused(signal, "signal is an AbortSignal");
  if (shared !== undefined && !isBoolean(shared)) throw refused(shared, "shared is true or false");
  if (limit !== undefined && !isLimit(limit)) throw refusedNumber(limit, LIMIT);
  if (shared && limit !== undefined) throw new TypeError("shared has no limit: leave out one of shared and limit");
  if (owner !== undefined && !isText(owner)) throw refused(owner, "owner is text, and not empty");
  if (!isBoolean(renew)) throw refused(renew, "renew is true or false");
  const kind = shared ? ["SHARED"] : limit === undefined ? [] : ["LIMIT", limit];
  const times = { lease: checkLease(lease), timeout: Math.ceil(timeout), maxHold: Math.ceil(maxHold) };
  return { ...times, signal, kind, owner, renew };
}

const refused = (value: unknown, rule: string) => new TypeError(`${rule}: this is ${show(value)}`);

/** A number may be out of range. */
const refusedNumber = (value: unknown, rule: string) =>
  isNumber(value) ? new RangeError(`${rule}: this is ${value}`) : refused(value, rule);
