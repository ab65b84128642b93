/** Keeps the process alive while it is referenced. */
const alive = setInterval(() => {}, 1e9).unref();
let running = 0;

/** What is under way. The process stays alive until it is done. */
export class Tasks {
  readonly #promises = new Set<Promise<unknown>>();

  track<T>(promise: Promise<T>): Promise<T> {
    this.#promises.add(promise);
    if (running++ === 0) alive.ref();
    const done = () => {
      this.#promises.delete(promise);
      if (--running === 0) alive.unref();
    };
    promise.then(done, done);
    return promise;
  }

  async settled(): Promise<void> {
    await Promise.allSettled(this.#promises);
  }
}
