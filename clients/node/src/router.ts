import type { Acquisition, Granted, Table } from "./acquisition.js";
import { inTime, now, pause, TIMEOUT, type Args, type Client } from "./client.js";
import { isAgain, lockError, NoCluster, noReply, type LockError } from "./errors.js";
import { Session } from "./session.js";
import { slotOf } from "./slot.js";
import { Tasks } from "./tasks.js";

/** How long it is tried to give something back, at least: a server that hangs may grant it late. */
const GIVEN_BACK_FOR = 30_000;
/** Copies of a request that a lost connection may still deliver arrive within this time. */
const LATE_COPIES = 500;

/** After a lost connection, all leases are renewed within this time. */
const RENEWED_WITHIN = 500;

/** Thousands of holds may be renewed at once while a server is loading. */
const MAX_PAUSE = 400;

/** How late a timeout may be because its cause is asked for. */
const ASKED_FOR = 200;

/** How often a program is told that it waits. */
const TOLD_EVERY = 10_000;

/** For how long connections that nothing uses stay open. */
const IDLE = 5_000;

/** By the client of the program. */
const routers = new WeakMap<object, Router>();

/** All requests on one client of the program, and the way to their servers. */
export class Router implements Table {
  /** Those that wait and those that are held, by id, the oldest first. */
  readonly requests = new Map<string, Acquisition>();
  readonly #sessions = new Map<string, Session>();
  /** Where slots are that the client does not know of yet. */
  readonly #moved = new Map<number, string>();
  readonly #tasks = new Tasks();
  #calls = 0;
  #tellsAt = 0;
  #idle: NodeJS.Timeout | undefined;

  private constructor(private readonly client: Client) {}

  /** The same for all Locks on a client: a program may make new ones all the time, and close none. */
  static of(client: Client): Router {
    const router = routers.get(client.source) ?? new Router(client);
    routers.set(client.source, router);
    return router;
  }

  get server(): string {
    return this.client.server;
  }

