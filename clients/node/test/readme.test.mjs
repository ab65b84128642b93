// The README's programs, and types.ts, compile; the first program runs.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { skip, startServer } from "./server.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const readme = readFileSync(here("../README.md"), "utf8");
const blocks = Array.from(readme.matchAll(/```ts\n([^]*?)```/g), ([, code]) => code);

test("the README's programs compile and run", { skip }, async (t) => {
  const server = await startServer(t);
  rmSync(here("build"), { recursive: true, force: true });
  mkdirSync(here("build"));
  const [first, second] = blocks;
  assert.ok(first.includes("7379"));
  writeFileSync(here("build/first.ts"), first.replace("7379", String(server.port)));
  const types = 'import type { Locks } from "redis-dlock";';
  const use = `export async function use(locks: Locks, signal: AbortSignal) {\n${second}\nreturn other;\n}`;
  writeFileSync(here("build/second.ts"), `${types}\n${use}\n`);
  execFileSync(here("../node_modules/.bin/tsc"), ["-p", here(".")], { stdio: "inherit" });
  const printed = execFileSync(process.execPath, [here("build/out/build/first.js")], { encoding: "utf8" });
  assert.match(printed, /^shipping under fence \d+\n$/);
});
