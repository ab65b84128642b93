// Imports of the library go one way, and its package can be loaded in both ways that the README names.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import * as imported from "redis-dlock";

/** Each imports only what stands before it, also for types. */
const ORDER =
  "client slot tasks errors options events kinds acquisition link session router hold acquire using locks ioredis node-redis index".split(
    " ",
  );
const folder = new URL("../src/", import.meta.url);

test("the order has all modules", () => {
  const modules = readdirSync(folder).map((file) => file.replace(/\.ts$/, ""));
  assert.deepEqual(modules.sort(), ORDER.toSorted());
});

for (const [place, module] of ORDER.entries()) {
  test(`${module} imports only what stands before it`, () => {
    const code = readFileSync(new URL(`${module}.ts`, folder), "utf8");
    const names = Array.from(code.matchAll(/from "\.\/([^"]+)\.js"/g), ([, name]) => name);
    assert.deepEqual(names.filter((name) => !ORDER.slice(0, place).includes(name)), []);
  });
}

const skip = !process.features.require_module && "require needs Node.js 20.19, 22.12 or later";

test("require gives what import gives", { skip }, () => {
  const required = createRequire(import.meta.url)("redis-dlock");
  assert.deepEqual(Object.keys(required).sort(), Object.keys(imported).sort());
  assert.equal(required.Locks, imported.Locks);
});
