/** The live feed: one EventSource, and what can be said about the connection. */

const STALE_AFTER_MS = 3500;
const HIDDEN_GRACE_MS = 60_000;

/**
 * Events: `frame` (detail: the frame), `state` (detail: "connecting" | "live" | "stale" | "offline").
 * "offline" means that the dashboard's own process doesn't answer; whether the service does is said in the frames.
 */
export class Feed extends EventTarget {
  constructor(url) {
    super();
    this._url = url;
    this._source = null;
    this._lastFrame = -Infinity;
    this._hiddenTimer = 0;
    this.state = "";
  }

  start() {
    this._open();
    setInterval(() => this._checkAge(), 1000);
    // A page that nobody looks at for a minute lets go of the feed, so that nobody polls for it.
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this._hiddenTimer);
      if (document.hidden) this._hiddenTimer = setTimeout(() => this._close(), HIDDEN_GRACE_MS);
      else if (!this._source) this._open();
    });
    // A page that is left may live on in the browser's cache, where it would hold one of six connections.
    addEventListener("pagehide", () => this._close());
    addEventListener("pageshow", (event) => {
      if (event.persisted && !this._source) this._open();
    });
  }

  _open() {
    this._setState("connecting");
    this._source = new EventSource(this._url);
    this._source.onmessage = (message) => {
      this._lastFrame = performance.now();
      this._setState("live");
      this.dispatchEvent(new CustomEvent("frame", { detail: JSON.parse(message.data) }));
    };
    this._source.onerror = () => {
      this._setState("offline");
      if (this._source.readyState === EventSource.CLOSED) {
        this._close();
        setTimeout(() => this._source ?? this._open(), 1000);
      }
    };
  }

  _close() {
    this._source?.close();
    this._source = null;
  }

  _checkAge() {
    if (this.state === "live" && performance.now() - this._lastFrame > STALE_AFTER_MS) this._setState("stale");
  }

  _setState(state) {
    if (state === this.state) return;
    this.state = state;
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
  }
}
