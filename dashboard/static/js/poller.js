/** Asks again and again while somebody looks, never twice at once. */
export class Poller {
  /**
   * @param {(signal: AbortSignal) => Promise<void>} ask
   * @param {{interval_ms?: number, onError?: (error: Error) => void, setTimeout?: typeof setTimeout}} [options]
   */
  constructor(ask, { intervalMs = 1000, onError = () => {} } = {}) {
    this._ask = ask;
    this._intervalMs = intervalMs;
    this._onError = onError;
    this._abort = null;
    this._timer = 0;
    document.addEventListener("visibilitychange", () => {
      if (this._abort && !document.hidden) this.now();
    });
  }

  get isRunning() {
    return this._abort !== null;
  }

  start() {
    if (this._abort) return;
    this._abort = new AbortController();
    this._round(this._abort.signal);
  }

  stop() {
    this._abort?.abort();
    this._abort = null;
    clearTimeout(this._timer);
  }

  /** Ask at once, and then at the interval again. */
  now() {
    this.stop();
    this.start();
  }

  async _round(signal) {
    if (!document.hidden) {
      try {
        await this._ask(signal);
      } catch (error) {
        if (!signal.aborted) this._onError(error);
      }
    }
    if (!signal.aborted) this._timer = setTimeout(() => this._round(signal), this._intervalMs);
  }
}
