import { randomUUID } from "node:crypto";
import { deadline, now, pause, TIMEOUT, type Client } from "./client.js";
import { isTransient, lockError } from "./errors.js";
import type { Hold } from "./hold.js";
import { Link } from "./link.js";
import type { Router } from "./router.js";

/** In ms: how long a DLOCK.GRANTS waits, the inbox lasts without one, and it is kept while nobody waits. */
const [BLOCK, TTL, IDLE] = [2_000, 5_000, 10_000];

type Answer = [word: string, id: string, key: string, owner: string, ...rest: unknown[]];
type Grants = [cursor: number, waited: number, answers: Answer[]];

/** One server, on two connections: one for requests, and one for answers while somebody waits. */
export class Session {
  readonly link: Link;
  readonly #reader: Link;
  /** Requests that were sent and have no outcome, the oldest first. */
  readonly #queued = new Set<Hold>();
  /** Late requests with the name of an old inbox are not queued. */
  #inbox: string = randomUUID();
  /** While the inbox is created. Rejects if the server does not allow it. */
  #opening: Promise<void> | undefined;
  #cursor: number | undefined;
  #usedAt = 0;

  constructor(readonly address: string, client: Client, private readonly router: Router) {
    const connect = () => client.connection(address);
    this.link = new Link(connect, TIMEOUT, () => router.renewAll());
    this.#reader = new Link(connect, 2 * BLOCK);
  }

  /** Sends a request, and waits while it is queued: until it has an outcome, or has to be sent again. */
  async ask(request: Hold): Promise<void> {
    if (request.waits) await this.#opening;
    let [inbox, sent] = ["", 0];
    const dequeued = new Promise<void>((resolve, reject) => {
      request.dequeue = (error) => (error ? reject(error) : resolve());
    });
    dequeued.catch(() => {});
    try {
      const reply = await this.link.send(() => {
        if (request.stage !== "waiting") return undefined;
        // Before it is sent, because its answer may overtake the reply.
        this.#queued.add(request);
        request.isKnown = true;
        [inbox, sent] = [this.#inbox, now()];
        return request.acquire(inbox);
      });
      // It was over, or held, before it was sent.
      if (reply === undefined) return;
      const [fence, , lease, waited] = ((reply ?? []) as unknown[]).map(Number);
      if (waited !== undefined) this.router.onGranted(request, fence!, deadline(sent, waited + lease!));
      else if (fence === undefined) request.refuse();
      else if (inbox === this.#inbox) await dequeued;
    } catch (error) {
      if (lockError(error).word !== "NOINBOX") throw error;
      this.#open(inbox);
    } finally {
      this.#queued.delete(request);
    }
  }

  async close(): Promise<void> {
    const last = this.#end();
    if (last) await this.link.send(() => last).catch(() => {});
    this.#reader.close();
    this.link.close();
  }

  /** A request has to wait, and there is no inbox of this name. */
  #open(inbox: string): void {
    this.#usedAt = now();
    if (inbox !== this.#inbox) return;
    if (this.#cursor === undefined) {
      this.#opening ??= this.#create().finally(() => (this.#opening = undefined));
      this.#opening.catch(() => {});
    } else {
      this.#end();
      this.#reader.close();
    }
  }

  async #create(): Promise<void> {
    const inbox = this.#inbox;
    try {
      const reply = await this.#reader.send(() => ["DLOCK.GRANTS", inbox, "0", "TTL", String(TTL)]);
      if (inbox !== this.#inbox) return;
      this.#cursor = (reply as Grants)[0];
      void this.#read();
    } catch (cause) {
      const error = lockError(cause);
      // It may exist all the same: the next one has another name. Meanwhile, locks that are free can be acquired.
      this.#end();
      if (!isTransient(error) && error.word !== "BUSYINBOX") throw error;
    }
  }

  async #read(): Promise<void> {
    const inbox = this.#inbox;
    for (let sent = 0, heardAt = now(), isRepeated = false; inbox === this.#inbox; ) {
      try {
        const reply = await this.#reader.send(() => {
          // The leases in the answers to a repeated call are counted from its first copy.
          if (!isRepeated) sent = now();
          return ["DLOCK.GRANTS", inbox, String(this.#cursor), "BLOCK", String(BLOCK)];
        });
        const [cursor, waited, answers] = reply as Grants;
        [heardAt, isRepeated] = [now(), false];
        for (const [word, id, key, owner, ...rest] of answers) {
          const [fence, , lease] = rest.map(Number);
          const granted = { id, key, owner, lease: lease!, hasLostCopies: false };
          if (word === "granted") this.router.onGranted(granted, fence!, deadline(sent, Number(waited) + lease!));
          else if (word === "error") this.router.requests.get(id)?.dequeue(lockError(new Error(String(rest[0]))));
          else if (word === "timeout" || word === "withdrawn") this.router.requests.get(id)?.dequeue();
        }
        if (inbox !== this.#inbox) break;
        this.#cursor = cursor;
        if (this.#queued.size > 0) this.#usedAt = now();
        const last = now() - this.#usedAt > IDLE ? this.#end() : undefined;
        if (last) await this.#reader.send(() => last);
      } catch (cause) {
        const { word } = lockError(cause);
        isRepeated = true;
        if (inbox === this.#inbox && (word === "NOINBOX" || now() - heardAt > TTL)) this.#end();
        else if (word !== "CONNECTION") await pause(50);
      }
    }
    if (!this.#opening && this.#cursor === undefined) this.#reader.close();
  }

  /** The inbox is over: requests that wait there are sent again, the oldest first. Returns the call that ends it. */
  #end(): string[] | undefined {
    const last = ["DLOCK.GRANTS", this.#inbox, String(this.#cursor), "TTL", "0"];
    const isOpen = this.#cursor !== undefined;
    [this.#inbox, this.#cursor] = [randomUUID(), undefined];
    for (const request of this.#queued) request.dequeue();
    return isOpen ? last : undefined;
  }
}
