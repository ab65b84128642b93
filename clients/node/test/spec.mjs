// What a program gets, on each client library.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { getEventListeners, once } from "node:events";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { AcquireTimeout, LockError, Locks, Lost } from "redis-dlock";
import { clients, hostile } from "./clients.mjs";
import { cleanUp, freePort, skip, startProxy, startServer, until } from "./server.mjs";

const word = (word, type = LockError) => (error) => error instanceof type && error.word === word;

function block(ms) {
  for (const end = performance.now() + ms; performance.now() < end; );
}

/** The tests of one client library. As some block the program, each library has its own process. */
export function specify(name) {
  const makeClient = clients[name];
  describe(name, { skip }, () => {
    /** A server, perhaps a proxy before it, and locks. */
    const begin = async (t, isProxied = false) => {
      const server = await startServer(t);
      const proxy = isProxied ? await startProxy(t, server) : undefined;
      const locks = new Locks(await makeClient((proxy ?? server).url));
      cleanUp(t, () => locks.close());
      return { server, proxy, locks };
    };

    test("a held lock excludes others until its release, and each grant has a larger fence", async (t) => {
      const { locks } = await begin(t);
      const first = await locks.acquire("k");
      assert.ok(Number.isSafeInteger(first.fence) && first.isHeld);
      assert.ok(first.remaining() > 29_000 && first.remaining() < 30_000);
      assert.equal(await locks.tryAcquire("k"), null);
      const second = locks.acquire("k");
      await first.release();
      assert.equal(first.remaining(), 0);
      assert.ok((await second).fence > first.fence);
      assert.ok(!first.signal.aborted);
      await first.release();
    });

    test("waiting requests are granted in order", async (t) => {
      const { locks } = await begin(t);
      const order = [];
      const work = async (n) => {
        const lock = await locks.acquire("k");
        order.push(n);
        await lock.release();
      };
      await Promise.all(Array.from({ length: 200 }, (_, n) => work(n)));
      assert.deepEqual(order, Array.from({ length: 200 }, (_, n) => n));
    });

    test("shared locks are held together, and a limit admits that many holders", async (t) => {
      const { server, locks } = await begin(t);
      await Promise.all([1, 2, 3].map(() => locks.acquire("s", { shared: true })));
      await Promise.all([1, 2].map(() => locks.acquire("l", { limit: 2 })));
      assert.equal((await server.info("s")).holders, 3);
      assert.equal(await locks.tryAcquire("s"), null);
      assert.equal(await locks.tryAcquire("l", { limit: 2 }), null);
    });

    test("a timeout rejects with AcquireTimeout and leaves nothing", async (t) => {
      const { server, locks } = await begin(t);
      const held = await locks.acquire("k");
      await assert.rejects(locks.acquire("k", { timeout: 100 }), word("TIMEOUT", AcquireTimeout));
      await until(async () => (await server.info("k")).waiting === 0);
      await held.release();
      assert.equal((await server.info("k")).holders, 0);
    });

    test("1 000 waiting tasks use two connections, and an abort of all leaves nothing", async (t) => {
      const { server, locks } = await begin(t);
      await server.ask("DLOCK.ACQUIRE", "k", "other", 60_000);
      const cancel = new AbortController();
      const waiting = Array.from({ length: 1_000 }, () => locks.acquire("k", { signal: cancel.signal }));
      await until(async () => (await server.info("k")).waiting === 1_000);
      // On a machine that is busy, one may just be replaced.
      await until(async () => {
        const connections = await server.connections();
        assert.ok(connections <= 2, `${connections} connections`);
        return connections === 2;
      });
      const reason = new Error("enough");
      cancel.abort(reason);
      for (const outcome of await Promise.allSettled(waiting)) assert.equal(outcome.reason, reason);
      await until(async () => (await server.info("k")).waiting === 0);
      await assert.rejects(locks.acquire("k", { signal: cancel.signal }), reason);
    });

    test("an abort at any moment leaves nothing", async (t) => {
      const { server, locks } = await begin(t);
      for (let n = 0; n < 50; n++) {
        const cancel = new AbortController();
        const acquiring = locks.acquire("k", { signal: cancel.signal }).catch(() => null);
        await sleep(n / 20);
        cancel.abort();
        await (await acquiring)?.release();
      }
      await until(async () => (await server.info("k")).holders === 0);
    });

    test("a lease is renewed, also while others wait", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k", { lease: 4_000 });
      const other = locks.acquire("k");
      await sleep(5_000);
      assert.ok(lock.isHeld);
      assert.equal((await server.info("k")).holders, 1);
      await lock.release();
      await (await other).release();
    });

    test("a deleted lock is told at the next renewal, and its release rejects", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k", { lease: 3_000 });
      await server.ask("DEL", "k");
      await once(lock.signal, "abort");
      assert.ok(word("NOTHELD", Lost)(lock.signal.reason));
      await assert.rejects(lock.release(), word("NOTHELD", Lost));
      await assert.rejects(lock.extend(1_000), word("NOTHELD", Lost));
      const again = await locks.acquire("k");
      await server.ask("DEL", "k");
      await assert.rejects(again.release(), word("NOTHELD", Lost));
    });

    test("a lock that is gone after a lost connection is told at once", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k");
      await server.ask("DEL", "k");
      await server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
      await once(lock.signal, "abort", { signal: AbortSignal.timeout(5_000) });
      assert.ok(word("NOTHELD", Lost)(lock.signal.reason));
    });

    test("a lock is lost at its deadline if the server is silent", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k", { lease: 1_000 });
      server.child.kill("SIGSTOP");
      const left = lock.remaining();
      const began = performance.now();
      await once(lock.signal, "abort");
      const late = performance.now() - began - left;
      assert.ok(late > -50 && late < 5_000, `${late} ms late`);
      assert.ok(word("EXPIRED", Lost)(lock.signal.reason));
      server.child.kill("SIGCONT");
    });

    test("after a block longer than the lease, the loss is told at once", async (t) => {
      const { locks } = await begin(t);
      const lock = await locks.acquire("k", { lease: 1_000 });
      const { signal } = lock;
      block(1_200);
      assert.equal(lock.isHeld, false);
      for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate);
      assert.ok(word("EXPIRED", Lost)(signal.reason));
    });

    test("a block that ends after the old deadline keeps a lease whose renewal was under way", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k", { lease: 3_000 });
      await server.ask("CLIENT", "PAUSE", 60_000, "WRITE");
      // The server has the renewal, and lets it wait.
      await until(async () => (await server.ask("INFO", "clients")).includes("blocked_clients:1"));
      const left = lock.remaining();
      assert.ok(left > 0 && left < 2_000);
      const { signal } = lock;
      const resumed = server.ask("CLIENT", "UNPAUSE");
      block(left + 100);
      assert.equal(lock.remaining(), 0);
      await resumed;
      await until(() => lock.isHeld || signal.aborted);
      assert.ok(lock.isHeld);
    });

    test("a query runs only while the lock is held", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k");
      assert.equal(await lock.query("SET", "data", 1), "OK");
      assert.equal(await lock.query("INCR", "data"), 2);
      assert.equal(await lock.query("INCRBY", "data", 0n), 2);
      assert.equal(await lock.query("GET", "none"), null);
      await assert.rejects(lock.query("LPUSH", "data", 1), word("WRONGTYPE"));
      await server.ask("DEL", "k");
      await assert.rejects(lock.query("SET", "data", 3), word("NOTHELD", Lost));
      assert.equal(await server.ask("GET", "data"), "2");
      assert.ok(lock.signal.aborted);
    });

    test("a query passes bytes on as they are", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k");
      const bytes = Buffer.from([0, 128, 255]);
      await lock.query("SET", Buffer.from("data"), bytes);
      assert.equal(await server.ask("STRLEN", "data"), bytes.length);
    });

    test("extend makes a lease longer, and fails after the release", async (t) => {
      const { locks } = await begin(t);
      const lock = await locks.acquire("k", { lease: 1_000 });
      await lock.extend(5_000);
      assert.ok(lock.remaining() > 4_000);
      await lock.release();
      await assert.rejects(lock.extend(1_000), word("RELEASED"));
    });

    test("a lease made longer is still renewed after each third of the lease", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k", { lease: 1_000 });
      await lock.extend(60_000);
      await sleep(500);
      await server.ask("DEL", "k");
      await until(() => lock.signal.aborted, 5_000);
    });

    test("a lease longer than any timer is not renewed all the time", async (t) => {
      const { server, locks } = await begin(t);
      await server.ask("CONFIG", "SET", "dlock.max-lease-ms", 1e10);
      await locks.acquire("k", { lease: 1e10 });
      await sleep(500);
      assert.ok(!(await server.ask("INFO", "commandstats")).includes("dlock.extend"));
    });

    test("a connection that is lost again and again is not opened in a loop", async (t) => {
      const { proxy, locks } = await begin(t, true);
      const lock = await locks.acquire("k", { lease: 3_000 });
      const losing = setInterval(() => (proxy.losesReplyTo = "DLOCK.EXTEND"), 1);
      await once(lock.signal, "abort");
      clearInterval(losing);
      assert.ok(proxy.opened < 30, `${proxy.opened} connections`);
    });

    test("a request that somebody else withdraws is queued again", async (t) => {
      const { server, locks } = await begin(t);
      const held = await locks.acquire("k");
      const waiting = locks.acquire("k");
      const waiters = async () => (await server.ask("DLOCK.INFO", "k"))?.at(-1) ?? [];
      await until(async () => (await waiters()).length === 1);
      const [waiter] = await waiters();
      const owner = waiter[waiter.indexOf("owner") + 1];
      await server.ask("DLOCK.RELEASE", "k", owner, "REQID", owner.split(":").at(-1));
      await until(async () => (await waiters()).length === 1);
      await held.release();
      await (await waiting).release();
    });

    test("cut connections lose no lock and no place in the queue", async (t) => {
      const { server, proxy, locks } = await begin(t, true);
      const lock = await locks.acquire("k", { lease: 3_000 });
      const order = [];
      const waiting = [1, 2, 3].map(async (n) => {
        const next = await locks.acquire("k", { lease: 2_000 });
        order.push(n);
        await next.release();
      });
      await until(async () => (await server.info("k")).waiting === 3);
      for (let n = 0; n < 5; n++) {
        proxy.cut();
        await sleep(300);
      }
      await until(() => lock.remaining() > 2_500 || !lock.isHeld);
      assert.ok(lock.isHeld);
      await lock.release();
      await Promise.all(waiting);
      assert.deepEqual(order, [1, 2, 3]);
    });

    test("requests are sent again, in order, after their inbox has ended", async (t) => {
      const { server, locks } = await begin(t);
      await server.ask("DLOCK.ACQUIRE", "k", "other", 60_000);
      const order = [];
      const waiting = Array.from({ length: 50 }, async (_, n) => {
        const lock = await locks.acquire("k");
        order.push(n);
        await lock.release();
      });
      await until(async () => (await server.info("k")).waiting === 50);
      block(7_500);
      await until(async () => (await server.info("k")).waiting === 50);
      await server.ask("DLOCK.RELEASE", "k", "other");
      await Promise.all(waiting);
      assert.deepEqual(order, Array.from({ length: 50 }, (_, n) => n));
    });

    test("after a lost reply, an acquisition counts once", async (t) => {
      const { server, proxy, locks } = await begin(t, true);
      await (await locks.acquire("warm")).release();
      for (const acquire of ["acquire", "tryAcquire"]) {
        proxy.losesReplyTo = "DLOCK.ACQUIRE";
        const lock = await locks[acquire]("k");
        const [, , , [holder]] = await server.ask("DLOCK.INFO", "k");
        assert.equal(holder[holder.indexOf("holds") + 1], 1);
        await lock.release();
        assert.equal((await server.info("k")).holders, 0);
      }
      assert.equal(proxy.lost, 2);
    });

    test("a release without a reply rejects with Lost, and the lock is free", async (t) => {
      const { server, proxy, locks } = await begin(t, true);
      const lock = await locks.acquire("k");
      proxy.losesReplyTo = "DLOCK.RELEASE";
      await assert.rejects(lock.release(), word("UNCONFIRMED", Lost));
      assert.equal((await server.info("k")).holders, 0);
    });

    test("a query without a reply rejects and is not repeated", async (t) => {
      const { server, proxy, locks } = await begin(t, true);
      const lock = await locks.acquire("k");
      proxy.losesReplyTo = "DLOCK.GUARD";
      await assert.rejects(lock.query("INCR", "data"), word("CONNECTION"));
      assert.equal(await server.ask("GET", "data"), "1");
      assert.equal(await lock.query("INCR", "data"), 2);
    });

    test("options of the client that fit no lock are not used", async (t) => {
      const server = await startServer(t);
      const proxy = await startProxy(t, server);
      const locks = new Locks(await makeClient(proxy.url, hostile(name)));
      cleanUp(t, () => locks.close());
      const lock = await locks.acquire("k");
      assert.equal(typeof lock.fence, "number");
      const waiting = locks.acquire("k");
      await until(async () => (await server.info("k")).waiting === 1);
      const { opened } = proxy;
      await sleep(1_000);
      assert.equal(proxy.opened, opened);
      await Promise.all(Array.from({ length: 10 }, () => lock.query("RPUSH", "list", 1)));
      await assert.rejects(lock.query("INCR", "list"), word("WRONGTYPE"));
      proxy.losesReplyTo = "DLOCK.GUARD";
      await assert.rejects(lock.query("INCR", "data"), word("CONNECTION"));
      await lock.release();
      await (await waiting).release();
      assert.equal(await server.ask("GET", "data"), "1");
    });

    test("the first request fails at once if the connection is refused, later ones wait", async (t) => {
      const refused = new Locks(await makeClient(`redis://127.0.0.1:${await freePort()}`));
      await assert.rejects(refused.acquire("k"), word("CONNECTION"));
      await refused.close();
      const { server, locks } = await begin(t);
      await (await locks.acquire("k")).release();
      server.child.kill("SIGKILL");
      await server.ended;
      await assert.rejects(locks.acquire("k", { timeout: 500 }), word("TIMEOUT", AcquireTimeout));
    });

    test("errors of the server are told by their word", async (t) => {
      const { server, locks } = await begin(t);
      await server.ask("SET", "text", "1");
      await assert.rejects(locks.acquire("text"), word("WRONGTYPE"));
      await assert.rejects(locks.acquire("k", { lease: 1e9 }), word("ERR"));
      await server.ask("ACL", "SETUSER", "default", "-dlock.grants");
      const lock = await locks.acquire("k");
      await assert.rejects(locks.acquire("k"), word("NOPERM"));
      await server.ask("ACL", "SETUSER", "default", "-dlock.acquire");
      await assert.rejects(locks.tryAcquire("k"), word("NOPERM"));
      await lock.release();
    });

    test("using holds all locks while the routine runs, and releases them whatever happens", async (t) => {
      const { server, locks } = await begin(t);
      const result = await locks.using(["b", "a"], 4_000, async (signal, b, a) => {
        assert.deepEqual([b.key, a.key, signal.aborted], ["b", "a", false]);
        assert.ok(a.fence < b.fence);
        await sleep(5_000);
        return b.isHeld && a.isHeld;
      });
      assert.equal(result, true);
      const failure = new Error("work failed");
      await assert.rejects(locks.using("a", 500, () => Promise.reject(failure)), failure);
      for (const key of ["a", "b"]) assert.equal((await server.info(key)).holders, 0);
    });

    test("using aborts its signal and rejects if a lock is lost", async (t) => {
      const { server, locks } = await begin(t);
      const using = locks.using(["a", "b"], { lease: 3_000 }, async (signal) => {
        await server.ask("DEL", "b");
        await once(signal, "abort");
        return "unprotected";
      });
      await assert.rejects(using, word("NOTHELD", Lost));
      assert.equal((await server.info("a")).holders, 0);
    });

    test("a signal keeps no listeners of what is over, and any number of tasks use it", async (t) => {
      const { locks } = await begin(t);
      const { signal } = new AbortController();
      const onWarning = (warning) => warnings.push(warning);
      const warnings = [];
      process.on("warning", onWarning);
      const options = { lease: 30_000, shared: true, signal };
      await Promise.all(Array.from({ length: 20 }, () => locks.using(["a", "b"], options, () => {})));
      await Promise.all(Array.from({ length: 20 }, async () => (await locks.acquire("a", options)).release()));
      process.off("warning", onWarning);
      assert.deepEqual(warnings, []);
      assert.equal(getEventListeners(signal, "abort").length, 0);
    });

    test("an abort of its signal aborts that of using", async (t) => {
      const { locks } = await begin(t);
      const cancel = new AbortController();
      const reason = new Error("enough");
      const run = locks.using("a", { signal: cancel.signal }, async (signal) => {
        cancel.abort(reason);
        return signal.reason;
      });
      assert.equal(await run, reason);
    });

    test("a lease too short for the way to the server is given up", async (t) => {
      const { server, locks } = await begin(t);
      await assert.rejects(locks.acquire("k", { lease: 1 }), word("EXPIRED", Lost));
      await assert.rejects(locks.tryAcquire("k", { lease: 1 }), word("EXPIRED", Lost));
      await until(async () => (await server.info("k")).holders === 0);
    });

    test("a block with `await using` releases the lock at its end", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k");
      await lock[Symbol.asyncDispose]();
      assert.equal((await server.info("k")).holders, 0);
      await lock[Symbol.asyncDispose]();
    });

    test("close gives back what is held and what waits", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k");
      const waiting = locks.acquire("k");
      await until(async () => (await server.info("k")).waiting === 1);
      const rejected = assert.rejects(waiting, word("CLOSED"));
      await locks.close();
      await rejected;
      assert.ok(word("CLOSED", Lost)(lock.signal.reason));
      assert.equal((await server.info("k")).holders, 0);
      await until(async () => (await server.connections()) === 0);
      await assert.rejects(locks.acquire("k"), word("CLOSED"));
    });

    test("requests that come during close are refused", async (t) => {
      const { server, locks } = await begin(t);
      await locks.acquire("k");
      const closing = locks.close();
      await assert.rejects(locks.acquire("other"), word("CLOSED"));
      await closing;
      assert.equal((await server.info("other")).holders, 0);
      await locks.close();
    });

    test("a program ends by itself, with a lock or without", async (t) => {
      const { server } = await begin(t);
      const program = `
        import { Locks } from "redis-dlock";
        import { clients } from "./test/clients.mjs";
        const locks = new Locks(await clients["${name}"]("${server.url}", { pingInterval: 200_000 }));
        await (await locks.acquire("k")).release();
        const waiting = locks.acquire("other", { timeout: 300 }).catch((error) => console.log(error.word));
        await locks.acquire("held");
        await waiting;
        if (process.argv.includes("close")) await locks.close();`;
      await server.ask("DLOCK.ACQUIRE", "other", "other", 60_000);
      const stdio = ["ignore", "pipe", "inherit"];
      for (const last of ["exit", "close"]) {
        const child = spawn(process.execPath, ["--input-type=module", "-e", program, last], { stdio });
        const [[printed], [code]] = await Promise.all([once(child.stdout, "data"), once(child, "exit")]);
        assert.deepEqual([String(printed), code], ["TIMEOUT\n", 0]);
        await server.ask("DEL", "held");
      }
    });
  });
}
