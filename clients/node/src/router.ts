import { now, pause, TIMEOUT, type Args, type Client } from "./client.js";
import { isTransient, LockError, lockError, type IsRepeated } from "./errors.js";
import type { Hold } from "./hold.js";
import { Session } from "./session.js";
import { slotOf } from "./slot.js";

/** How long it is tried to give something back, at least: a server that hangs may grant it late. */
const GIVEN_BACK_FOR = 30_000;
/** Copies of a request that a lost connection may still deliver arrive within this time. */
const LATE_COPIES = 500;

/** After a lost connection, all leases are renewed within this time. */
const RENEWED_WITHIN = 500;

/** Thousands of holds may be renewed at once while a server is loading. */
const MAX_PAUSE = 400;

const CLOSED = () => new LockError("CLOSED", "the Locks were closed");

type Granted = Pick<Hold, "id" | "key" | "owner" | "lease" | "hasLostCopies">;

/** All requests of a Locks, and the way to their servers. */
export class Router {
  /** Those that wait and those that are held, by id, the oldest first. */
  readonly requests = new Map<string, Hold>();
  readonly #sessions = new Map<string, Session>();
  /** Where slots are that the client does not know of yet. */
  readonly #moved = new Map<number, string>();
  readonly #running = new Set<Promise<unknown>>();
  readonly #alive = setInterval(() => {}, 1e9).unref();
  #isClosing = false;
  #isClosed = false;

  constructor(private readonly client: Client) {}

  /** Sends a request, and sends it again, until it has an outcome. */
  async submit(request: Hold): Promise<void> {
    if (this.#isClosing) throw CLOSED();
    this.requests.set(request.id, request);
    const ask = async (session: Session) => {
      while (request.stage === "waiting") await session.ask(request);
    };
    await this.#repeat(request.key, ask, (error) => {
      request.lastError = error;
      request.hasLostCopies ||= error.word === "CONNECTION" && request.isKnown;
      // The first request does not wait for a server that is not there.
      const hasConnected = Array.from(this.#sessions.values()).some(({ link }) => link.hasOpened);
      const isRepeated = request.waits || ["CONNECTION", "MOVED"].includes(error.word);
      return hasConnected && isRepeated && request.stage === "waiting";
    });
  }

  /** Sends a command, and sends it again after an error that may pass, if it may be repeated. */
  call(key: string, command: () => Args, isRepeated: IsRepeated): Promise<unknown> {
    return this.#repeat(key, (session) => session.link.send(command), isRepeated);
  }

  /** A request can get its grant twice, and after its end. */
  onGranted(granted: Granted, fence: number, until: number): void {
    const known = this.requests.get(granted.id);
    if (!known) this.giveBack(granted);
    else if (known.stage === "waiting") known.grant(fence, until);
  }

  /** Withdraws a request, or releases its hold, in the background. What cannot be given back ends with its lease. */
  giveBack({ id, key, owner, lease, hasLostCopies }: Granted): void {
    const until = now() + Math.max(lease, GIVEN_BACK_FOR);
    const command = () => ["DLOCK.RELEASE", key, owner, "REQID", id];
    const release = () => this.call(key, command, () => now() < until).catch(() => {});
    const again = () => (hasLostCopies ? pause(LATE_COPIES).then(release) : undefined);
    // It does not keep a process alive for longer.
    void this.track(Promise.race([release().then(again), pause(TIMEOUT)]));
  }

  /** A connection was lost: how long the server was away, and what it still has, is not known. */
  renewAll(): void {
    for (const hold of this.requests.values()) hold.renewWithin(Math.random() * RENEWED_WITHIN);
  }

  /** Keeps the process alive, and `close` waiting, until this is done. */
  track<T>(promise: Promise<T>): Promise<T> {
    this.#running.add(promise);
    this.#alive.ref();
    const done = () => void (this.#running.delete(promise) && this.#running.size === 0 && this.#alive.unref());
    promise.then(done, done);
    return promise;
  }

  /** Ends all requests and holds, and waits for what is under way, for a limited time. */
  async close(): Promise<void> {
    this.#isClosing = true;
    for (const request of [...this.requests.values()]) {
      request.lose("CLOSED");
      request.fail(CLOSED());
      request.end();
    }
    await Promise.race([Promise.allSettled(this.#running), pause(TIMEOUT)]);
    this.#isClosed = true;
    for (const session of this.#sessions.values()) session.close();
    clearInterval(this.#alive);
  }

  /** Does this at the server of the key, and again after an error that may pass there or on another server. */
  async #repeat(key: string, action: (session: Session) => Promise<unknown>, isRepeated: IsRepeated): Promise<unknown> {
    for (let [address, ms] = ["", 50]; ; ) {
      try {
        const session = await this.#session(key);
        address = session.address;
        return await action(session);
      } catch (cause) {
        const error = lockError(cause);
        this.#reroute(key, error, address);
        const canSucceed = isTransient(error) && !this.#isClosed && (error.word !== "MOVED" || this.client.primary);
        if (!canSucceed || !isRepeated(error)) throw error;
        // A link has its own pauses.
        if (error.word === "CONNECTION") continue;
        await pause(ms);
        ms = Math.min(2 * ms, MAX_PAUSE);
      }
    }
  }

  /** Takes note of where a key is after this error of a node. */
  #reroute(key: string, error: LockError, address: string): void {
    if (error.word === "MOVED") {
      const [, slot, to] = error.message.split(" ");
      // A node may name only a port, for its own host.
      this.#moved.set(Number(slot), to!.startsWith(":") ? address.replace(/:\d+$/, to!) : to!);
    } else if (error.word === "CONNECTION" && this.client.nodes) {
      // Another node knows who has the slot now.
      const others = this.client.nodes().filter((other) => other !== address);
      if (others.length > 0) this.#moved.set(slotOf(key), others[Math.floor(Math.random() * others.length)]!);
    }
  }

  async #session(key: string): Promise<Session> {
    if (this.#isClosed) throw CLOSED();
    let address = "";
    if (this.client.primary) {
      const slot = slotOf(key);
      address = this.#moved.get(slot) ?? (await this.client.primary(slot)) ?? "";
    }
    const session = this.#sessions.get(address) ?? new Session(address, this.client, this);
    this.#sessions.set(address, session);
    return session;
  }
}
