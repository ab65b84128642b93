import { randomBytes } from "node:crypto";
import { now, pause, TIMEOUT, type Client } from "./client.js";
import { isTransient, LockError, lockError } from "./errors.js";
import { Link } from "./link.js";
import type { Hold } from "./hold.js";
import type { Router } from "./router.js";

/** How long a DLOCK.GRANTS waits, and the inbox lasts without one. */
const [BLOCK, TTL] = [2_000, 5_000];
/** An inbox for which nobody has waited for this long is ended. */
const IDLE = 10_000;

type Answer = [word: string, id: string, key: string, owner: string, ...rest: unknown[]];

/** One server, on two connections: one for requests, and one for answers while somebody waits. */
export class Session {
  readonly link: Link;
  readonly #reader: Link;
  /** Requests without an outcome that were sent, the oldest first. */
  readonly queued = new Set<Hold>();
  inbox = "";
  /** While the inbox is created. */
  opening: Promise<void> | undefined;
  #opened = (_error?: LockError): void => {};
  #isOpen = false;
  #isReading = false;
  #cursor = "0";
  #usedAt = 0;

  constructor(readonly address: string, client: Client, private readonly router: Router) {
    const connect = () => client.connection(address);
    this.link = new Link(connect, TIMEOUT, () => router.renewAll());
    this.#reader = new Link(connect, BLOCK * 2);
    this.#name();
  }

  /** A request has to wait, and this inbox does not exist (any more). */
  open(inbox: string): void {
    this.#usedAt = now();
    if (inbox !== this.inbox || this.opening) return;
    // A call that still waits for the old one is ended.
    if (this.#isOpen) this.#reader.close();
    this.#renew();
    if (!this.#isReading) void this.#read();
  }

  async close(): Promise<void> {
    this.#isReading = false;
    const last = this.#end();
    if (last) await this.link.send(last).catch(() => {});
    this.#reader.close();
    this.link.close();
  }

  /** The call that ends the inbox. Requests that are queued there meanwhile are sent again. */
  #end(): string[] | undefined {
    const last = this.#isOpen ? ["DLOCK.GRANTS", this.inbox, this.#cursor, "TTL", "0"] : undefined;
    this.#name();
    this.#endOpening();
    return last;
  }

  /** With a new name, late requests with the old one find no inbox, and are not queued before older ones. */
  #name(): void {
    [this.inbox, this.#cursor, this.#isOpen] = [randomBytes(16).toString("hex"), "0", false];
  }

  /** The inbox is gone. All that waited there are sent again when there is a new one, the oldest first. */
  #renew(): void {
    this.#name();
    this.opening ??= new Promise((resolve, reject) => (this.#opened = (error) => (error ? reject(error) : resolve())));
    this.opening.catch(() => {});
    for (const request of this.queued) request.dequeue();
  }

  /** Those that wait for the inbox are sent, or fail. */
  #endOpening(error?: LockError): void {
    this.opening = undefined;
    this.#opened(error);
  }

  async #read(): Promise<void> {
    this.#isReading = true;
    for (let sent = 0, heardAt = now(), isRepeated = false; this.#isReading; ) {
      const [inbox, isNew] = [this.inbox, !this.#isOpen];
      const wait = isNew ? ["TTL", String(TTL)] : ["BLOCK", String(BLOCK)];
      try {
        const live = await this.#reader.ready();
        // The leases in the answers to a repeated call are counted from its first copy.
        if (!isRepeated) sent = now();
        const reply = await this.#reader.send(["DLOCK.GRANTS", inbox, this.#cursor, ...wait], live);
        const [cursor, waited, answers] = reply as [number, number, Answer[]];
        [heardAt, isRepeated] = [now(), false];
        for (const answer of answers) this.#onAnswer(answer, sent + Number(waited));
        if (inbox !== this.inbox) continue;
        [this.#cursor, this.#isOpen] = [String(cursor), true];
        this.#endOpening();
      } catch (cause) {
        const error = lockError(cause);
        isRepeated = inbox === this.inbox;
        if (["NOINBOX", "BUSYINBOX", "READONLY"].includes(error.word) || (!isNew && now() - heardAt > TTL)) {
          this.#renew();
          [heardAt, isRepeated] = [now(), false];
        } else if (isNew) {
          // Without it, locks that are free can still be acquired.
          this.#isReading &&= isTransient(error);
          this.#endOpening(this.#isReading ? undefined : error);
        }
        if (this.#isReading && error.word !== "CONNECTION") await pause(50);
      }
      if (this.queued.size > 0 || this.opening) this.#usedAt = now();
      else if (now() - this.#usedAt > IDLE) this.#isReading = false;
    }
    const last = this.#end();
    if (last) await this.#reader.send(last).catch(() => {});
    if (!this.#isReading) this.#reader.close();
  }

  #onAnswer([word, id, key, owner, ...rest]: Answer, from: number): void {
    if (word === "granted") {
      const [fence, , lease] = rest.map(Number) as [number, number, number];
      this.router.onGranted({ id, key, owner, lease, hasLostCopies: false }, fence, lease, from);
    } else if (["error", "timeout", "withdrawn"].includes(word)) {
      const error = word === "error" ? lockError(new Error(String(rest[0]))) : undefined;
      this.router.requests.get(id)?.dequeue(error);
    }
  }
}
