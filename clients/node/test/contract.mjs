// What all libraries of DLOCK have in common: arguments, errors, causes, and what a program does wrong.
import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { LockError, Locks, Lost } from "redis-dlock";
import { clients } from "./clients.mjs";
import { cleanUp, skip, startProxy, startServer, until } from "./server.mjs";

const word = (word, type = LockError) => (error) => error instanceof type && error.word === word;

function block(ms) {
  for (const end = performance.now() + ms; performance.now() < end; );
}

export function specifyContract(name) {
  const makeClient = clients[name];
  describe(name, { skip }, () => {
    const begin = async (t, { isProxied = false, settings = [], options } = {}) => {
      const server = await startServer(t, ...settings);
      const proxy = isProxied ? await startProxy(t, server) : undefined;
      const client = await makeClient((proxy ?? server).url);
      const locks = new Locks(client, options);
      cleanUp(t, () => locks.close());
      return { server, proxy, locks, client };
    };

    test("arguments that mean nothing are refused before anything is sent", async (t) => {
      const { server, locks } = await begin(t);
      const refused = (promise, message) => assert.rejects(promise, (error) => message.test(String(error)));
      const withOption = (name, value, message) => refused(locks.acquire("k", { [name]: value }), message);
      for (const key of [undefined, null, {}, 5, "", [], ["a"], new Uint8Array(), new Date(), "\ud83d"]) {
        await refused(locks.acquire(key), /^TypeError: a key is text/);
        await refused(locks.using([key], 1_000, () => {}), /^TypeError: (a key is text|using needs at least one key)/);
      }
      await withOption("leas", 5, /^TypeError: there is no option leas here: there are lease, timeout,/);
      await refused(locks.tryAcquire("k", { timeout: 5 }), /^TypeError: there is no option timeout here/);
      await refused(locks.acquire("k", 5_000), /^TypeError: options are an object such as/);
      for (const value of [0, -1, NaN, Infinity]) await withOption("lease", value, /^RangeError: lease/);
      for (const value of ["soon", null, {}]) await withOption("lease", value, /^TypeError: lease/);
      for (const value of [-1, NaN]) await withOption("timeout", value, /^RangeError: timeout/);
      for (const value of [0, -1, NaN]) await withOption("maxHold", value, /^RangeError: maxHold/);
      for (const value of [0, 1.5, 2 ** 31, NaN]) await withOption("limit", value, /^RangeError: limit/);
      await refused(locks.acquire("k", { shared: true, limit: 2 }), /^TypeError: shared has no limit/);
      await withOption("shared", 1, /^TypeError: shared/);
      await withOption("renew", "no", /^TypeError: renew/);
      for (const value of ["", 5]) await withOption("owner", value, /owner is text/);
      await withOption("signal", {}, /^TypeError: signal is an AbortSignal/);
      await refused(locks.using("k", 1_000, { retryCount: 0 }, () => {}), /^TypeError: using takes keys, options/);
      const misspelt = () => new Locks({ connection() {} }, { onEvnt() {} });
      assert.throws(misspelt, /^TypeError: there is no option onEvnt here: there are onEvent/);
      assert.equal(await server.connections("name=dlock"), 0);
    });

    test("extend refuses what is no time, and query what is no word", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k");
      for (const value of [undefined, null, {}, [1], true]) {
        await assert.rejects(lock.query("SET", "data", value), { name: "TypeError", message: /^query takes text/ });
      }
      await lock.query("SET", "data", Uint8Array.of(65, 66));
      assert.equal(await server.ask("GET", "data"), "AB");
      for (const value of [0, -1, NaN, Infinity, "soon", null]) {
        await assert.rejects(lock.extend(value), { message: /^ms is a number of ms above 0/ });
      }
      await assert.rejects(lock.extend(1e30), word("ERR"));
      assert.ok(lock.isHeld);
    });

    test("times of a fraction are rounded up, and a lease that is too long is the server's error", async (t) => {
      const { locks } = await begin(t);
      await assert.rejects(locks.acquire("k", { lease: 1e30 }), word("ERR"));
      await locks.acquire("k", { lease: 9_999.1 });
      await assert.rejects(locks.acquire("k", { timeout: 0.1 }), { message: /^k: not granted within 1 ms: / });
    });

    test("a timeout of 0 does not wait, an infinite one waits", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k", { timeout: 0 });
      await assert.rejects(locks.acquire("k", { timeout: 0 }), { word: "TIMEOUT", cause: undefined });
      const waiting = locks.acquire("k", { timeout: Infinity });
      await until(async () => (await server.info("k")).waiting === 1);
      await lock.release();
      await (await waiting).release();
    });

    test("bytes and text name the same lock, and bytes that are no text are granted and given back, too", async (t) => {
      const { server, locks } = await begin(t);
      const text = await locks.acquire("é");
      assert.equal(await locks.tryAcquire(Buffer.from("é")), null);
      await text.release();
      const key = Uint8Array.of(0, 255, 254);
      const lock = await locks.acquire(key);
      assert.equal(lock.key, key);
      const waiting = locks.acquire(key);
      const cancel = new AbortController();
      const cancelled = assert.rejects(locks.acquire(key, { signal: cancel.signal }));
      const waits = async () => (await server.ask("INFO", "dlock")).match(/dlock_waiters:(\d+)/)[1];
      await until(async () => (await waits()) === "2");
      cancel.abort();
      await cancelled;
      await lock.release();
      await (await waiting).release();
      await until(async () => (await server.ask("DBSIZE")) === 0);
    });

    test("a grant for a request that nobody knows is given back, also under a key that is no text", async (t) => {
      const server = await startServer(t);
      const client = await makeClient(server.url);
      const { connection } = client;
      let inbox;
      client.connection = async (...args) => {
        const own = await connection(...args);
        const send = (words) => {
          if (words[0] === "DLOCK.GRANTS") inbox = words[1];
          return own.send(words);
        };
        return { ...own, send };
      };
      const locks = new Locks(client);
      cleanUp(t, () => locks.close());
      await server.ask("DLOCK.ACQUIRE", "busy", "other", 60_000);
      const waiting = assert.rejects(locks.acquire("busy"), word("CLOSED"));
      await until(async () => (await server.info("busy")).waiting === 1);
      const key = Buffer.of(0, 255, 254);
      const lock = await locks.acquire(key);
      await server.ask("DLOCK.ACQUIRE", key, "stranger", 60_000, "QUEUE", inbox, 0, "REQID", "unknown");
      await lock.release();
      await until(async () => (await server.ask("EXISTS", key)) === 0);
      await locks.close();
      await waiting;
    });

    test("using takes locks in the order of their bytes", async (t) => {
      const { locks } = await begin(t);
      const [first, second] = ["\uff01", "\u{1f600}"];
      assert.ok(first > second);
      const routine = (_signal, ...held) => held.map(({ fence }) => fence);
      const fences = await locks.using([second, first, second], 5_000, routine);
      assert.ok(fences[1] < fences[0]);
      assert.equal(fences[2], fences[0]);
    });

    test("an owner enters its lock again, and a deadlock of two is told", async (t) => {
      const { server, locks } = await begin(t);
      const [a, b] = [{ owner: "alice" }, { owner: "bob" }];
      const held = await locks.acquire("a", a);
      const again = await locks.acquire("a", a);
      assert.deepEqual([again.fence, again.owner], [held.fence, "alice"]);
      await again.release();
      assert.equal((await server.info("a")).holders, 1);
      const other = await locks.acquire("b", b);
      const waiting = locks.acquire("b", a);
      await until(async () => (await server.info("b")).waiting === 1);
      await assert.rejects(locks.acquire("a", b), word("DEADLOCK"));
      await other.release();
      await (await waiting).release();
    });

    test("a lease without renewal ends, and can be extended", async (t) => {
      const { locks } = await begin(t);
      const lock = await locks.acquire("k", { lease: 500, renew: false });
      await lock.extend(1_000);
      assert.ok(lock.remaining() > 500);
      await once(lock.signal, "abort");
      assert.ok(word("EXPIRED", Lost)(lock.signal.reason));
      await (await locks.acquire("k", { timeout: 5_000 })).release();
    });

    test("a lock is lost and given back after its maxHold", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k", { maxHold: 700 });
      assert.ok(lock.remaining() <= 700);
      await once(lock.signal, "abort");
      assert.ok(word("MAXHOLD", Lost)(lock.signal.reason));
      await until(async () => (await server.info("k")).holders === 0);
      await assert.rejects(lock.query("SET", "data", 1), word("MAXHOLD", Lost));
    });

    test("signal and isHeld look at the clock", async (t) => {
      const { locks } = await begin(t);
      const lock = await locks.acquire("k", { lease: 300 });
      block(400);
      assert.equal(lock.isHeld, false);
      assert.ok(lock.signal.aborted);
    });

    test("events are told, whatever the function does", async (t) => {
      const events = [];
      const onEvent = (event) => {
        events.push(event);
        throw new Error("a metric failed");
      };
      const warned = once(process, "warning");
      const { server, locks } = await begin(t, { options: { onEvent } });
      const first = await locks.acquire("k");
      const second = locks.acquire("k");
      await until(() => events.some(({ type }) => type === "queued"));
      assert.equal(await locks.tryAcquire("k"), null);
      await assert.rejects(locks.acquire("k", { timeout: 50 }));
      await first.release();
      await second;
      await server.ask("DEL", "k");
      await assert.rejects((await second).release());
      const told = events.map(({ type, key, ahead, ms, error }) => [type, key, ahead, typeof ms, error?.word]);
      // The next grant may overtake the reply to the release.
      const expected = [
        ["acquired", "k", undefined, "number", undefined],
        ["queued", "k", 0, "undefined", undefined],
        ["not acquired", "k", undefined, "number", undefined],
        ["queued", "k", 1, "undefined", undefined],
        ["not acquired", "k", undefined, "number", "TIMEOUT"],
        ["released", "k", undefined, "number", undefined],
        ["acquired", "k", undefined, "number", undefined],
        ["lost", "k", undefined, "number", "NOTHELD"],
      ];
      assert.deepEqual(told.map(String).sort(), expected.map(String).sort());
      assert.equal((await warned)[0].message, "a metric failed");
    });

    test("any number of Locks share the connections of a client, which end when nothing uses them", async (t) => {
      const { server, client } = await begin(t);
      for (let n = 0; n < 200; n++) await (await new Locks(client).acquire("k")).release();
      const own = await server.connections("name=dlock");
      assert.ok(own <= 1, `${own} connections`);
      await until(async () => (await server.connections("name=dlock")) === 0, 15_000);
      const [locks, others] = [new Locks(client), new Locks(client)];
      const [lock, other] = [await locks.acquire("k"), await others.acquire("other")];
      await locks.close();
      assert.ok(lock.signal.aborted && other.isHeld);
      await other.release();
      await others.close();
      await until(async () => (await server.connections("name=dlock")) === 0);
    });

    test("connections are named dlock, or as the client is", async (t) => {
      const { server, locks } = await begin(t);
      await locks.acquire("k");
      await until(async () => (await server.connections("name=dlock")) === 1);
      const option = name === "ioredis" ? "connectionName" : "name";
      const named = new Locks(await makeClient(server.url, { [option]: "shop" }));
      await named.acquire("l");
      assert.equal(await server.connections("name=shop"), 1);
      await named.close();
    });

    test("a timeout names a silent server, and not others", async (t) => {
      const { server, locks } = await begin(t);
      const held = await locks.acquire("k");
      server.child.kill("SIGSTOP");
      cleanUp(t, () => server.child.kill("SIGCONT"));
      const message = new RegExp(`^free: not granted within 300 ms: no reply from 127.0.0.1:${server.port}`);
      await assert.rejects(locks.acquire("free", { timeout: 300 }), { message });
      server.child.kill("SIGCONT");
      const waiting = locks.acquire("k", { timeout: 1_000 });
      const rejected = assert.rejects(waiting, (error) => word("CONNECTION")(error.cause));
      await until(async () => (await server.info("k")).waiting === 1);
      server.child.kill("SIGSTOP");
      await rejected;
      server.child.kill("SIGCONT");
      await held.release();
    });

    test("a timeout names others if they hold the lock", async (t) => {
      const { locks } = await begin(t);
      await locks.acquire("k");
      const message = "k: not granted within 100 ms: others hold or await it";
      await assert.rejects(locks.acquire("k", { timeout: 100 }), { message, cause: undefined });
    });

    test("a timeout names a grace period", async (t) => {
      const { server, locks } = await begin(t, { settings: ["--dlock.startup-grace-ms", "60000"] });
      const rejected = assert.rejects(locks.acquire("k", { timeout: 500 }), (error) => word("GRACE")(error.cause));
      await until(async () => (await server.info("k")).waiting === 1);
      await rejected;
      await assert.rejects(locks.tryAcquire("k"), word("GRACE"));
    });

    test("a server without the module is named", async (t) => {
      const proxy = await startProxy(t, await startServer(t));
      proxy.fails = { word: "DLOCK.ACQUIRE", error: "ERR unknown command 'DLOCK.ACQUIRE', with args beginning" };
      const locks = new Locks(await makeClient(proxy.url));
      cleanUp(t, () => locks.close());
      const message = new RegExp(`^ERR ${new URL(proxy.url).host} does not have the DLOCK module: load it, or`);
      await assert.rejects(locks.acquire("k"), { word: "ERR", message });
    });

    test("a loss names the last error of its renewals", async (t) => {
      const { server, locks } = await begin(t);
      await server.ask("ACL", "SETUSER", "default", "-dlock.extend");
      const lock = await locks.acquire("k", { lease: 1_000 });
      await once(lock.signal, "abort");
      const { reason } = lock.signal;
      assert.ok(word("EXPIRED", Lost)(reason) && word("NOPERM")(reason.cause));
      assert.match(reason.message, /^the lock k is lost, stop the work .*: EXPIRED its lease ended .*: NOPERM /);
    });

    test("a lost connection begins no renewal beside one that is repeated", async (t) => {
      const { server, proxy, locks } = await begin(t, { isProxied: true });
      await locks.acquire("k", { lease: 6_000 });
      Object.assign(proxy, { failed: 0, fails: { word: "DLOCK.EXTEND", times: Infinity, error: "BUSY wait" } });
      await until(() => proxy.failed >= 6);
      const before = proxy.failed;
      for (let times = 0; times < 4; times++) {
        await server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
        await setTimeout(200);
      }
      await setTimeout(600);
      assert.ok(proxy.failed - before <= 12, `${proxy.failed - before} renewals: each repeats itself quickly at first`);
    });

    test("a waiting request is told of although its connections were lost", async (t) => {
      const events = [];
      const { server, locks } = await begin(t, { options: { onEvent: (event) => events.push(event) } });
      await server.ask("DLOCK.ACQUIRE", "k", "another", 60_000);
      const waiting = assert.rejects(locks.acquire("k", { timeout: 4_000 }), LockError);
      await until(() => events.some((event) => event.type === "queued"));
      await server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
      await until(() => events.some((event) => event.type === "waiting"));
      await waiting;
    });

    test("a loss names a server that does not reply to renewals", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k", { lease: 1_000 });
      server.child.kill("SIGSTOP");
      cleanUp(t, () => server.child.kill("SIGCONT"));
      await once(lock.signal, "abort");
      assert.ok(word("CONNECTION")(lock.signal.reason.cause));
    });

    for (const error of ["BUSY", "MISCONF", "NOREPLICAS", "OOM", "LOADING", "READONLY", "TRYAGAIN"]) {
      test(`${error} is waited out by acquire, extend and release, and told by tryAcquire and query`, async (t) => {
        const { server, proxy, locks } = await begin(t, { isProxied: true });
        await (await locks.acquire("warm")).release();
        const fail = (word, times) =>
          Object.assign(proxy, { failed: 0, fails: { word, times, error: `${error} wait` } });
        fail("DLOCK.ACQUIRE", 2);
        const lock = await locks.acquire("k");
        fail("DLOCK.EXTEND", 2);
        await lock.extend(60_000);
        fail("DLOCK.ACQUIRE", 1);
        await assert.rejects(locks.tryAcquire("l"), word(error));
        fail("DLOCK.GUARD", 1);
        await assert.rejects(lock.query("SET", "data", 1), word(error));
        fail("DLOCK.RELEASE", 2);
        await lock.release();
        assert.deepEqual([proxy.failed, (await server.info("k")).holders], [2, 0]);
      });
    }

    test("a full queue is waited for, and told to who does not wait", async (t) => {
      const { proxy, locks } = await begin(t, { isProxied: true });
      await (await locks.acquire("warm")).release();
      const fails = { word: "DLOCK.ACQUIRE", times: 1, error: "QUEUEFULL dlock.max-waiters is reached" };
      Object.assign(proxy, { fails, failed: 0 });
      await (await locks.acquire("k")).release();
      proxy.failed = 0;
      await assert.rejects(locks.tryAcquire("k"), word("QUEUEFULL"));
    });

    test("a user with the rights that the README names acquires, waits, renews and queries", async (t) => {
      const server = await startServer(t);
      const rights = "+dlock.acquire +dlock.release +dlock.extend +dlock.grants +dlock.guard +set".split(" ");
      await server.ask("ACL", "SETUSER", "app", "on", ">secret", "~*", "-@all", ...rights);
      const locks = new Locks(await makeClient(server.url.replace("//", "//app:secret@")));
      cleanUp(t, () => locks.close());
      const lock = await locks.acquire("k", { lease: 1_000 });
      const waiting = locks.acquire("k");
      await until(() => lock.remaining() > 0 && lock.remaining() < 900);
      await until(() => lock.remaining() > 900);
      assert.equal(await lock.query("SET", "data", 1), "OK");
      await lock.release();
      await (await waiting).release();
    });

    test("a release that is not confirmed in time is repeated in the background", async (t) => {
      const { server, proxy, locks } = await begin(t, { isProxied: true });
      const lock = await locks.acquire("k", { lease: 60_000 });
      proxy.fails = { word: "DLOCK.RELEASE", error: "BUSY a script runs" };
      const began = performance.now();
      await assert.rejects(lock.release(), (error) => word("UNCONFIRMED", Lost)(error) && word("BUSY")(error.cause));
      const took = performance.now() - began;
      assert.ok(took > 9_000 && took < 15_000, `${took} ms`);
      const { failed } = proxy;
      await until(() => proxy.failed > failed + 3);
      assert.equal((await server.info("k")).holders, 1);
      proxy.fails = undefined;
      await until(async () => (await server.info("k")).holders === 0);
    });

    test("an extension that never succeeds ends with the loss of the lock", async (t) => {
      const { proxy, locks } = await begin(t, { isProxied: true });
      const lock = await locks.acquire("k", { lease: 1_000 });
      proxy.fails = { word: "DLOCK.EXTEND", error: "MISCONF the disk is full" };
      await assert.rejects(lock.extend(2_000), (error) => word("EXPIRED", Lost)(error) && word("MISCONF")(error.cause));
    });

    test("another type in place of the lock is a loss", async (t) => {
      const { server, locks } = await begin(t);
      const lock = await locks.acquire("k");
      await server.ask("SET", "k", "text");
      await assert.rejects(lock.extend(60_000), word("WRONGTYPE", Lost));
      assert.ok(lock.signal.aborted);
    });

    test("a node of a cluster is told to a client of one server", async (t) => {
      const { proxy, locks } = await begin(t, { isProxied: true });
      proxy.fails = { word: "DLOCK.ACQUIRE", times: 1, error: "MOVED 42 127.0.0.1:7380" };
      await assert.rejects(locks.acquire("k"), { word: "MOVED", message: /pass a client of the cluster$/ });
      const lock = await locks.acquire("l");
      proxy.fails = { word: "DLOCK.RELEASE", error: "ASK 42 127.0.0.1:7380" };
      await assert.rejects(lock.release(), { word: "ASK", message: /pass a client of the cluster$/ });
    });

    test("a lease that no grant keeps is given up after 10", async (t) => {
      const { server, locks } = await begin(t);
      const message = /: EXPIRED 10 grants .* take a longer one$/;
      await assert.rejects(locks.acquire("k", { lease: 1 }), { word: "EXPIRED", message });
      const [, calls] = /cmdstat_dlock.acquire:calls=(\d+)/.exec(await server.ask("INFO", "commandstats"));
      assert.equal(calls, "10");
    });
  });
}

