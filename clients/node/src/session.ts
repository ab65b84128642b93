import { randomUUID } from "node:crypto";
import type { Acquisition, Table } from "./acquisition.js";
import { deadline, now, pause, TIMEOUT, type Client, type Replies } from "./client.js";
import { isAgain, LockError, lockError, noReply } from "./errors.js";
import { Link } from "./link.js";

/** In ms: how long a DLOCK.GRANTS waits, and the inbox lasts without one. */
const [BLOCK, TTL] = [2_000, 5_000];
/** How late the reply to a DLOCK.GRANTS may be until it is missed. */
const LATE = 500;

type Answer = [word: Buffer, id: Buffer, key: Buffer, owner: Buffer, ...rest: unknown[]];
type Grants = [cursor: number, waited: number, answers: Answer[]];

/** The place of a request among those that wait for an inbox. */
interface Turn {
  request: Acquisition;
  take(): void;
  fail(error: unknown): void;
}

/** One server, on two connections: one for requests, and one for answers while somebody waits. */
export class Session {
  readonly link: Link;
  readonly #reader: Link;
  readonly #server: string;
  /** Requests that were sent and have no outcome, the oldest first. */
  readonly #queued = new Set<Acquisition>();
  /** Late requests with the name of an old inbox are not queued. */
  #inbox: string = randomUUID();
  /** Requests that wait until the inbox is there, and nothing that was sent before is on its way. */
  #opening: Turn[] | undefined;
  #isCreated = false;
  /** Requests that may be queued, and have no reply. */
  readonly #inFlight = new Set<Acquisition>();
  /** When the reader sent the call that has no reply yet. */
  #asking = Infinity;

