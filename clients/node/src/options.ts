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

const MAX_LIMIT = 2 ** 31 - 1;

const isNumber = (value: unknown): value is number => typeof value === "number";
const isBoolean = (value: unknown) => typeof value === "boolean";
const isText = (value: unknown): value is string => typeof value === "string" && value !== "";
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

/** Refuses a value that breaks a rule. */
function check(value: unknown, isRight: (value: unknown) => boolean, rule: string): void {
  if (!isRight(value)) throw new TypeError(`${rule}: this is ${show(value)}`);
}

/** The same for a number, which may be out of range. */
function checkNumber(value: unknown, isRight: (value: unknown) => boolean, rule: string): void {
  if (isNumber(value) && !isRight(value)) throw new RangeError(`${rule}: this is ${value}`);
  check(value, isRight, rule);
}

/** A lease in ms, rounded up. */
export function checkLease(value: unknown, name = "lease"): number {
  checkNumber(value, isLease, `${name} is a number of ms above 0`);
  return Math.ceil(value as number);
}

/** How each option is checked if it is given. */
const CHECKS: Record<keyof LockOptions, (value: unknown) => void> = {
  lease: (value) => void checkLease(value),
  timeout: (value) => checkNumber(value, isTimeout, "timeout is a number of ms, 0 or more"),
  signal: (value) => check(value, isSignal, "signal is an AbortSignal"),
  shared: (value) => check(value, isBoolean, "shared is true or false"),
  limit: (value) => checkNumber(value, isLimit, `limit is a whole number from 1 to ${MAX_LIMIT}`),
  owner: (value) => check(value, isText, "owner is text, and not empty"),
  renew: (value) => check(value, isBoolean, "renew is true or false"),
  maxHold: (value) => checkNumber(value, isTime, "maxHold is a number of ms above 0"),
};
const NAMES = Object.keys(CHECKS);
const TRY_NAMES = NAMES.filter((name) => name !== "timeout");

/** A key as it is sent. */
export function checkKey(key: unknown): string | Buffer {
  if (Array.isArray(key)) throw new TypeError("a key is text or bytes, not an array: take several locks with using");
  if (key instanceof Uint8Array && key.length > 0) return Buffer.from(key);
  if (!isText(key)) throw new TypeError(`a key is text or bytes, and not empty: this is ${kindOf(key)}`);
  // All halves of surrogate pairs would become the same bytes.
  if (key.isWellFormed()) return key;
  throw new TypeError("a key is text that UTF-8 can write, or bytes: this has half of a surrogate pair");
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
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) throw new TypeError(`there is no option ${name} here: there are ${names.join(", ")}`);
  }
}

/** Refuses options that do not exist, and values that mean nothing. `waits`: whether there is a timeout. */
export function checkOptions(options: LockOptions, waits: boolean): Settings {
  checkNames(options, waits ? NAMES : TRY_NAMES);
  for (const name of Object.keys(options) as (keyof LockOptions)[]) {
    if (options[name] !== undefined) CHECKS[name](options[name]);
  }
  const { lease = 30_000, timeout = Infinity, maxHold = Infinity, renew = true, signal, shared, limit, owner } = options;
  if (shared && limit !== undefined) throw new TypeError("shared has no limit: leave out one of shared and limit");
  const kind = shared ? ["SHARED"] : limit === undefined ? [] : ["LIMIT", limit];
  const [wait, hold] = [Math.ceil(timeout), Math.ceil(maxHold)];
  return { lease: Math.ceil(lease), timeout: wait, signal, kind, owner, renew, maxHold: hold };
}
