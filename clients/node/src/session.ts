import { randomUUID } from "node:crypto";
import { deadline, now, pause, TIMEOUT, type Client } from "./client.js";
import { LockError, lockError } from "./errors.js";
import type { Hold } from "./hold.js";
import { Link } from "./link.js";
import type { Router } from "./router.js";

/** In ms: how long a DLOCK.GRANTS waits, and the inbox lasts without one. */
const [BLOCK, TTL] = [2_000, 5_000];

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
  /** When the inbox was created. Rejects if the server does not allow it. */
  #opened: Promise<void> | undefined;

  constructor(readonly address: string, client: Client, private readonly router: Router) {
    const connect = () => client.connection(address);
    this.link = new Link(connect, TIMEOUT, () => router.renewAll());
    this.#reader = new Link(connect, 2 * BLOCK);
  }

  /** Sends a request, and waits while it is queued: until it has an outcome, or has to be sent again. */
  async ask(request: Hold): Promise<void> {
    if (request.waits) await this.#opened;
    let [inbox, sent] = ["", 0];
    const dequeued = new Promise<LockError | undefined>((resolve) => (request.dequeue = resolve));
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
      else {
        // It is queued.
        const error = await dequeued;
        if (error) throw error;
      }
    } catch (error) {
      if ((error as LockError).word !== "NOINBOX") throw error;
      if (inbox === this.#inbox) this.#open();
    } finally {
      this.#queued.delete(request);
    }
  }

  close(): void {
    this.#end();
    this.link.close();
  }

  /** A request has to wait, and the inbox does not exist, or no longer. */
  #open(): void {
    this.#end();
    const inbox = this.#inbox;
    const created = this.#reader.send(() => ["DLOCK.GRANTS", inbox, 0]);
    this.#opened = created.then((reply) => void this.#read(inbox, (reply as Grants)[0]));
    // It may exist all the same: the next one has another name. Meanwhile, locks that are free can be acquired.
    this.#opened.catch(() => this.#end());
  }

  async #read(inbox: string, cursor: number): Promise<void> {
    let sent: number | undefined;
    while (inbox === this.#inbox) {
      // The leases in the answers to a repeated call are counted from its first copy.
      const since = (sent ??= now());
      try {
        const reply = await this.#reader.send(() => ["DLOCK.GRANTS", inbox, cursor, "BLOCK", BLOCK]);
        const [after, waited, answers] = reply as Grants;
        for (const [word, id, key, owner, ...rest] of answers) {
          const [fence, , lease] = rest.map(Number);
          const granted = { id, key, owner, lease: lease!, hasLostCopies: false };
          if (word === "granted") this.router.onGranted(granted, fence!, deadline(since, Number(waited) + lease!));
          else if (word === "error") this.router.requests.get(id)?.dequeue(lockError(new Error(String(rest[0]))));
          else if (word === "timeout" || word === "withdrawn") this.router.requests.get(id)?.dequeue();
        }
        [cursor, sent] = [after, undefined];
        const isIdle = answers.length === 0 && this.#queued.size === 0;
        if (isIdle && inbox === this.#inbox) this.#end();
      } catch (cause) {
        const { word } = lockError(cause);
        if (inbox === this.#inbox && (word === "NOINBOX" || now() - since > TTL)) this.#end();
        else if (word !== "CONNECTION") await pause(50);
      }
    }
  }

  /** The inbox is over: requests that wait there are sent again, the oldest first. */
  #end(): void {
    [this.#inbox, this.#opened] = [randomUUID(), undefined];
    this.#reader.close();
    for (const request of this.#queued) request.dequeue();
  }
}
