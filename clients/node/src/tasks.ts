/** Keeps the process alive while it is referenced. */
const alive = setInterval(() => {}, 1e9).unref();
let running = 0;

/** What is under way. The process stays alive until it is done. */
export class Tasks {
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  async track<T>(task: Promise<T>): Promise<T> {
    this.#running++;
    if (running++ === 0) alive.ref();
    try {
      return await task;
    } finally {
      if (--running === 0) alive.unref();
      if (--this.#running === 0) for (const resume of this.#waiting.splice(0)) resume();
    }
  }

  async settled(): Promise<void> {
    if (this.#running > 0) await new Promise<void>((resume) => this.#waiting.push(resume));
  }
}
