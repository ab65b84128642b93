import { now, pause, TIMEOUT, type Args, type Client } from "./client.js";
import { isTransient, LockError, lockError } from "./errors.js";
import type { Hold } from "./hold.js";
import { Session } from "./session.js";
import { slotOf } from "./slot.js";

/** How long a caller who does not wait for a lock waits for a server that does not reply. */
export const PATIENCE = 3 * TIMEOUT;
/** How long it is tried to give something back, at least: a server that hangs may grant it late. */
const GIVEN_BACK_FOR = 30_000;
/** Copies of a request that a lost connection may still deliver arrive within this time. */
const LATE_COPIES = 500;
/** After a lost connection, all leases are renewed within this time. */
const RENEWED_WITHIN = 500;

const MAX_REDIRECTIONS = 5;

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
  #closing: Promise<void> | undefined;
  #isClosed = false;

  constructor(private readonly client: Client) {}

  /** Sends a request, and sends it again, until it has an outcome. */
  async submit(request: Hold): Promise<void> {
    if (this.#closing) return request.fail(CLOSED());
    this.requests.set(request.id, request);
    while (request.stage === "waiting") {
      let session: Session | undefined;
      try {
        session = await this.#session(request.key);
        await session.ask(request);
        request.lastError = undefined;
      } catch (cause) {
        const error = (request.lastError = lockError(cause));
        // The first request does not wait for a server that is not there.
        const hasConnected = Array.from(this.#sessions.values()).some(({ link }) => link.hasOpened);
        const isRepeated = request.waits || ["CONNECTION", "MOVED"].includes(error.word);
        if (!hasConnected || !isRepeated || now() >= request.until || !this.#canSucceed(error)) {
          return request.fail(error);
        }
        request.hasLostCopies ||= error.word === "CONNECTION" && request.isKnown;
        this.#reroute(request.key, error, session?.address ?? "");
        // A link has its own pauses.
        if (error.word !== "CONNECTION") await pause(50);
      }
    }
  }

  /** A request can get its grant twice, and after its end. */
  onGranted(granted: Granted, fence: number, until: number): void {
    const known = this.requests.get(granted.id);
    if (!known) this.giveBack(granted);
    else if (known.stage === "waiting") known.grant(fence, until);
  }

  /** Sends a command to the server of the key: again until then, if there is no reply. That to the last copy counts. */
  async call(key: string, args: Args, until = 0, onLostReply = () => {}): Promise<unknown> {
    for (let redirections = 0; ; await pause(20)) {
      const session = await this.#session(key);
      try {
        return await session.link.send(() => args);
      } catch (cause) {
        const error = lockError(cause);
        this.#reroute(key, error, session.address);
        const isMoved = error.word === "MOVED" && redirections++ < MAX_REDIRECTIONS;
        if (!this.#canSucceed(error) || (!isMoved && now() >= until)) throw error;
        if (error.word === "CONNECTION") onLostReply();
      }
    }
  }

  /** Withdraws a request, or releases its hold, in the background. What cannot be given back ends with its lease. */
  giveBack({ id, key, owner, lease, hasLostCopies }: Granted): void {
    const until = now() + Math.max(lease, GIVEN_BACK_FOR);
    const release = () => this.call(key, ["DLOCK.RELEASE", key, owner, "REQID", id], until).catch(() => {});
    const again = () => (hasLostCopies ? pause(LATE_COPIES).then(release) : undefined);
    // It does not keep a process alive for longer.
    void this.track(Promise.race([release().then(again), pause(TIMEOUT)]));
  }

  /** A request or a hold ends here. */
  abandon(request: Hold): void {
    this.requests.delete(request.id);
    request.stage = "over";
    request.dequeue();
    if (request.isKnown || request.hasLostCopies) this.giveBack(request);
  }

  /** The connection was lost: how long the server was away is not known. */
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
  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    for (const request of [...this.requests.values()]) {
      if (request.stage === "held") request.lose("CLOSED");
      else request.fail(CLOSED());
    }
    for (const until = now() + TIMEOUT; this.#running.size > 0 && now() < until; ) {
      await Promise.race([Promise.allSettled(this.#running), pause(TIMEOUT)]);
    }
    this.#isClosed = true;
    this.#alive.ref();
    await Promise.all(Array.from(this.#sessions.values(), (session) => session.close()));
    clearInterval(this.#alive);
  }

  /** Whether the same command can succeed later, perhaps on another server. */
  #canSucceed(error: LockError): boolean {
    return isTransient(error) && !this.#isClosed && (error.word !== "MOVED" || this.client.primary !== undefined);
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
