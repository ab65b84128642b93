// A client in the wrong place is refused, and the right function is named.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { Cluster, Redis } from "ioredis";
import * as ioredis5 from "ioredis-5";
import * as redis from "redis";
import * as redis5 from "redis-5";
import { fromIoredis, fromNodeRedis, Locks } from "redis-dlock";

const node = { host: "127.0.0.1", port: 1 };
const options = { lazyConnect: true };
const ioredis = () => [
  new Redis(options),
  new Cluster([node], options),
  new ioredis5.Redis(options),
  new ioredis5.Cluster([node], options),
];
const nodeRedis = () =>
  [redis, redis5].flatMap(({ createClient, createCluster, createSentinel }) => [
    createClient(),
    createCluster({ rootNodes: [{ socket: node }] }),
    createSentinel({ name: "locks", sentinelRootNodes: [node] }),
  ]);
const pools = () => [redis, redis5].map(({ createClientPool }) => createClientPool());
const others = () => [undefined, null, "redis://127.0.0.1", {}, ioredis()[0].pipeline(), Redis, ...pools()];

const refusal = (text) => ({ name: "TypeError", message: new RegExp(text) });

test("Locks refuse a client without its adapter, and name that", () => {
  for (const client of ioredis()) assert.throws(() => new Locks(client), refusal("pass fromIoredis\\(client\\)"));
  for (const client of nodeRedis()) assert.throws(() => new Locks(client), refusal("pass fromNodeRedis\\(client\\)"));
  for (const client of others()) assert.throws(() => new Locks(client), refusal("^new Locks takes .*: not "));
});

test("an adapter refuses the client of the other library, and names the other adapter", () => {
  const [other, one] = [refusal("use fromNodeRedis for this one$"), refusal("use fromIoredis for this one$")];
  for (const client of nodeRedis()) assert.throws(() => fromIoredis(client), other);
  for (const client of ioredis()) assert.throws(() => fromNodeRedis(client), one);
  for (const client of others()) {
    assert.throws(() => fromIoredis(client), refusal("^fromIoredis takes a client of ioredis 5 or 6 .*: not "));
    assert.throws(() => fromNodeRedis(client), refusal("^fromNodeRedis takes a client of node-redis 5 or 6 .*: not "));
  }
});

test("each client fits its adapter", () => {
  for (const client of ioredis()) assert.equal(fromIoredis(client).source, client);
  for (const client of nodeRedis()) assert.equal(fromNodeRedis(client).source, client);
});

test("imports of the library go one way", () => {
  const folder = new URL("../src/", import.meta.url);
  const imports = new Map();
  for (const file of readdirSync(folder)) {
    const text = readFileSync(new URL(file, folder), "utf8");
    imports.set(file, Array.from(text.matchAll(/from "\.\/(.*)\.js"/g), ([, name]) => `${name}.ts`));
  }
  const visit = (file, path) => {
    assert.ok(!path.includes(file), `a circle: ${[...path, file].join(" imports ")}`);
    for (const next of imports.get(file)) visit(next, [...path, file]);
  };
  for (const file of imports.keys()) visit(file, []);
});
