/** Where events lie on the time axis: in seconds after the trace's first event, or in steps. */

import { Growing } from "./growing.js";

export class SecondsAxis {
  constructor(trace) {
    this.name = "seconds";
    this._trace = trace;
  }

  at(i) {
    const { t } = this._trace;
    return t[i] - t[0];
  }

  extend() {}
}

/** Every step has the width 1, and so has what lies between two of them; events lie evenly within. */
export class StepsAxis {
  constructor(trace) {
    this.name = "steps";
    this._trace = trace;
    this._places = new Growing(Float64Array);
    this._from = 0; // first event of the step that isn't closed
    this.extend();
  }

  at(i) {
    return this._places.values[i];
  }

  extend() {
    const { step, length } = this._trace;
    this._places.length = this._from;
    for (let from = this._from; from < length; ) {
      let to = from;
      while (to < length && step[to] === step[from]) to++;
      for (let i = from; i < to; i++) this._places.push(step[from] + (i - from) / (to - from));
      this._from = from;
      from = to;
    }
  }
}

/** The last event at or before place `x`, held within the trace; -1 without events. */
export function eventAt(axis, length, x) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (axis.at(middle) <= x) low = middle + 1;
    else high = middle;
  }
  return Math.min(length - 1, Math.max(0, low - 1));
}

