/** Seeking: the state after any number of events, from the nearest checkpoint before it. */

import { State } from "./state.js";

const MIN_INTERVAL = 512;
const MAX_ENTRIES = 6_000_000; // array entries of all checkpoints together: about 48 MB

export class Replay {
  /**
   * @param {import("./trace.js").Trace} trace may grow later; call `extend` then
   * @param {{interval?: number}} [options] events from one checkpoint to the next; chosen by the pool's size if not given
   */
  constructor(trace, { interval } = {}) {
    this.trace = trace;
    this._front = new State(trace); // as far as events have been taken in
    const numAffordable = Math.max(1, MAX_ENTRIES / (this._front.size + trace.choices.length + trace.requestIds.length));
    this.interval = interval ?? Math.max(MIN_INTERVAL, Math.ceil(trace.length / numAffordable));
    this._checkpoints = [this._front.copy()];
    this._state = this._front.copy();
    this.extend();
  }

  get numCheckpoints() {
    return this._checkpoints.length;
  }

  /** Take in what was appended to the trace. */
  extend() {
    const { trace, interval } = this;
    for (;;) {
      const next = this._checkpoints.length * interval;
      this._front.advance(Math.min(next, trace.length));
      if (next > trace.length) return;
      this._checkpoints.push(this._front.copy());
    }
  }

  /**
   * The state after the first `position` events. It is this object's own, valid until the next call.
   * @returns {State}
   */
  stateAfter(position) {
    const target = Math.min(Math.max(0, position), this.trace.length);
    const checkpoint = this._checkpoints[Math.floor(target / this.interval)];
    const isNear = this._state.position <= target && this._state.position >= checkpoint.position;
    if (!isNear) this._state = checkpoint.copy();
    this._state.advance(target);
    return this._state;
  }
}
