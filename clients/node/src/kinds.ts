import { kindOf } from "./options.js";

type Adapter = "fromIoredis" | "fromNodeRedis";

const TAKES = {
  fromIoredis: "a client of ioredis 5 or 6 (Redis, Cluster)",
  fromNodeRedis: "a client of node-redis 5 or 6 (createClient, createCluster, createSentinel)",
};

/** What only such objects have: pipelines and pools have not all of it. */
const MARKS: [Adapter, string[]][] = [
  ["fromIoredis", ["callBuffer", "duplicate"]],
  ["fromNodeRedis", ["destroy", "duplicate"]],
  ["fromNodeRedis", ["destroy", "nodeByAddress"]],
  ["fromNodeRedis", ["destroy", "getMasterNode"]],
];

/** The function for a client of one of the libraries. */
function adapterOf(client: unknown): Adapter | undefined {
  if (typeof client !== "object" || client === null) return undefined;
  return MARKS.find(([, marks]) => marks.every((mark) => mark in client))?.[0];
}

/** Refuses what this function does not take, and names the one that does. */
export function checkKind(client: unknown, adapter: Adapter): void {
  const fitting = adapterOf(client);
  if (fitting === adapter) return;
  const but = fitting ? `use ${fitting} for this one` : `not ${kindOf(client)}`;
  throw new TypeError(`${adapter} takes ${TAKES[adapter]}: ${but}`);
}

/** Refuses what no adapter has made. */
export function checkAdapted(client: unknown): void {
  if (typeof (client as { connection?: unknown } | null | undefined)?.connection === "function") return;
  const fitting = adapterOf(client);
  const but = fitting ? `pass ${fitting}(client) instead of the client` : `not ${kindOf(client)}`;
  throw new TypeError(`new Locks takes fromIoredis(client) or fromNodeRedis(client): ${but}`);
}
