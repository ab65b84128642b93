import { now, pause, type Connection } from "./client.js";
import { lockError } from "./errors.js";

/** How many commands may be without a reply. More would only wait in buffers. */
const MAX_PENDING = 1_000;

interface Live {
  connection: Connection;
  isOpen: boolean;
  lost?: Error;
  /** How many commands have no reply, and since when: the last reply, or the first of them. */
  pending: number;
  heardAt: number;
  watch: NodeJS.Timeout;
}

/** One connection: opened when something is to be sent, and again after it was lost. Nothing is sent twice. */
export class Link {
  #live: Promise<Live> | undefined;
  #failures = 0;
  readonly #unsent: (() => void)[] = [];

  constructor(
    private readonly connect: () => Promise<Connection>,
    private readonly timeout: number,
    private readonly onLoss = () => {},
  ) {}

  /** Waits until a command can be sent: that which is sent right afterwards is sent at once. */
  async ready(): Promise<Live> {
    const live = await (this.#live ??= this.#open());
    if (live.pending >= MAX_PENDING || this.#unsent.length > 0) {
      await new Promise<void>((ready) => this.#unsent.push(ready));
    }
    return live;
  }

  async send(args: string[], live?: Live): Promise<unknown> {
    live ??= await this.ready();
    if (live.pending++ === 0) live.heardAt = now();
    try {
      return await live.connection.send(args);
    } catch (cause) {
      const error = lockError(live.lost ?? cause);
      // READONLY: a primary that was demoted.
      if (["CONNECTION", "READONLY"].includes(error.word)) this.#drop(live, error);
      throw error;
    } finally {
      live.pending--;
      live.heardAt = now();
      this.#unsent.shift()?.();
    }
  }

  close(): void {
    this.#live?.then((live) => this.#drop(live, new Error("closed")), () => {});
  }

  async #open(): Promise<Live> {
    let live: Live | undefined;
    const drop = (reason: string) => this.#drop(live!, new Error(reason));
    const isSilent = () => live!.pending > 0 && now() - live!.heardAt > this.timeout;
    // If the program was blocked, what has arrived is read first.
    const check = () => isSilent() && setImmediate(() => isSilent() && drop(`none within ${this.timeout} ms`));
    try {
      if (this.#failures > 0) await pause(Math.min(1_000, 10 * 2 ** this.#failures));
      const connection = await this.connect();
      const watch = setInterval(check, this.timeout / 4).unref();
      live = { connection, watch, pending: 1, heardAt: now(), isOpen: false };
      await live.connection.connect(() => drop("the connection was lost"));
      if (live.lost) throw live.lost;
      [live.pending, live.isOpen, this.#failures] = [0, true, 0];
      return live;
    } catch (error) {
      this.#failures++;
      this.#live = undefined;
      if (live) this.#drop(live, error as Error);
      throw lockError(live?.lost ?? error);
    }
  }

  #drop(live: Live, reason: Error): void {
    if (live.lost) return;
    live.lost = reason;
    clearInterval(live.watch);
    live.connection.close();
    if (!live.isOpen) return;
    this.#live = undefined;
    this.onLoss();
  }
}
