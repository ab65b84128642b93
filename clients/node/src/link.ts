import { now, pause, type Connection } from "./client.js";
import { lockError } from "./errors.js";

/** How many commands may be without a reply. More would only wait in buffers. */
const MAX_PENDING = 1_000;

/** One connection: opened when something is to be sent, and again after it was lost. Nothing is sent twice. */
export class Link {
  #opened: Promise<Connection> | undefined;
  #current: Connection | undefined;
  #watch: NodeJS.Timeout | undefined;
  #failures = 0;
  /** How many commands have no reply, and since when: the last reply, or the first of them. */
  #pending = 0;
  #heardAt = 0;
  readonly #unsent: (() => void)[] = [];

  constructor(
    private readonly connect: () => Promise<Connection>,
    private readonly timeout: number,
    private readonly onLoss = () => {},
  ) {}

  /** Sends once. The command is made when it can be sent at once; it may be withdrawn until then. */
  async send(command: () => string[] | undefined): Promise<unknown> {
    const connection = await (this.#opened ??= this.#open());
    const isFull = this.#pending >= MAX_PENDING || this.#unsent.length > 0;
    if (isFull) await new Promise<void>((resume) => this.#unsent.push(resume));
    try {
      const args = command();
      if (this.#pending++ === 0) this.#heardAt = now();
      return args && (await connection.send(args));
    } catch (cause) {
      const error = lockError(cause);
      // READONLY: a primary that was demoted.
      if (["CONNECTION", "READONLY"].includes(error.word)) this.#drop(connection);
      throw error;
    } finally {
      if (connection === this.#current) [this.#pending, this.#heardAt] = [this.#pending - 1, now()];
      this.#unsent.shift()?.();
    }
  }

  close(): void {
    this.#opened?.then((connection) => this.#drop(connection), () => {});
  }

  async #open(): Promise<Connection> {
    let connection: Connection | undefined;
    try {
      if (this.#failures > 0) await pause(Math.min(1_000, 10 * 2 ** this.#failures));
      const own = (this.#current = connection = await this.connect());
      [this.#pending, this.#heardAt] = [1, now()];
      this.#watch = setInterval(() => this.#check(own), this.timeout / 4).unref();
      await own.connect(() => this.#drop(own));
      if (own !== this.#current) throw new Error("closed while connecting");
      [this.#pending, this.#failures] = [0, 0];
      return own;
    } catch (error) {
      this.#failures++;
      if (connection) this.#drop(connection);
      else this.#opened = undefined;
      throw lockError(error);
    }
  }

  /** Drops a connection without replies. If the program was blocked, what has arrived is read first. */
  #check(connection: Connection): void {
    const isSilent = () => this.#pending > 0 && now() - this.#heardAt > this.timeout;
    if (isSilent()) setImmediate(() => isSilent() && this.#drop(connection));
  }

  #drop(connection: Connection): void {
    if (connection !== this.#current) return;
    [this.#current, this.#opened] = [undefined, undefined];
    clearInterval(this.#watch);
    connection.close();
    this.onLoss();
  }
}
