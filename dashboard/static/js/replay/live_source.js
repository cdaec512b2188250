/**
 * The server's ring, then its live feed: nothing is missed and nothing comes twice, over dropped connections too.
 *
 * Events: `trace` (detail: a new Trace, at the start, after an engine restart and after a gap), `events` (appended to the
 * trace), `state` (detail: what is to be said of the connection).
 */

import { Trace } from "./trace.js";
import { TraceError } from "./trace_error.js";

export const MAX_LIVE_EVENTS = 200_000; // then the ring is read again, so that a page left open doesn't grow
const RETRY_MS = 2_000;

export class LiveSource extends EventTarget {
  /**
   * @param {import("./load.js").Loader} loader
   * @param {{base?: string, openStream?: (url: string) => EventSource}} [options]
   */
  constructor(loader, { base = "api/telemetry/kv", openStream = (url) => new EventSource(url) } = {}) {
    super();
    this._loader = loader;
    this._base = base;
    this._openStream = openStream;
    this._stream = null;
    this._run = 0;
    this._timer = 0;
    this.trace = null;
    this.isOn = false;
    this.isFull = false;
  }

  /** Read the ring and follow; an earlier run is forgotten. */
  async start() {
    this.stop();
    const run = ++this._run;
    this.isOn = true;
    this.isFull = false;
    this._say("connecting");
    try {
      const trace = await this._loader.load({ url: `${this._base}/trace` });
      if (run !== this._run) return;
      this._open(trace);
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      if (run !== this._run) return;
      this._say("failed", error.message);
      this._timer = setTimeout(() => run === this._run && this.start(), RETRY_MS);
    }
  }

  stop() {
    this._run++;
    clearTimeout(this._timer);
    this._stream?.close();
    this._stream = null;
    this.isOn = false;
  }

  _open(trace) {
    this.trace = trace;
    this.dispatchEvent(new CustomEvent("trace", { detail: trace }));
    const since = trace.length ? trace.seqOf(trace.length - 1) : trace.firstSeq - 1;
    const place = new URLSearchParams({ life: trace.header.life, since: String(since), interval_ms: "200" });
    this._stream = this._openStream(`${this._base}/live?${place}`);
    this._stream.onopen = () => this._say("live");
    this._stream.onmessage = (message) => this._append(JSON.parse(message.data));
    this._stream.addEventListener("life", (message) => this._life(JSON.parse(message.data)));
    this._stream.addEventListener("gap", () => this.start());
    this._stream.onerror = () => {
      if (this._stream?.readyState === 2) this.start();
      else this._say("reconnecting");
    };
  }

  /** Said first, and after a restart: an engine that isn't ours has a trace of its own. */
  _life({ id = "", life = id, header }) {
    if (life === this.trace.header.life || !header) return;
    this.trace = new Trace(header, null);
    this.dispatchEvent(new CustomEvent("trace", { detail: this.trace }));
  }

  _append(events) {
    if (this.isFull) return;
    const { trace } = this;
    const next = trace.firstSeq + trace.length;
    try {
      for (const event of events) if (event.seq >= next || trace.length === 0) trace.append(event);
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      this.start();
      return;
    }
    this._say("live");
    this.isFull = trace.length >= MAX_LIVE_EVENTS;
    this.dispatchEvent(new Event("events"));
  }

  _say(state, detail = "") {
    this.dispatchEvent(new CustomEvent("state", { detail: { state, detail } }));
  }
}
