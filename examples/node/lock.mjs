// A lock of DLOCK for ioredis 6: copy this file and adapt it.
//
//   npm install ioredis
//   node lock.mjs
import { randomUUID } from "node:crypto";
import { Cluster, Redis } from "ioredis";

/** A connection to one server with this read timeout in milliseconds. */
function connectServer(commandTimeout) {
  return new Redis({ host: "127.0.0.1", port: 7379, commandTimeout });
}

/** A connection to the primary that the Sentinels call `locks`. */
function connectSentinels(commandTimeout) {
  return new Redis({ sentinels: [{ host: "127.0.0.1", port: 26379 }], name: "locks", commandTimeout });
}

/** A client of a cluster, which asks this node for the others. */
function connectCluster(commandTimeout) {
  return new Cluster([{ host: "127.0.0.1", port: 7379 }], { redisOptions: { commandTimeout } });
}

// Choose one of the three, and delete the others.
const connect = connectServer;

/** This owner does not hold the lock, or cannot be sure that it does. */
class Lost extends Error {}

/** A held lock. */
class Lock {
  constructor(client, key, owner, request, fence, deadline) {
    Object.assign(this, { client, key, owner, request, fence, deadline });
  }

  /** For how many more milliseconds the lock is certainly held. */
  remaining() {
    return Math.max(0, this.deadline - performance.now());
  }

  /** Extends the lease. Call it each time a third of the lease has passed. */
  async extend(leaseMs) {
    const sent = performance.now();
    const lease = await this.call("DLOCK.EXTEND", this.key, this.owner, leaseMs, "FENCE", this.fence);
    this.deadline = Math.max(this.deadline, deadline(sent, lease));
  }

  /** Releases the lock. Throws Lost if it was lost before, or a retry finds it released. */
  async release() {
    await this.call("DLOCK.RELEASE", this.key, this.owner, "FENCE", this.fence, "REQID", this.request);
  }

  async call(...command) {
    try {
      return await this.client.call(...command);
    } catch (error) {
      const word = error.message.split(" ")[0];
      throw ["NOTHELD", "NOTOWNER", "STALE"].includes(word) ? new Lost(word) : error;
    }
  }
}

/** Connections for waiting requests, one each, kept for the next ones. Their read timeout is longer than any wait. */
const idle = [];

/** Waits for the lock. Returns null after `waitMs`, which must be shorter than the read timeout of `idle`. */
async function acquire(client, key, leaseMs, waitMs) {
  const [owner, request] = [randomUUID(), randomUUID()];
  const waiting = idle.pop() ?? connect(60_000);
  const sent = performance.now();
  try {
    const reply = await waiting.call("DLOCK.ACQUIRE", key, owner, leaseMs, "BLOCK", waitMs, "REQID", request);
    if (reply === null) return null;
    const [fence, , lease, waited] = reply;
    return new Lock(client, key, owner, request, fence, deadline(sent, waited + lease));
  } catch (error) {
    // Rejected, or it may have been granted: undoing it is safe in both cases.
    await client.call("DLOCK.RELEASE", key, owner, "REQID", request);
    throw error;
  } finally {
    idle.push(waiting);
  }
}

/** On a clock that stops while the machine is suspended: Node.js has no other. */
function deadline(sent, leaseMs) {
  return sent + leaseMs * 0.999 - 2;
}

// Short compared with the lease: two renewals may fail before the third is too late.
const client = connect(3_000);
try {
  const lock = await acquire(client, "orders:42", 30_000, 10_000);
  if (lock === null) throw new Error("held by another owner");
  console.log(`granted ${lock.key} with fence ${lock.fence}`);
  console.log(`valid for ${Math.floor(lock.remaining() / 1000)} s`);
  await lock.extend(30_000);
  console.log("extended");
  await lock.release();
  console.log("released");
  await lock.release();
} catch (error) {
  if (!(error instanceof Lost)) throw error;
  console.log(`lost: ${error.message}`);
} finally {
  for (const connection of [client, ...idle]) connection.disconnect();
}
