/** What runs, whether it is ready, whether this page is up to date. */

import { setText } from "./dom.js";

const STATES = {
  ready: "Ready",
  loading: "Loading",
  draining: "Draining",
  restarting: "Restarting",
  failed: "Failed",
  down: "Engine down",
  unreachable: "Unreachable",
};

/** @returns {string} one of STATES' keys */
export function serviceState(frame) {
  if (!frame.connected) return "unreachable";
  if (frame.ready?.status === 200) return "ready";
  const said = frame.stats.service?.engine_state;
  if (said in STATES && said !== "ready") return said;
  return frame.stats.engine.state === "loading" ? "loading" : "down";
}

/** @returns {string} why it isn't ready, in the service's words */
function reason(frame) {
  return frame.error || frame.ready?.body?.error?.message || "";
}

export class Header {
  constructor(root, banner) {
    this._model = root.querySelector("[data-field=model]");
    this._executor = root.querySelector("[data-field=executor]");
    this._state = root.querySelector("[data-field=state]");
    this._link = root.querySelector("[data-field=link]");
    this._banner = banner;
    this._serviceUrl = document.body.dataset.serviceUrl;
    this._feedState = "connecting";
    this._frame = null;
    this._lastKnown = ""; // what to say of the numbers on the page, once there are any
  }

  frame(frame) {
    this._frame = frame;
    if (frame.connected) {
      this._lastKnown = " The numbers below are the last ones known.";
      const { executor, num_blocks: blocks, block_size: size } = frame.stats.engine;
      setText(this._executor, executor ? `${executor} · ${(blocks * size).toLocaleString("en-US")} KV tokens` : "");
    }
    this._show();
  }

  model(name) {
    setText(this._model, name);
  }

  feedState(state) {
    this._feedState = state;
    this._show();
  }

  _show() {
    const state = this._frame ? serviceState(this._frame) : "loading";
    this._state.dataset.state = state;
    setText(this._state, this._frame ? STATES[state] : "Connecting");
    const links = { connecting: "connecting…", live: "live", stale: "stale", offline: "reconnecting…" };
    this._link.dataset.state = this._feedState;
    setText(this._link, links[this._feedState]);
    document.body.classList.toggle("outdated", this._feedState !== "live" || state === "unreachable");
    this._showBanner(state);
  }

  _showBanner(state) {
    const text = this._bannerText(state);
    this._banner.hidden = text === "";
    this._banner.dataset.state = this._feedState === "live" ? state : this._feedState;
    setText(this._banner, text);
  }

  _bannerText(state) {
    if (this._feedState === "offline") return `The dashboard’s own server doesn’t answer; reconnecting.${this._lastKnown}`;
    if (this._feedState === "stale") return `No news for more than three seconds.${this._lastKnown}`;
    if (!this._frame || state === "ready") return "";
    const why = reason(this._frame);
    if (state === "unreachable") {
      return `The service at ${this._serviceUrl} can’t be reached (${why}); trying again every second.${this._lastKnown}`;
    }
    return `${STATES[state]}${why ? `: ${why}` : ""}. New requests are refused until it is ready.`;
  }
}
