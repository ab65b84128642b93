// peer.mjs LOCK PORT WORKERS SECTION_MS SECONDS: see run.
import { setTimeout as sleep } from "node:timers/promises";
import Redlock from "redlock";
import { acquire, connect } from "./lock.mjs";

const [name, , workers, sectionMs, seconds] = process.argv.slice(2);
const client = connect(30_000);

const locks = {
  /** The program of docs/languages.md. */
  dlock: () => () => acquire(client, "peer", 30_000, 30_000),
  redlock: () => {
    const redlock = new Redlock([client]);
    return () => redlock.acquire(["peer-redlock"], 30_000).catch(() => null);
  },
};

const obtain = locks[name]();
const waits = [];
let failed = 0;
// After the warm-up.
const counted = performance.now() + 1000;
const end = counted + seconds * 1000;

async function work() {
  for (let began = performance.now(); began < end; ) {
    const held = await obtain();
    if (held === null) {
      failed += 1;
      continue;
    }
    if (began >= counted) waits.push(performance.now() - began);
    if (sectionMs > 0) await sleep(Number(sectionMs));
    await held.release();
    began = performance.now();
  }
}

await Promise.all(Array.from({ length: Number(workers) }, work));
const elapsed = (performance.now() - counted) / 1000;
waits.sort((one, other) => one - other);
const info = await client.info("clients");
const ms = (wait) => Math.round(wait * 10) / 10;
console.log(JSON.stringify({
  per_s: Math.round(waits.length / elapsed),
  p99_ms: ms(waits[Math.floor((waits.length * 99) / 100)]),
  longest_ms: ms(waits.at(-1)),
  failed,
  connections: Number(info.match(/connected_clients:(\d+)/)[1]),
}));
process.exit();
