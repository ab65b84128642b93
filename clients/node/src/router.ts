import { RESPONSE_TIMEOUT, type Client } from "./client.js";
import { now, pause } from "./clock.js";
import { ConnectionError, isTransient, ServerError, translate } from "./errors.js";
import type { Request } from "./request.js";
import { Session } from "./session.js";
import { slotOf } from "./slot.js";

/** How long a caller waits for a server that does not reply. */
export const PATIENCE = 9_000;
/** How long it is tried to give something back, at least: a server that hangs may grant it late. */
const GIVEN_BACK_FOR = 30_000;
/** Copies of a request that a lost connection may still deliver arrive within this time. */
const LATE_COPIES = 500;
const MAX_REDIRECTIONS = 5;

/** A request that is given back. */
type Abandoned = Pick<Request, "key" | "lease" | "release"> & Partial<Pick<Request, "hasLostCopies">>;

/** All requests of a Locks, and the way to their servers. */
export class Router {
  /** Those that wait and those that are held, by id, the oldest first. */
  readonly requests = new Map<string, Request>();
  hasConnected = false;
  isClosed = false;
  readonly #sessions = new Map<string, Session>();
  /** Where slots are that have moved since the client has learned of them. */
  readonly #moved = new Map<number, string>();
  readonly #running = new Set<Promise<unknown>>();
  readonly #alive = setInterval(() => {}, 1e9).unref();

  constructor(private readonly client: Client) {}

  submit(request: Request): void {
    if (!this.requests.has(request.id) || request.isSettled) return;
    this.#session(request.key).then((session) => session.submit(request), request.fail);
  }

  /** The server has granted a request: in the reply, in the answer, or in both. */
  onGranted(request: Request, fence: number, deadline: number): void {
    if (!this.requests.has(request.id)) this.giveBack(request);
    else if (!request.isSettled) request.grant({ fence, deadline });
  }

  /** Sends once to the server that has the key. */
  async call(key: string, args: string[]): Promise<unknown> {
    for (let redirections = 0; ; redirections++) {
      const session = await this.#session(key);
      try {
        return await session.link.send(args);
      } catch (error) {
        this.reroute(key, error, session.address);
        const isMoved = error instanceof ServerError && error.word === "MOVED";
        if (!isMoved || redirections >= MAX_REDIRECTIONS) throw error;
        await pause(50);
      }
    }
  }

  /** Sends again until the last copy has a reply, or until then. */
  async repeat(key: string, args: string[], until: number, onLostReply = () => {}): Promise<unknown> {
    for (;;) {
      try {
        return await this.call(key, args);
      } catch (error) {
        if (error instanceof ConnectionError && error.wasSent) onLostReply();
        if (!isTransient(error) || this.isClosed || now() >= until) throw error;
        await pause(50);
      }
    }
  }

  /** Withdraws a request, or releases its hold, in the background. What cannot be given back ends with its lease. */
  giveBack(request: Abandoned): void {
    const until = now() + Math.max(request.lease, GIVEN_BACK_FOR);
    const release = () => this.repeat(request.key, request.release(), until).catch(() => {});
    const all = release().then(async () => {
      if (!request.hasLostCopies) return;
      await pause(LATE_COPIES);
      await release();
    });
    // A process that is about to end waits for one reply.
    void this.track(Promise.race([all, pause(RESPONSE_TIMEOUT)]));
  }

  /** A request ends without a hold, in the server (`isOver`) or only here. */
  abandon(request: Request, isOver: boolean): void {
    this.requests.delete(request.id);
    if (request.hasLostCopies || (!isOver && (request.isSent || request.isQueued))) this.giveBack(request);
  }

  /** Takes note of where a key is after this error of a server. */
  reroute(key: string, error: unknown, address: string): void {
    if (!this.client.cluster) return;
    if (error instanceof ServerError && error.word === "MOVED") {
      const [, slot, to] = error.message.split(" ");
      // A node without a host of its own names only its port.
      const host = address.slice(0, address.lastIndexOf(":"));
      this.#moved.set(Number(slot), to!.startsWith(":") ? host + to : to!);
    } else if (error instanceof ConnectionError) {
      // Another node knows who has the slot now.
      const others = this.client.cluster.nodes().filter((other) => other !== address);
      const other = others[Math.floor(Math.random() * others.length)];
      if (other) this.#moved.set(slotOf(key), other);
    }
  }

  /** Keeps the process alive, and `close` waiting, until this is done. */
  track<T>(promise: Promise<T>): Promise<T> {
    this.#running.add(promise);
    this.#alive.ref();
    const done = () => {
      this.#running.delete(promise);
      if (this.#running.size === 0) this.#alive.unref();
    };
    promise.then(done, done);
    return promise;
  }

  /** Waits for what is under way, and closes all connections. */
  async close(ms: number): Promise<void> {
    for (const until = now() + ms; this.#running.size > 0 && now() < until; ) {
      await Promise.race([Promise.allSettled(this.#running), pause(ms)]);
    }
    this.isClosed = true;
    clearInterval(this.#alive);
    await Promise.all(Array.from(this.#sessions.values(), (session) => session.close()));
  }

  async #session(key: string): Promise<Session> {
    if (this.isClosed) throw new ConnectionError("the Locks are closed", false);
    let address = "";
    if (this.client.cluster) {
      const slot = slotOf(key);
      const primary = () => this.client.cluster!.primary(slot);
      address = this.#moved.get(slot) ?? (await primary().catch((error) => Promise.reject(translate(error, false)))) ?? "";
    }
    let session = this.#sessions.get(address);
    if (!session) {
      session = new Session(address, this, () => this.client.connection(address));
      this.#sessions.set(address, session);
    }
    return session;
  }
}