  /** Sends a request, and sends it again, until it has an outcome. */
  async submit(request: Acquisition): Promise<void> {
    this.requests.set(request.id, request);
    await this.#repeat(request.rawKey, (session) => session.ask(request), (error) => {
      request.lastError = error;
      request.hasLostCopies ||= error.word === "CONNECTION" && request.isKnown;
      // The first request does not wait for a server that is not there.
      const hasConnected = Array.from(this.#sessions.values()).some(({ link }) => link.hasOpened);
      return hasConnected && request.stage === "waiting" && isAgain(error, request.waits ? "wait" : "try");
    });
  }

  /** Sends a command, and sends it again after an error for as long as this is wanted. */
  call(rawKey: string | Buffer, command: () => Args, isRepeated: (error: LockError) => boolean): Promise<unknown> {
    return this.#repeat(rawKey, (session) => session.link.send(command), isRepeated);
  }

  /** Why a request is not granted yet. Undefined: others hold the lock, or wait for it, as the server says. */
  async explain(request: Acquisition): Promise<LockError | undefined> {
    if (request.lastError) return request.lastError;
    if (!request.lastReply) return noReply(this.server, "none to this request");
    const ask = async () => (await this.#session(request.rawKey)).explain(request);
    return await inTime(ask(), ASKED_FOR).catch((error) => lockError(error, this.server));
  }

  /** Whether the program is to be told now that it waits: seldom, so that a crowd costs the server nothing. */
  tellsWaiting(): boolean {
    const isTold = now() >= this.#tellsAt;
    if (isTold) this.#tellsAt = now() + TOLD_EVERY;
    return isTold;
  }

  /** Who holds a lock, if the server says that. */
  async holder(rawKey: string | Buffer): Promise<string | undefined> {
    const asked = this.call(rawKey, () => ["DLOCK.OWNER", rawKey], () => false);
    return await asked.then((owner) => (owner === null ? undefined : String(owner)), () => undefined);
  }

  find(id: string): Acquisition | undefined {
    return this.requests.get(id);
  }

  onGranted(granted: Granted, fence: number, until: number): void {
    const known = this.requests.get(granted.id);
    if (!known) this.#tasks.track(this.giveBack(granted));
    else if (known.stage === "waiting") known.grant(fence, until);
  }

  renewAll(): void {
    for (const request of this.requests.values()) request.renewWithin(Math.random() * RENEWED_WITHIN);
  }

  /**
   * Withdraws a request, or releases its hold. What cannot be given back ends with its lease. It goes on in the
   * background, but keeps nobody waiting for longer than this promise.
   */
  async giveBack({ id, rawKey, owner, lease, hasLostCopies }: Granted): Promise<void> {
    const until = now() + Math.max(lease, GIVEN_BACK_FOR);
    const command = () => ["DLOCK.RELEASE", rawKey, owner, "REQID", id];
    const isRepeated = (error: LockError) => now() < until && isAgain(error, "release");
    const release = () => this.call(rawKey, command, isRepeated).catch(() => {});
    const again = () => (hasLostCopies ? pause(LATE_COPIES).then(release) : undefined);
    await Promise.race([release().then(again), pause(TIMEOUT)]);
  }

  /** Closes the connections if nothing uses them. They are opened again when they are needed. */
  rest(): void {
    clearTimeout(this.#idle);
    if (this.#calls > 0 || this.requests.size > 0) return;
    for (const session of this.#sessions.values()) session.close();
  }

  /** Does this at the server of the key, and again after an error that may pass there or on another server. */
  async #repeat(
    rawKey: string | Buffer,
    action: (session: Session) => Promise<unknown>,
    isRepeated: (error: LockError) => boolean,
  ): Promise<unknown> {
    this.#calls++;
    try {
      let address = "";
      for (let ms = 50; ; ) {
        try {
          const found = this.#session(rawKey);
          // A task less for each command to the only server.
          const session = found instanceof Session ? found : await found;
          address = session.address;
          return await action(session);
        } catch (cause) {
          const error = this.#reroute(rawKey, lockError(cause, this.server), address);
          if (!isRepeated(error)) throw error;
          // A link has its own pauses.
          if (error.word === "CONNECTION") continue;
          await pause(ms);
          ms = Math.min(2 * ms, MAX_PAUSE);
        }
      }
    } finally {
      if (--this.#calls === 0) {
        clearTimeout(this.#idle);
        this.#idle = setTimeout(() => this.rest(), IDLE).unref();
      }
    }
  }

  /** Takes note of where a key is after this error of a node. */
  #reroute(rawKey: string | Buffer, error: LockError, address: string): LockError {
    const { word, message } = error;
    if (!this.client.primary) return ["MOVED", "ASK"].includes(word) ? new NoCluster(this.server, error) : error;
    if (word === "MOVED") {
      const [, slot, to] = message.split(" ");
      // A node may name only a port, for its own host.
      this.#moved.set(Number(slot), to!.startsWith(":") ? address.replace(/:\d+$/, to!) : to!);
    } else if (word === "CONNECTION" && this.client.nodes) {
      // Another node knows who has the slot now.
      const others = this.client.nodes().filter((other) => other !== address);
      if (others.length > 0) this.#moved.set(slotOf(rawKey), others[Math.floor(Math.random() * others.length)]!);
    }
    return error;
  }

  #session(rawKey: string | Buffer): Session | Promise<Session> {
    if (!this.client.primary) return this.#at("");
    const slot = slotOf(rawKey);
    const moved = this.#moved.get(slot);
    return moved ? this.#at(moved) : this.client.primary(slot).then((address = "") => this.#at(address));
  }

  #at(address: string): Session {
    const session = this.#sessions.get(address) ?? new Session(address, this.client, this);
    this.#sessions.set(address, session);
    return session;
  }
}
