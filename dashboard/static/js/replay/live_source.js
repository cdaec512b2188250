/**
 * The server's ring, then its live feed: nothing is missed and nothing comes twice, over dropped connections too.
 *
 * Events: `trace` (detail: a new Trace, at the start and after an engine restart), `events` (some were appended to it),
 * `state` (detail: {state, message} for the page), `lost` (the feed can't go on where the trace ends: read the ring anew).
 */

import { Trace } from "./trace.js";
import { TraceError } from "./trace_error.js";

export const MAX_LIVE_EVENTS = 200_000; // a trace that is followed is read anew when it has so many, or twice what the ring had
const RETRY_MS = 2_000;
const CLOSED = 2;

export class LiveSource extends EventTarget {
  /**
   * @param {{load: (source: {url: string}) => Promise<Trace>}} loader
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
    this._maxEvents = MAX_LIVE_EVENTS;
    this.trace = null;
    this.isOn = false;
  }

  /** Read the ring and follow; `life` asks for another engine process than the current one. */
  async start({ life = "" } = {}) {
    this.stop();
    const run = this._run;
    this.isOn = true;
    this._say("connecting");
    try {
      const url = life ? `${this._base}/trace?${new URLSearchParams({ life })}` : `${this._base}/trace`;
      const trace = await this._loader.load({ url });
      if (run !== this._run) return;
      this._open(trace);
      if (run === this._run) this.follow();
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      if (run !== this._run) return;
      this._say("failed", error.message);
      if (!life) this._timer = setTimeout(() => run === this._run && this.start(), RETRY_MS);
    }
  }

  _open(trace) {
    this.trace = trace;
    this._maxEvents = Math.max(MAX_LIVE_EVENTS, 2 * trace.length);
    this.dispatchEvent(new CustomEvent("trace", { detail: trace }));
  }

  /** Open the feed behind the last event of the trace. */
  follow() {
    this.stop();
    this.isOn = true;
    const { trace } = this;
    const since = trace.firstSeq + trace.length - 1;
    const place = new URLSearchParams({ life: trace.header.life, since: String(since), interval_ms: "200" });
    const stream = (this._stream = this._openStream(`${this._base}/live?${place}`));
    stream.onopen = () => this._say("live");
    stream.onmessage = (message) => this._append(JSON.parse(message.data));
    stream.addEventListener("life", (message) => this._life(JSON.parse(message.data)));
    stream.addEventListener("gap", () => this._lose());
    stream.onerror = () => (stream.readyState === CLOSED ? this._lose() : this._say("reconnecting"));
  }

  stop() {
    this._run++;
    clearTimeout(this._timer);
    this._stream?.close();
    this._stream = null;
    this.isOn = false;
  }

  /** Said first, and after a restart: an engine that isn't this one has a trace of its own. */
  _life({ life, header }) {
    if (life === this.trace.header.life || !header) return;
    this._open(new Trace(header, null));
  }

  _append(events) {
    if (!Array.isArray(events)) {
      this._lose();
      return;
    }
    const { trace } = this;
    const due = trace.firstSeq + trace.length;
    try {
      for (const event of events) if (trace.length === 0 || event.seq >= due) trace.append(event);
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      this._lose();
      return;
    }
    this.dispatchEvent(new Event("events"));
    if (trace.length >= this._maxEvents) this._lose();
  }

  _lose() {
    this.stop();
    this.dispatchEvent(new Event("lost"));
  }

  _say(state, message = "") {
    this.dispatchEvent(new CustomEvent("state", { detail: { state, message } }));
  }
}
