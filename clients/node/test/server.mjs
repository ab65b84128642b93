// Servers with the module of DLOCK_MODULE, and a proxy that cuts and swallows, for the tests.
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";

const program = process.env.DLOCK_SERVER ?? "redis-server";
/** Why tests with a server are skipped, or false. */
export const skip =
  (!process.env.DLOCK_MODULE && "DLOCK_MODULE names no module") ||
  (spawnSync(program, ["--version"]).error && `${program} is not installed`) ||
  false;

/** A cluster's bus has a port that is 10 000 higher. */
const MAX_PORT = 55_535;

export async function freePort() {
  for (;;) {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address();
    server.close();
    if (port <= MAX_PORT) return port;
  }
}

/** Waits until the condition holds, and returns what it returned. */
export async function until(condition, ms = 10_000) {
  for (const end = performance.now() + ms; ; await sleep(10)) {
    const result = await condition();
    if (result) return result;
    if (performance.now() > end) throw new Error(`not within ${ms} ms: ${condition}`);
  }
}

const cleanups = new WeakMap();

/** Runs this after the test: what began last ends first. */
export function cleanUp(t, end) {
  if (!cleanups.has(t)) {
    cleanups.set(t, []);
    t.after(async () => {
      for (const each of cleanups.get(t).reverse()) await each();
    });
  }
  cleanups.get(t).push(end);
}

/** A server, which ends with the test. Somebody else may take the port before it does. */
async function start(t, args, configuration = "") {
  for (let tries = 0; tries < 3; tries++) {
    const server = await startAt(await freePort(), t, args, configuration);
    if (server) return server;
  }
  throw new Error(`${program} does not start: ${args.join(" ")}`);
}

/** A process that listens at a port, in its own directory, if it can. */
async function startAt(port, t, args, configuration) {
  const directory = mkdtempSync(join(tmpdir(), "dlock-node-"));
  const file = join(directory, "server.conf");
  writeFileSync(file, `port ${port}\nbind 127.0.0.1\ndir ${directory}\n${configuration}`);
  const child = spawn(program, [file, ...args.map(String)], { cwd: directory, stdio: "ignore" });
  const ended = once(child, "exit");
  const client = new Redis(port, "127.0.0.1", { maxRetriesPerRequest: null, retryStrategy: () => 20 });
  client.on("error", () => {});
  cleanUp(t, async () => {
    client.disconnect();
    child.kill("SIGKILL");
    await ended;
    rmSync(directory, { recursive: true });
  });
  const isUp = await Promise.race([client.ping(), ended.then(() => false)]);
  if (!isUp) return undefined;
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    child,
    ended,
    /** Sends a command on a connection of its own. */
    ask: (...command) => client.call(...command.map((word) => (Buffer.isBuffer(word) ? word : String(word)))),
    /** How many connections there are besides this one, with this word. */
    async connections(word = "cmd=") {
      const lines = (await client.client("LIST")).split("\n");
      return lines.filter((line) => line.includes(word) && !line.includes("cmd=client")).length;
    },
    /** The number of waiters for a lock, and of its holders. */
    async info(key) {
      const reply = await client.call("DLOCK.INFO", key);
      const field = (name) => reply?.[reply.indexOf(name) + 1];
      return { waiting: field("waiting") ?? 0, holders: field("holders")?.length ?? 0 };
    },
  };
}

export async function startServer(t, ...args) {
  return await start(t, ["--save", "", "--loadmodule", process.env.DLOCK_MODULE, ...args]);
}

export async function startSentinel(t, primary) {
  const lines = [`sentinel monitor locks 127.0.0.1 ${primary.port} 1`];
  lines.push("sentinel down-after-milliseconds locks 500", "sentinel failover-timeout locks 2000");
  return await start(t, ["--sentinel"], lines.join("\n"));
}

