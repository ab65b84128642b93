// The driver for the conformance kit: driver.mjs ioredis|node-redis ADDRESS. Commands and results are lines of JSON.
import { createInterface } from "node:readline";
import { LockError, Locks, Lost } from "redis-dlock";
import { clients } from "./clients.mjs";

const [name, address] = process.argv.slice(2);
const locks = new Locks(await clients[name](address));
/** Locks that are held, and acquisitions that wait, by the id of their command. */
const [held, waiting] = [new Map(), new Map()];
const released = new Set();
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const lock = (of) => held.get(of) ?? fail(`no lock of ${of}`);
const fail = (message) => {
  throw new Error(message);
};

async function acquire(command, waits) {
  const { id, key, lease_ms: lease, timeout_ms: timeout, shared, limit } = command;
  const cancel = new AbortController();
  waiting.set(id, cancel);
  try {
    const options = { lease, timeout, shared, limit, signal: cancel.signal };
    const lock = waits ? await locks.acquire(key, options) : await locks.tryAcquire(key, options);
    if (!lock) return { held: false };
    held.set(id, lock);
    lock.signal.addEventListener("abort", () => released.has(id) || print({ event: "lost", of: id }));
    return { held: true, fence: lock.fence };
  } catch (error) {
    if (error === cancel.signal.reason) return { cancelled: true };
    if (error.word === "TIMEOUT" && waits) return { held: false };
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
  state({ of }) {
    const { isHeld, fence } = lock(of);
    return isHeld ? { held: true, remaining_ms: lock(of).remaining(), fence } : { held: false, remaining_ms: 0 };
  },
  query: async ({ of, command }) => ({ reply: await lock(of).query(...command) }),
  block({ ms }) {
    for (const end = performance.now() + ms; performance.now() < end; );
    return { ok: true };
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
    if (error instanceof Lost) return { lost: true };
    return { error: error instanceof LockError ? error.word : error.message };
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
