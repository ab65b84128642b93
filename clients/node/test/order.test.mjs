// The order of requests whose inbox has ended, whatever the order of replies. The server is a script of the test.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { Locks } from "redis-dlock";

/** A client whose commands are answered by the test. */
function scripted() {
  const commands = [];
  let isOver = false;
  const connection = async () => ({
    connect: async () => {},
    async send([name, key]) {
      if (isOver) throw over();
      return await new Promise((reply, fail) => commands.push({ name, key: String(key), reply, fail }));
    },
    close() {},
  });
  /** The next command of this name that has no answer yet. */
  const next = async (name, key) => {
    for (let turns = 0; turns < 100; turns++) {
      const at = commands.findIndex((command) => command.name === name && (!key || command.key === key));
      if (at >= 0) return commands.splice(at, 1)[0];
      await turn();
    }
    throw new Error(`no ${name} ${key ?? ""}`);
  };
  const end = () => {
    isOver = true;
    for (const command of commands) command.fail(over());
  };
  const sent = () => commands.filter(({ name }) => name === "DLOCK.ACQUIRE").map(({ key }) => key);
  return { client: { source: {}, server: "a script", connection }, next, sent, end };
}

const over = () => new Error("ERR the test is over");
const noInbox = () => new Error("NOINBOX no such inbox");
const QUEUED = [0];
const CREATED = [1, 0, []];

/** Locks with requests for these keys that wait, and the call of their reader. */
async function waiting(t, { client, next, end }, keys) {
  const locks = new Locks(client);
  t.after(() => {
    end();
    return locks.close();
  });
  for (const key of keys) locks.acquire(key).catch(() => {});
  for (const key of keys) (await next("DLOCK.ACQUIRE", key)).fail(noInbox());
  (await next("DLOCK.GRANTS")).reply(CREATED);
  return await next("DLOCK.GRANTS");
}

test("an older request whose reply comes late is queued again before newer ones", async (t) => {
  const script = scripted();
  const reading = await waiting(t, script, ["old", "new"]);
  const late = await script.next("DLOCK.ACQUIRE", "old");
  (await script.next("DLOCK.ACQUIRE", "new")).reply(QUEUED);
  await turn();
  // The inbox ends, and another one is opened.
  reading.fail(noInbox());
  (await script.next("DLOCK.ACQUIRE", "new")).fail(noInbox());
  (await script.next("DLOCK.GRANTS")).reply(CREATED);
  await turn();
  assert.deepEqual(script.sent(), []);
  late.fail(noInbox());
  await turn();
  await turn();
  assert.deepEqual(script.sent(), ["old", "new"]);
});

test("a newer request that is sent again for a lost reply is queued after older ones", async (t) => {
  const script = scripted();
  const reading = await waiting(t, script, ["old", "new"]);
  (await script.next("DLOCK.ACQUIRE", "old")).reply(QUEUED);
  (await script.next("DLOCK.ACQUIRE", "new")).fail(new Error("Connection is closed."));
  // The newer one finds the end of the inbox first.
  (await script.next("DLOCK.ACQUIRE", "new")).fail(noInbox());
  reading.fail(noInbox());
  (await script.next("DLOCK.GRANTS")).reply(CREATED);
  await turn();
  await turn();
  assert.deepEqual(script.sent(), ["old", "new"]);
});
