// The driver for the conformance kit: driver.mjs ioredis|node-redis ADDRESS. Commands and results are lines of JSON.
import { createInterface } from "node:readline";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { AcquireTimeout, LockError, Locks, Lost } from "redis-dlock";
import { clients } from "./clients.mjs";

const [name, address] = process.argv.slice(2);
const locks = new Locks(await clients[name](address), { onEvent: tellWaiting });
/** Locks that are held, and acquisitions that wait, by the id of their command. */
const [held, waiting] = [new Map(), new Map()];
/** The locks of hold_many. */
let many = [];
const released = new Set();
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const lock = (of) => held.get(of) ?? fail(`no lock of ${of}`);
const fail = (message) => {
  throw new Error(message);
};

function tellWaiting({ type, key, ms, holder = null }) {
  if (type === "waiting") print({ event: "waiting", key, holder, waited_ms: Math.floor(ms) });
}

/** An address where nobody listens. */
const NOWHERE = "redis://127.0.0.1:1";

/** JSON has no such numbers. */
const time = (value) => (["NaN", "Infinity", "-Infinity"].includes(value) ? Number(value) : value);

/** The options of an acquisition: those that the command has. */
function optionsOf(command) {
  const { lease_ms, timeout_ms, max_hold_ms, shared, limit, owner, renew, options } = command;
  const [lease, timeout, maxHold] = [lease_ms, timeout_ms, max_hold_ms].map(time);
  const given = Object.entries({ lease, timeout, maxHold, shared, limit, owner, renew });
  return { ...Object.fromEntries(given.filter(([, value]) => value !== undefined)), ...options };
}

/** Why a lock is lost, and the last error of its renewals. */
function reasonOf({ word, cause }) {
  return { because: word, ...(word === "EXPIRED" && cause && cause.word !== word ? { last: cause.word } : {}) };
}

async function acquire(command, waits) {
  const { id, key, key_hex: hex } = command;
  const cancel = new AbortController();
  waiting.set(id, cancel);
  try {
    const options = { ...optionsOf(command), signal: cancel.signal };
    const name = hex === undefined ? key : Buffer.from(hex, "hex");
    const lock = waits ? await locks.acquire(name, options) : await locks.tryAcquire(name, options);
    if (!lock) return { held: false, because: "TAKEN" };
    held.set(id, lock);
    const onLoss = () => print({ event: "lost", of: id, ...reasonOf(lock.signal.reason) });
    lock.signal.addEventListener("abort", () => released.has(id) || onLoss());
    return { held: true, fence: lock.fence };
  } catch (error) {
    if (error === cancel.signal.reason) return { cancelled: true };
    if (error instanceof AcquireTimeout) return { held: false, because: error.cause?.word ?? "TAKEN" };
    throw error;
  } finally {
    waiting.delete(id);
  }
}

async function close() {
  await Promise.allSettled(Array.from(held.values(), (lock) => lock.isHeld && lock.release()));
  await locks.close();
}

const commands = {
  acquire: (command) => acquire(command, true),
  try: (command) => acquire(command, false),
  cancel({ of }) {
    waiting.get(of)?.abort();
    return { ok: true };
  },
  async release({ of }) {
    const releasing = lock(of).release();
    released.add(of);
    await releasing;
    return { released: true };
  },
  async extend({ of, lease_ms }) {
    await lock(of).extend(time(lease_ms));
    return { extended: true };
  },
  state({ of }) {
    const { isHeld, fence } = lock(of);
    return isHeld ? { held: true, remaining_ms: lock(of).remaining(), fence } : { held: false, remaining_ms: 0 };
  },
  query: async ({ of, command }) => ({ reply: await lock(of).query(...command) }),
  block({ ms }) {
    for (const end = performance.now() + ms; performance.now() < end; );
    return { ok: true };
  },
  async churn({ times, fails, key, same_client }) {
    const client = () => clients[name](fails ? NOWHERE : address);
    const same = same_client ? await client() : undefined;
    const options = fails ? { timeout: 50 } : {};
    for (let n = 0; n < times; n++) {
      const work = new Locks(same ?? (await client())).acquire(key, options).then((lock) => lock.release());
      await work.catch((error) => fails || Promise.reject(error));
    }
    return { ok: true };
  },
  resources() {
    setFlagsFromString("--expose-gc");
    runInNewContext("gc")();
    return { tasks: 0 };
  },
  async hold_many({ locks: count, lease_ms, prefix }) {
    const began = performance.now();
    const options = optionsOf({ lease_ms });
    const all = Array.from({ length: count }, (_, n) => locks.acquire(`${prefix}${n}`, options));
    many = (await Promise.allSettled(all)).flatMap(({ value }) => value ?? []);
    return { held: many.length, took_ms: performance.now() - began };
  },
  async release_many() {
    const outcomes = await Promise.allSettled(many.map((lock) => lock.release()));
    const [lost, others] = [true, false].map((is) => outcomes.filter(({ reason }) => reason instanceof Lost === is));
    return { released: others.filter(({ status }) => status === "fulfilled").length, lost: lost.length };
  },
  async close() {
    await close();
    return { ok: true };
  },
};

async function run(command) {
  if (!commands[command.do]) return { error: "UNKNOWN" };
  try {
    return await commands[command.do](command);
  } catch (error) {
    if (error instanceof Lost) return { lost: true, ...reasonOf(error) };
    if (error instanceof LockError) return { error: error.word };
    return { error: error instanceof TypeError || error instanceof RangeError ? "ARGUMENT" : error.message };
  }
}

print({ driver: name, renews_while_blocked: false });
const input = createInterface({ input: process.stdin });
input.on("line", async (line) => {
  const command = JSON.parse(line);
  const result = await run(command);
  print({ id: command.id, ...result });
  if (command.do === "close") input.close();
});
input.on("close", close);
