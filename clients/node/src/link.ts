import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { inTime, now, pause, type Args, type Connection } from "./client.js";
import { lockError } from "./errors.js";

/** How many commands may be without a reply. More would only wait in buffers. */
const MAX_PENDING = 1_000;

/** One connection: opened when something is to be sent, and again after it was lost. Nothing is sent twice. */
export class Link {
  hasOpened = false;
  #opened: Promise<Connection> | undefined;
  /** Opening, or open; open; and the one that was dropped because it was silent. */
  #current: Connection | undefined;
  #ready: Connection | undefined;
  #silent: Connection | undefined;
  #failures = 0;
  #pending = 0;
  /** Since when a reply is awaited. */
  #since = 0;
  #isWatched = false;
  readonly #unsent: (() => void)[] = [];

  /** `server`: what messages call it. `timeout`: how long to wait for a reply, and for a connection. */
  constructor(
    private readonly connect: () => Promise<Connection>,
    private readonly server: string,
    private readonly timeout: number,
    private readonly onLoss = () => {},
  ) {}

  /** Sends once. The command is made when it can be sent at once; it may be withdrawn until then. */
  async send(command: () => Args | undefined): Promise<unknown> {
    const connection = this.#ready ?? (await this.#connected());
    const isFull = this.#pending >= MAX_PENDING || this.#unsent.length > 0;
    if (isFull) await new Promise<void>((resume) => this.#unsent.push(resume));
    if (this.#pending++ === 0) this.#since = now();
    if (!this.#isWatched) void this.#watch();
    try {
      const args = command()?.map((arg) => (Buffer.isBuffer(arg) ? arg : String(arg)));
      if (!args) return undefined;
      const reply = await connection.send(args);
      this.#since = now();
      // Only now: a connection that is lost before a reply is opened again after a pause, too.
      this.#failures = 0;
      return reply;
    } catch (cause) {
      const isSilent = connection === this.#silent;
      const error = lockError(isSilent ? new Error(`none within ${this.timeout} ms`) : cause, this.server);
      // READONLY: a primary that was demoted.
      if (["CONNECTION", "READONLY"].includes(error.word)) this.#drop(connection);
      throw error;
    } finally {
      this.#pending--;
      this.#unsent.shift()?.();
    }
  }

  /** Opens the connection, if it is not. */
  async open(): Promise<void> {
    await this.#connected();
  }

  close(): void {
    if (this.#current) this.#drop(this.#current);
    else this.#opened?.then(() => this.close(), () => {});
  }

  #connected(): Promise<Connection> {
    if (!this.#opened) {
      this.#opened = this.#open();
      // Before those that wait for it go on: nothing overtakes them.
      this.#opened.then((own) => this.#onOpened(own), () => {});
    }
    return this.#opened;
  }

  #onOpened(own: Connection): void {
    this.#since = now();
    if (own === this.#current) this.#ready = own;
  }

  /** Drops the connection when the server owes replies and has sent none in time. */
  async #watch(): Promise<void> {
    this.#isWatched = true;
    for (let left = this.timeout; left > 0 && this.#pending > 0; left = this.#since + this.timeout - now()) {
      await sleep(left, undefined, { ref: false });
      // If the program was blocked, what has arrived is read first.
      await setImmediate();
    }
    this.#isWatched = false;
    if (this.#pending === 0) return;
    this.#silent = this.#current;
    this.#drop(this.#current);
  }

  async #open(): Promise<Connection> {
    let connection: Connection | undefined;
    try {
      if (this.#failures++ > 0) await pause(Math.min(1_000, 10 * 2 ** this.#failures));
      const own = (connection = this.#current = await inTime(this.connect(), this.timeout));
      await inTime(own.connect(() => this.#drop(own)), this.timeout);
      this.hasOpened = true;
      return own;
    } catch (error) {
      this.#drop(connection);
      throw lockError(error, this.server);
    }
  }

  #drop(connection: Connection | undefined): void {
    if (connection !== this.#current) return;
    this.#current = this.#ready = this.#opened = undefined;
    connection?.close();
    // Not after each attempt to open it again.
    if (this.#failures === 0) this.onLoss();
  }
}
