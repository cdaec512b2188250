/** What the bar says: where the events come from, whether they are the newest ones, and what went wrong. */

import { setText } from "../dom.js";

const WORDS = { connecting: "Connecting", live: "Live", reconnecting: "Reconnecting", failed: "Not available" };

export class Status {
  /** @param {HTMLElement} panel the tab's */
  constructor(panel) {
    const part = (name) => panel.querySelector(`[data-part=${name}]`);
    this._pill = part("status");
    this._name = part("name");
    this._failure = part("failure");
    this._noLive = part("no-live");
    this._follow = panel.querySelector("#replay-follow");
  }

  /**
   * @param {object} now
   * @param {string} now.source "live" or "file"
   * @param {boolean} now.isFollowing the picture moves on with the engine
   * @param {{state: string, message: string}} now.live of the connection
   * @param {number} now.numNew events that came since the picture stands still
   * @param {import("./trace.js").Trace|null} now.trace
   * @param {string} now.fileName
   */
  show({ source, isFollowing, live, numNew, trace, fileName }) {
    const isLive = source === "live";
    const isPaused = isLive && !isFollowing;
    this._pill.dataset.state = isPaused ? "paused" : isLive ? live.state : "file";
    setText(this._pill, isPaused ? `Paused · +${numNew.toLocaleString("en-US")} new` : isLive ? (WORDS[live.state] ?? "Live") : "File");
    this._follow.hidden = !isLive || !trace;
    setText(this._follow, isPaused ? "Go live" : "Hold");
    setText(this._name, trace ? describe(trace, isLive ? "ring of the server" : fileName) : "");
    setText(this._noLive, isLive && live.state === "failed" ? `The server’s ring can’t be read: ${live.message}. Trying again.` : "");
  }

  /** One line, until something is opened; "" takes it away. */
  fail(message) {
    this._failure.hidden = message === "";
    setText(this._failure, message);
  }
}

function describe(trace, name) {
  const count = (n, text) => (n ? `, ${n.toLocaleString("en-US")} ${text}` : "");
  const { model, num_dropped_events: numDropped } = trace.header;
  const rest = count(numDropped, "earlier ones not held") + count(trace.numUnknown, "of unknown types");
  return `${name} · ${model} · ${trace.length.toLocaleString("en-US")} events${rest}${trace.isTruncated ? ", ends within an event" : ""}`;
}
