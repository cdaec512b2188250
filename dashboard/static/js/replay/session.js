/** One open trace and the place in it that is looked at. All views of a trace share one session. */

import { eventAt, SecondsAxis, StepsAxis } from "./axis.js";
import { TYPE } from "./events.js";
import { Lanes } from "./lanes.js";
import { Replay } from "./replay.js";

const LEAST_SPAN = { seconds: 2e-5, steps: 0.02 };

/**
 * Events: `cursor` (another event, or selection), `view` (another part of the axis, or another axis), `grown`.
 */
export class Session extends EventTarget {
  constructor(trace, { name = "", axis = "seconds" } = {}) {
    super();
    this.trace = trace;
    this.name = name;
    this.lanes = new Lanes(trace);
    this.replay = new Replay(trace);
    this._axes = { seconds: new SecondsAxis(trace), steps: new StepsAxis(trace) };
    this.axis = this._axes[axis];
    this.cursor = 0; // index of the event that has just happened
    this.selection = null; // {choice} or {block}
    this.view = this.whole();
  }

  /** The state right after the event at the cursor. */
  get state() {
    return this.replay.stateAfter(this.cursor + 1);
  }

  get seq() {
    return this.trace.seqOf(this.cursor);
  }

  whole() {
    const { length } = this.trace;
    if (!length) return { start: 0, end: 1 };
    const start = this.axis.at(0);
    const end = this.axis.at(length - 1);
    const margin = Math.max((end - start) * 0.01, LEAST_SPAN[this.axis.name]);
    return { start: start - margin, end: end + margin };
  }

  /** Go to event `i`, held within the trace; `reveal` moves the view so that it is seen. */
  seek(i, { reveal = true } = {}) {
    if (!this.trace.length) return;
    this.cursor = Math.min(Math.max(0, Math.round(i)), this.trace.length - 1);
    if (reveal) this._reveal(this.axis.at(this.cursor));
    this.dispatchEvent(new Event("cursor"));
  }

  seekPlace(x, options) {
    this.seek(eventAt(this.axis, this.trace.length, x), options);
  }

  select(selection) {
    this.selection = selection;
    this.dispatchEvent(new Event("cursor"));
  }

  useAxis(name) {
    if (this.axis.name === name) return;
    const from = eventAt(this.axis, this.trace.length, this.view.start);
    const to = eventAt(this.axis, this.trace.length, this.view.end);
    const isWhole = this.view.start <= this.axis.at(0) && this.view.end >= this.axis.at(Math.max(0, this.trace.length - 1));
    this.axis = this._axes[name];
    this.show(isWhole ? this.whole() : { start: this.axis.at(from), end: this.axis.at(to) });
  }

  /** Look at another part of the axis; it never gets wider than the whole, nor narrower than can be told apart. */
  show({ start, end }) {
    const whole = this.whole();
    const span = Math.min(Math.max(end - start, LEAST_SPAN[this.axis.name]), whole.end - whole.start);
    const from = Math.min(Math.max(start, whole.start), whole.end - span);
    this.view = { start: from, end: from + span };
    this.dispatchEvent(new Event("view"));
  }

  /** @param {number} factor below 1 shows less, in more detail; `x` stays where it is */
  zoom(factor, x = this.axis.at(this.cursor)) {
    const { start, end } = this.view;
    const at = x >= start && x <= end ? x : (start + end) / 2;
    this.show({ start: at - (at - start) * factor, end: at + (end - at) * factor });
  }

  /** @param {number} share of what is seen; negative goes back */
  pan(share) {
    const { start, end } = this.view;
    this.show({ start: start + (end - start) * share, end: end + (end - start) * share });
  }

  /** Show the whole of what is selected, or of the step at the cursor. */
  focus() {
    const [from, to] = this._focused();
    const start = this.axis.at(from);
    const end = this.axis.at(to);
    const margin = Math.max((end - start) * 0.05, LEAST_SPAN[this.axis.name]);
    this.show({ start: start - margin, end: end + margin });
  }

  fit() {
    this.show(this.whole());
  }

  /** The nearest event after (or before) the cursor of a kind: `preemption`, `eviction`, `copy`, `step`; -1 if none. */
  next(kind, direction = 1) {
    const places = kind === "step" ? this.lanes.stepStarts : this.lanes.jumps[kind];
    const at = direction > 0 ? places.lowerBound(this.cursor + 1) : places.lowerBound(this.cursor) - 1;
    return at >= 0 && at < places.length ? places.values[at] : -1;
  }

  /** The next edge of the selected sequence, as in Perfetto; without one, the next event. */
  nextSlice(direction) {
    if (this.selection?.choice === undefined) return this.cursor + direction;
    const edges = this.lanes.edges(this.selection.choice);
    if (direction > 0) return edges.find((i) => i > this.cursor) ?? this.cursor;
    return edges.findLast((i) => i < this.cursor) ?? this.cursor;
  }

  /** First event of the first step that computes something of a request; its first event if none did. */
  firstStepOf(request) {
    const { trace } = this;
    let first = -1;
    for (let i = 0; i < trace.length; i++) {
      if (trace.request[i] !== request) continue;
      if (first < 0) first = i;
      if (trace.type[i] === TYPE.scheduled || trace.type[i] === TYPE.chunk || trace.type[i] === TYPE.tokens) return i;
    }
    return first;
  }

  /** Take in what was appended to the trace; `follow` goes to its end. */
  grow({ follow }) {
    const span = this.view.end - this.view.start;
    const showsAll = this.view.start <= this.axis.at(0);
    for (const part of [this.lanes, this.replay, ...Object.values(this._axes)]) part.extend();
    if (follow && this.trace.length) {
      this.cursor = this.trace.length - 1;
      const whole = this.whole();
      this.view = showsAll ? whole : { start: whole.end - span, end: whole.end };
    }
    this.dispatchEvent(new Event("grown"));
  }

  _reveal(x) {
    const { start, end } = this.view;
    if (x >= start && x <= end) return;
    const span = end - start;
    const from = x < start ? x - span * 0.25 : x - span * 0.75;
    this.show({ start: from, end: from + span });
  }

  _focused() {
    if (this.selection?.choice !== undefined) {
      const lane = this.lanes.byChoice[this.selection.choice];
      if (lane) return [lane.first, lane.isOver ? lane.last : this.trace.length - 1];
    }
    const at = Math.max(0, this.lanes.stepStarts.lowerBound(this.cursor + 1) - 1);
    const from = this.lanes.stepStarts.length ? this.lanes.stepStarts.values[at] : 0;
    const to = this.lanes.stepEnds.length > at ? this.lanes.stepEnds.values[at] : this.trace.length - 1;
    return [Math.min(from, this.cursor), Math.max(to, this.cursor)];
  }
}
