// peer.mjs LOCK WORKERS SECTION_MS SECONDS PORT: see run.
//
// Defaults: those of ioredis and of redlock, which gives up after 11 attempts. Its lease has no default: 30 s.
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import Redlock from "redlock";
import { fromIoredis, Locks } from "redis-dlock";

const [name, workers, sectionMs, seconds, port] = process.argv.slice(2);

const locks = {
  dlock: () => {
    const locks = new Locks(fromIoredis(new Redis(port, "127.0.0.1")));
    return () => locks.acquire("peer");
  },
  redlock: () => {
    const redlock = new Redlock([new Redis(port, "127.0.0.1")]);
    return () => redlock.acquire(["peer-redlock"], 30_000).catch(() => null);
  },
};

const obtain = locks[name]();
const lines = [];
const start = performance.now();
const end = start + seconds * 1000;

async function work() {
  for (let began = start; began < end; ) {
    const held = await obtain();
    const now = performance.now();
    if (held === null) {
      lines.push(`gave_up ${now - start}`);
      continue;
    }
    lines.push(`${began - start} ${now - start}`);
    if (sectionMs > 0) await sleep(Number(sectionMs));
    await held.release();
    began = performance.now();
  }
}

await Promise.all(Array.from({ length: Number(workers) }, work));
process.stdout.write(lines.join("\n"), () => process.exit());