  constructor(readonly address: string, client: Client, private readonly table: Table) {
    const connect = (replies: Replies) => () => client.connection(address, replies);
    this.#server = address || client.server;
    this.link = new Link(connect("text"), this.#server, TIMEOUT, () => table.renewAll());
    this.#reader = new Link(connect("bytes"), this.#server, 2 * BLOCK);
  }

  /** Sends a request, and sends it again when its inbox is over, until it has an outcome or meets an error. */
  async ask(request: Acquisition): Promise<void> {
    while (request.stage === "waiting") await this.#ask(request);
  }

  /** Sends a request once, and waits while it is queued. */
  async #ask(request: Acquisition): Promise<void> {
    if (request.waits && this.#opening) await this.#turn(request, this.#opening);
    let inbox = "";
    let sent = 0;
    const dequeued = new Promise<LockError | undefined>((resolve) => (request.dequeue = resolve));
    try {
      const reply = await this.link.send(() => {
        if (request.stage !== "waiting" || (request.waits && this.#opening)) return undefined;
        // Before it is sent, because its answer may overtake the reply.
        this.#queued.add(request);
        request.isKnown = true;
        request.lastReply = undefined;
        inbox = this.#inbox;
        sent = now();
        if (request.waits) this.#inFlight.add(request);
        return request.command(inbox);
      });
      // It was over, or held, before it was sent, or has to wait for older ones.
      if (reply === undefined) return;
      this.#landed(request);
      const numbers = ((reply ?? []) as unknown[]).map(Number);
      if (numbers.length >= 4) this.table.onGranted(request, numbers[0]!, deadline(sent, numbers[2]! + numbers[3]!));
      else if (numbers.length === 0) request.refuse();
      else {
        request.queue(numbers[0]!);
        const error = await dequeued;
        if (error) throw error;
      }
    } catch (error) {
      this.#landed(request);
      if ((error as LockError).word !== "NOINBOX") throw error;
      [request.lastReply, request.lastError] = ["no inbox", undefined];
      if (inbox === this.#inbox) this.#open();
    } finally {
      this.#queued.delete(request);
    }
  }

  /** Why a request that has a reply is not granted yet. Undefined: others hold the lock, or wait for it. */
  async explain({ rawKey, owner, lastReply }: Acquisition): Promise<LockError | undefined> {
    if (now() - this.#asking > BLOCK + LATE) return noReply(this.#server, "no answers to waiting requests");
    // Names what keeps the server from granting anything. It changes nothing: this owner waits.
    const asked = this.link.send(() => ["DLOCK.EXTEND", rawKey, owner, 1]);
    const error = await asked.then(() => undefined, (error: LockError) => error);
    if (error && isAgain(error, "wait")) return error;
    const isTaken = lastReply === "queued" || error?.word === "NOTOWNER";
    return isTaken ? undefined : noReply(this.#server, "no inbox for the answer");
  }

  close(): void {
    this.#end();
    this.link.close();
  }

  /** A request has to wait, and the inbox does not exist, or no longer. */
  #open(): void {
    this.#end();
    const [inbox, opening] = [this.#inbox, [] as Turn[]];
    [this.#opening, this.#isCreated] = [opening, false];
    const create = async () => {
      const reply = await this.#reader.send(() => ["DLOCK.GRANTS", inbox, 0]);
      void this.#read(inbox, (reply as Grants)[0]);
      // What still waits for the connection learns that it has to wait for older ones.
      await this.link.open();
      this.#isCreated = true;
      this.#takeTurns();
    };
    create().catch((error) => {
      if (opening === this.#opening) {
        this.#opening = undefined;
        // It may exist all the same: the next one has another name. Meanwhile, locks that are free can be acquired.
        this.#end();
      }
      for (const turn of opening) turn.fail(error);
    });
  }

  /** Waits for the inbox. Rejects if the server does not allow it. */
  #turn(request: Acquisition, opening: Turn[]): Promise<void> {
    return new Promise((take, fail) => void opening.push({ request, take, fail }));
  }

  /** A request has a reply, or will have none. */
  #landed(request: Acquisition): void {
    // Not here: this one may have to wait, too.
    if (this.#inFlight.delete(request) && this.#opening) setImmediate(() => this.#takeTurns());
  }

  /** Lets the requests go on that have waited for the inbox: the oldest first. */
  #takeTurns(): void {
    const turns = this.#opening;
    if (!turns || !this.#isCreated || this.#inFlight.size > 0) return;
    this.#opening = undefined;
    turns.sort((one, other) => one.request.number - other.request.number);
    for (const turn of turns) turn.take();
  }

  async #read(inbox: string, cursor: number): Promise<void> {
    let sent: number | undefined;
    while (inbox === this.#inbox) {
      // The leases in the answers to a repeated call are counted from its first copy.
      const since = (this.#asking = sent ??= now());
      try {
        const reply = await this.#reader.send(() => ["DLOCK.GRANTS", inbox, cursor, "BLOCK", BLOCK]);
        const [after, waited, answers] = reply as Grants;
        for (const answer of answers) this.#receive(answer, since, Number(waited));
        [cursor, sent, this.#asking] = [after, undefined, Infinity];
        const isIdle = answers.length === 0 && this.#queued.size === 0;
        if (isIdle && inbox === this.#inbox) this.#end();
      } catch (cause) {
        const { word } = lockError(cause);
        if (inbox === this.#inbox && (word === "NOINBOX" || now() - since > TTL)) this.#end();
        else if (word !== "CONNECTION") await pause(50);
      }
    }
  }

  #receive([first, number, rawKey, name, ...rest]: Answer, since: number, waited: number): void {
    const [word, id, owner] = [first, number, name].map(String) as [string, string, string];
    if (word === "granted") {
      const [fence, , lease] = rest.map(Number) as [number, number, number];
      this.table.onGranted({ id, rawKey, owner, lease, hasLostCopies: false }, fence, deadline(since, waited + lease));
    } else if (word === "error") {
      this.table.find(id)?.dequeue(lockError(new Error(String(rest[0])), this.#server));
    } else if (word === "timeout" || word === "withdrawn") {
      this.table.find(id)?.dequeue();
    }
  }

  /** The inbox is over: requests that wait there are sent again, the oldest first. */
  #end(): void {
    [this.#inbox, this.#asking] = [randomUUID(), Infinity];
    this.#reader.close();
    for (const request of this.#queued) request.dequeue();
  }
}
