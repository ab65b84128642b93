import { randomBytes } from "node:crypto";

import { now, pause } from "./clock.js";
import { ConnectionError, isTransient, ServerError } from "./errors.js";
import { Link, type LinkEvents } from "./link.js";

/** How long a call waits for answers, how long the inbox lasts without a call, and how long to wait for a reply. */
const [BLOCK, TTL, READ_TIMEOUT] = [2_000, 5_000, 4_000];

export type Answer = [word: string, id: string, key: string, owner: string, ...rest: unknown[]];

export interface InboxEvents {
  /** `from` is when the server began to count the leases of these answers. */
  onAnswers(answers: Answer[], from: number): void;
  /** It is there, for the first time or again. Requests from before are not queued any more. */
  onOpen(): void;
  /** It cannot be created now. */
  onUnreachable(): void;
  /** The server rejects it. */
  onRefused(error: Error): void;
  /** Nobody has waited for a while. */
  isIdle(): boolean;
}

/** The answers of one server to waiting requests, by one DLOCK.GRANTS after the other on an own connection. */
export class Inbox {
  name = "";
  isOpen = false;
  isRunning = false;
  #cursor = "0";
  readonly #link: Link;

  constructor(
    connect: LinkEvents["connect"],
    private readonly events: InboxEvents,
  ) {
    this.#link = new Link({ connect }, READ_TIMEOUT);
    this.#renew();
  }

  /** Starts to read. */
  open(): void {
    if (this.isRunning) return;
    this.isRunning = true;
    void this.#run();
  }

  /** The server does not know the inbox any more. */
  restart(): void {
    this.#renew();
    this.#link.close();
  }

  /** What ends the inbox on the server. */
  end(): string[] {
    this.isRunning = false;
    this.#link.close();
    return ["DLOCK.GRANTS", this.name, this.#cursor, "TTL", "0"];
  }

  /** A new name: a late request with the old one finds no inbox, and is not queued before older ones. */
  #renew(): void {
    [this.name, this.#cursor, this.isOpen] = [randomBytes(16).toString("hex"), "0", false];
  }

  async #run(): Promise<void> {
    let [sent, heardAt, isRepeated] = [now(), now(), false];
    while (this.isRunning) {
      const name = this.name;
      const wait = this.isOpen ? ["BLOCK", String(BLOCK)] : ["TTL", String(TTL)];
      try {
        await this.#link.ready();
        // The leases in a repeated call's answers are counted from its first copy.
        if (!isRepeated) sent = now();
        const reply = await this.#link.send(["DLOCK.GRANTS", name, this.#cursor, ...wait]);
        const [cursor, waited, answers] = reply as [number, number, Answer[]];
        [heardAt, isRepeated] = [now(), false];
        this.events.onAnswers(answers, sent + Number(waited));
        if (name !== this.name) continue;
        this.#cursor = String(cursor);
        if (!this.isOpen) {
          this.isOpen = true;
          this.events.onOpen();
        } else if (this.events.isIdle()) {
          this.isRunning = false;
          await this.#link.send(["DLOCK.GRANTS", name, this.#cursor, "TTL", "0"]);
        }
      } catch (error) {
        isRepeated = name === this.name;
        if (!this.isOpen && !isTransient(error) && !isGone(error)) {
          this.isRunning = false;
          this.events.onRefused(error as Error);
        } else if (isGone(error) || now() - heardAt > TTL) {
          this.#renew();
          [heardAt, isRepeated] = [now(), false];
        }
        if (!this.isOpen) this.events.onUnreachable();
        if (this.events.isIdle()) this.isRunning = false;
        // A link has its own pauses.
        if (!(error instanceof ConnectionError)) await pause(50);
      }
    }
    this.#renew();
    this.#link.close();
  }
}

function isGone(error: unknown): boolean {
  return error instanceof ServerError && ["NOINBOX", "BUSYINBOX", "READONLY"].includes(error.word);
}