/** A cluster of two primaries, each with half of the slots, and a replica of the first. */
export async function startCluster(t) {
  const [first, second, replica] = await Promise.all(
    [1, 2, 3].map(() => startServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")),
  );
  await first.ask("CLUSTER", "ADDSLOTSRANGE", 0, 8191);
  await second.ask("CLUSTER", "ADDSLOTSRANGE", 8192, 16383);
  for (const other of [second, replica]) await first.ask("CLUSTER", "MEET", "127.0.0.1", other.port);
  const id = await first.ask("CLUSTER", "MYID");
  await until(async () => (await replica.ask("CLUSTER", "NODES")).includes(id));
  await until(() => replica.ask("CLUSTER", "REPLICATE", id).catch(() => null));
  for (const node of [first, second, replica]) {
    await until(async () => (await node.ask("CLUSTER", "INFO")).includes("cluster_state:ok"));
  }
  await until(async () => (await replica.ask("INFO", "replication")).includes("master_link_status:up"));
  await until(async () => (await second.ask("CLUSTER", "NODES")).includes("slave"));
  return { first, second, replica };
}

/** A command that fails with this error. */
function failing(error) {
  const words = ["EVAL", "return redis.error_reply(ARGV[1])", "0", error];
  return Buffer.from(`*4\r\n${words.map((word) => `$${word.length}\r\n${word}\r\n`).join("")}`);
}

/** The whole commands at the beginning of these bytes, and the rest. */
function split(bytes) {
  const commands = [];
  for (let [at, end] = [0, 0]; ; at = end) {
    end = endOf(bytes, at);
    if (end === undefined) return [commands, bytes.subarray(at)];
    commands.push(bytes.subarray(at, end));
  }
}

/** Where the command at this place ends, if it does. */
function endOf(bytes, start) {
  let [at, left] = [start, 1];
  for (let isFirst = true; left > 0; isFirst = false, left--) {
    const end = bytes.indexOf("\r\n", at);
    if (end < 0) return undefined;
    const length = Number(bytes.subarray(at + 1, end));
    if (isFirst) [at, left] = [end + 2, length + 1];
    else at = end + 2 + length + 2;
  }
  return at <= bytes.length ? at : undefined;
}

/** A proxy that can cut all connections, and those on which a reply would be passed on, and replies with errors. */
export async function startProxy(t, target) {
  const pairs = new Set();
  const cut = () => pairs.forEach(([a, b]) => a.destroy() && b.destroy());
  /** `opened`: how many connections there have been, `lost`: how many replies, `failed`: how many errors. */
  const proxy = { cut, losesReplyTo: undefined, lost: 0, opened: 0, failed: 0, fails: undefined };
  const server = createServer((inside) => {
    proxy.opened++;
    const outside = connect(target.port, "127.0.0.1");
    const pair = [inside, outside];
    let isLosing = false;
    pairs.add(pair);
    let unsent = Buffer.alloc(0);
    const pass = (command) => {
      const { word, times = Infinity, error } = proxy.fails ?? {};
      if (!word || !command.includes(word) || proxy.failed >= times) return command;
      proxy.failed++;
      return failing(error);
    };
    inside.on("data", (received) => {
      const [commands, rest] = split(Buffer.concat([unsent, received]));
      const data = Buffer.concat(commands.map(pass));
      unsent = rest;
      if (proxy.losesReplyTo && data.includes(proxy.losesReplyTo)) {
        [isLosing, proxy.losesReplyTo] = [true, undefined];
      }
      outside.write(data);
    });
    outside.on("data", (data) => {
      if (!isLosing) return inside.write(data);
      proxy.lost++;
      pair.forEach((end) => end.destroy());
    });
    for (const end of pair) {
      end.on("error", () => {});
      end.on("close", () => pairs.delete(pair) && pair.forEach((other) => other.destroy()));
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  cleanUp(t, () => {
    proxy.cut();
    server.close();
  });
  return Object.assign(proxy, { url: `redis://127.0.0.1:${server.address().port}` });
}
