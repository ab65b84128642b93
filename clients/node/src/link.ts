import { RESPONSE_TIMEOUT, type Connection } from "./client.js";
import { now, pause } from "./clock.js";
import { ConnectionError, ServerError, translate } from "./errors.js";

/** The pause before another attempt to connect: doubled from attempt to attempt, up to a second. */
const backoff = (failures: number): number => Math.min(1_000, 10 * 2 ** failures);

interface Live {
  connection: Connection;
  /** How many commands have no reply yet, and when the last reply came, or the first of them was sent. */
  pending: number;
  heardAt: number;
  watch?: NodeJS.Timeout;
  /** Why it is no longer used. */
  lost?: string;
}

export interface LinkEvents {
  connect(): Promise<Connection>;
  onOpen?(): void;
  onLoss?(): void;
}

/** One connection: opened when something is to be sent, and again after it was lost. Nothing is sent twice. */
export class Link {
  #live: Promise<Live> | undefined;
  #failures = 0;

  constructor(
    private readonly events: LinkEvents,
    private readonly timeout: number,
  ) {}

  /** Waits for the connection. What is sent right after it is sent at once. */
  async ready(): Promise<void> {
    await (this.#live ??= this.#open());
  }

  /** Sends once. Rejects with a ConnectionError if there is no reply: then it may have arrived. */
  async send(args: string[]): Promise<unknown> {
    const live = await (this.#live ??= this.#open());
    if (live.pending++ === 0) live.heardAt = now();
    try {
      return await live.connection.send(args);
    } catch (cause) {
      const error = translate(live.lost ? new Error(live.lost, { cause }) : cause);
      // A demoted primary: another connection finds the new one.
      if (!(error instanceof ServerError) || error.word === "READONLY") this.#drop(live, error.message);
      throw error;
    } finally {
      live.pending--;
      live.heardAt = now();
    }
  }

  /** Drops the connection. Another one is opened when something is to be sent. */
  close(): void {
    this.#live?.then((live) => this.#drop(live, "the connection was closed"), () => {});
  }

  async #open(): Promise<Live> {
    let live: Live | undefined;
    let limit: NodeJS.Timeout | undefined;
    try {
      if (this.#failures > 0) await pause(backoff(this.#failures));
      const opening = this.events.connect().then(async (connection) => {
        live = { connection, pending: 0, heardAt: now() };
        await connection.connect(() => this.#drop(live!, "the connection was lost"));
        return live;
      });
      const late = new Promise<never>((_, reject) => {
        limit = setTimeout(() => reject(new Error("it does not accept connections")), RESPONSE_TIMEOUT);
      });
      const opened = await Promise.race([opening, late]);
      opened.watch = setInterval(() => this.#check(opened), this.timeout / 4).unref();
      this.#failures = 0;
      this.events.onOpen?.();
      return opened;
    } catch (error) {
      this.#failures++;
      this.#live = undefined;
      if (live) live.lost = "not connected";
      live?.connection.close();
      throw translate(error, false);
    } finally {
      clearTimeout(limit);
    }
  }

  /** Ends a connection without replies. After the program was blocked, replies that have arrived are read first. */
  #check(live: Live): void {
    const isSilent = () => live.pending > 0 && now() - live.heardAt > this.timeout;
    if (!isSilent()) return;
    setImmediate(() => isSilent() && this.#drop(live, `nothing within ${this.timeout} ms`));
  }

  #drop(live: Live, reason: string): void {
    // Until it is open, its opening fails instead.
    if (live.lost || !live.watch) return;
    live.lost = reason;
    clearInterval(live.watch);
    this.#live = undefined;
    live.connection.close();
    this.events.onLoss?.();
  }
}
