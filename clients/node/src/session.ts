import { RESPONSE_TIMEOUT } from "./client.js";
import { now, pause, safeDeadline } from "./clock.js";
import { ConnectionError, isTransient, ServerError, translate } from "./errors.js";
import { Inbox, type Answer } from "./inbox.js";
import { Link, type LinkEvents } from "./link.js";
import type { Request } from "./request.js";
import type { Router } from "./router.js";

/** How many requests of a resumed queue may be without a reply. */
const MAX_UNANSWERED = 1_000;
/** An inbox for which nobody has waited for this long is closed. */
const IDLE = 10_000;
/** After a lost connection, all leases are renewed within this time. */
const RENEWED_WITHIN = 500;

/** One server, on two connections: one for requests, and one for answers while somebody waits. */
export class Session {
  readonly link: Link;
  readonly #inbox: Inbox;
  /** The keys of requests that were sent without an inbox. */
  readonly #probes = new Set<string>();
  #usedAt = 0;
  #isResuming = false;

  constructor(
    readonly address: string,
    private readonly router: Router,
    connect: LinkEvents["connect"],
  ) {
    const onOpen = () => (router.hasConnected = true);
    this.link = new Link({ connect, onOpen, onLoss: () => this.#renewAll() }, RESPONSE_TIMEOUT);
    this.#inbox = new Inbox(connect, {
      onAnswers: (answers, from) => answers.forEach((answer) => this.#onAnswer(answer, from)),
      onOpen: () => void this.#resume(),
      onUnreachable: () => this.#waiting().forEach((request) => this.#repeat(request, 0)),
      onRefused: (error) => this.#waiting().forEach((request) => request.fail(error)),
      isIdle: () => {
        if (this.#waiting().length > 0) this.#usedAt = now();
        return now() - this.#usedAt > IDLE;
      },
    });
  }

  /** Sends a request, if no older one has to be sent before. */
  submit(request: Request): void {
    request.session = this;
    request.isQueued = false;
    if (!request.waits || (this.#inbox.isOpen && !this.#isResuming)) return void this.#send(request);
    // Without an inbox, the first request for a key finds out whether the lock is free. Others wait for what it finds,
    // so that none overtakes it.
    if (!this.#inbox.isRunning && !this.#probes.has(request.key)) {
      this.#probes.add(request.key);
      return void this.#send(request);
    }
    this.#inbox.open();
  }

  /** Ends the inbox, and the connections. */
  async close(): Promise<void> {
    if (this.#inbox.isRunning) await this.link.send(this.#inbox.end()).catch(() => {});
    this.link.close();
  }

  async #send(request: Request): Promise<void> {
    const inbox = this.#inbox.name;
    request.isSent = true;
    try {
      await this.link.ready();
      const sent = now();
      const reply = (await this.link.send(request.acquire(inbox))) as number[] | null;
      request.isSent = false;
      if (reply && reply.length >= 4) {
        const [fence, , lease, waited] = reply.map(Number) as [number, number, number, number];
        this.router.onGranted(request, fence, safeDeadline(sent, waited + lease));
      } else if (reply === null) {
        request.grant(null);
      } else if (inbox === this.#inbox.name && this.#inbox.isOpen) {
        request.isQueued = true;
      } else {
        this.#repeat(request, 0);
      }
    } catch (error) {
      request.isSent = false;
      this.#onError(request, translate(error), inbox);
    } finally {
      this.#probes.delete(request.key);
    }
  }

  #onError(request: Request, error: ServerError | ConnectionError, inbox?: string): void {
    const isLost = error instanceof ConnectionError;
    request.hasLostCopies ||= isLost && error.wasSent;
    request.lastError = error;
    if (!isLost && error.word === "NOINBOX") {
      request.lastError = undefined;
      this.#usedAt = now();
      if (inbox === this.#inbox.name && this.#inbox.isOpen) this.#inbox.restart();
      else if (this.#inbox.isOpen) this.#repeat(request, 0);
      this.#inbox.open();
      return;
    }
    const isMoved = isLost || error.word === "MOVED";
    const isPatient = request.waits ? isTransient(error) : isMoved && now() < request.triedUntil!;
    if (!isPatient || !this.router.hasConnected) return request.fail(error);
    this.router.reroute(request.key, error, this.address);
    // A lost connection is not open again at once.
    this.#repeat(request, isLost ? 0 : 50);
  }

  #onAnswer([word, id, key, owner, ...rest]: Answer, from: number): void {
    const request = this.router.requests.get(id);
    if (word === "granted") {
      const [fence, , lease] = rest.map(Number) as [number, number, number];
      if (request) this.router.onGranted(request, fence, safeDeadline(from, lease));
      // Nobody waits for it any more.
      else this.router.giveBack({ key, lease, release: () => ["DLOCK.RELEASE", key, owner, "REQID", id] });
    } else if (request && !request.isSettled && request.session === this) {
      if (word === "error") this.#onError(request, translate(new Error(String(rest[0]))));
      else if (word === "timeout" || word === "withdrawn") this.#repeat(request, 0);
    }
  }

  /** Sends a request again, to the server that has its lock then. */
  #repeat(request: Request, ms: number): void {
    request.isQueued = false;
    const submit = () => this.router.submit(request);
    if (ms > 0) void pause(ms).then(submit);
    else if (!request.isSent) submit();
  }

  /** There is a new inbox: queues all that wait, the oldest first. Newer ones join at the end. */
  async #resume(): Promise<void> {
    this.#isResuming = true;
    for (const request of this.#waiting()) request.isQueued = false;
    const sent: Promise<void>[] = [];
    // A Map's iterator also finds what is added meanwhile.
    for (const request of this.router.requests.values()) {
      if (!this.#isWaiting(request) || request.isQueued || request.isSent) continue;
      sent.push(this.#send(request));
      if (sent.length >= MAX_UNANSWERED) await Promise.all(sent.splice(0));
    }
    this.#isResuming = false;
  }

  #renewAll(): void {
    for (const request of this.router.requests.values()) {
      if (request.session === this) request.lock?.renewWithin(RENEWED_WITHIN);
    }
  }

  #isWaiting(request: Request): boolean {
    return request.session === this && request.waits && !request.isSettled;
  }

  #waiting(): Request[] {
    return Array.from(this.router.requests.values()).filter((request) => this.#isWaiting(request));
  }
}
