/**
 * A lane per sequence: what it did from which event to which. Also where steps begin and end, and what can be jumped to.
 *
 * Slices of a lane never overlap: queue, prefill (a chunk, as long as the step that computed it), decode, preempted. Their
 * ends are event indices, so that one model serves an axis in seconds and one in steps.
 */

import { ENDS_REQUEST, TYPE } from "./events.js";
import { Growing } from "./growing.js";

export const KIND = Object.freeze({ queue: 0, prefill: 1, decode: 2, preempted: 3 });
export const KINDS = Object.freeze(["queue", "prefill", "decode", "preempted"]);

export class Lane {
  constructor(choice, first) {
    this.choice = choice;
    this.first = first;
    this.last = first;
    this.kinds = new Growing(Uint8Array, 8);
    this.starts = new Growing(Int32Array, 8);
    this.ends = new Growing(Int32Array, 8);
    this.chunks = new Growing(Int32Array, 8); // the chunk event of a prefill slice, else -1
    this.tokens = new Growing(Int32Array, 16); // events that brought tokens
    this.marks = new Growing(Int32Array, 4); // preempted, resumed, first token and end events
    this.open = -1; // kind that goes on
    this.openSince = 0;
    this.isOver = false;
  }

  begin(kind, i) {
    this.open = kind;
    this.openSince = i;
  }

  /** Close what goes on, if anything does, at event `i`. */
  end(i) {
    if (this.open >= 0) this.slice(this.open, this.openSince, i);
    this.open = -1;
  }

  slice(kind, start, end, chunk = -1) {
    const from = Math.max(start, this.ends.length ? this.ends.values[this.ends.length - 1] : 0);
    this.last = Math.max(this.last, end);
    if (end <= from) return;
    this.kinds.push(kind);
    this.starts.push(from);
    this.ends.push(end);
    this.chunks.push(chunk);
  }

  mark(i) {
    this.marks.push(i);
    this.last = Math.max(this.last, i);
  }
}

export class Lanes {
  /** @param {import("./trace.js").Trace} trace may grow later; call `extend` then */
  constructor(trace) {
    this.trace = trace;
    this.length = 0; // events taken in
    this.lanes = []; // in the order in which their sequences were first named
    this.byChoice = [];
    this.stepStarts = new Growing(Int32Array);
    this.stepEnds = new Growing(Int32Array);
    this.jumps = { preemption: new Growing(Int32Array, 16), eviction: new Growing(Int32Array, 16), copy: new Growing(Int32Array, 16) };
    this._ofRequest = new Map();
    this._step = -1; // index of the step_started event while in a step
    this._chunks = [];
    this._firstTokens = [];
    for (const told of trace.snapshot?.requests ?? []) this._adopt(told);
    this.extend();
  }

  extend() {
    const { trace } = this;
    for (let i = this.length; i < trace.length; i++) this._take(i);
    this.length = trace.length;
  }

  /** Events of sequence `choice` that begin or end something, in order. */
  edges(choice) {
    const lane = this.byChoice[choice];
    if (!lane) return [];
    const open = lane.open >= 0 ? [lane.openSince] : [];
    return [...new Set([...lane.starts.trimmed(), ...lane.ends.trimmed(), ...lane.marks.trimmed(), ...open])].sort((x, y) => x - y);
  }

  _adopt(told) {
    const { trace } = this;
    for (const choice of told.choices) {
      const lane = this._lane(trace.choiceOf(told.request_id, choice.index), 0);
      if (choice.finished) lane.isOver = true;
      else if (!choice.running) lane.begin(KIND.preempted, 0);
      else if (choice.num_output_tokens) lane.begin(KIND.decode, 0);
    }
    if (!told.choices.length) this._lane(trace.choiceOf(told.request_id, 0), 0).begin(KIND.queue, 0);
  }

  _lane(choice, i) {
    let lane = this.byChoice[choice];
    if (!lane) {
      lane = this.byChoice[choice] = new Lane(choice, i);
      this.lanes.push(lane);
      const { request } = this.trace.choices[choice];
      const siblings = this._ofRequest.get(request);
      if (siblings) siblings.push(lane);
      else this._ofRequest.set(request, [lane]);
    }
    return lane;
  }

  _take(i) {
    const { trace } = this;
    const code = trace.type[i];
    const choice = trace.choice[i];
    switch (code) {
      case TYPE.tokens: {
        const lane = this._lane(choice, i);
        lane.tokens.push(i);
        lane.last = i;
        if (lane.open < 0) this._firstTokens.push(lane);
        return;
      }
      case TYPE.arrived:
        this._lane(choice, i).begin(KIND.queue, i);
        return;
      case TYPE.chunk:
        this._chunks.push(i);
        if (this._step >= 0) this._lane(choice, i).end(this._step);
        return;
      case TYPE.first_token:
        this._lane(choice, i).mark(i);
        return;
      case TYPE.preempted: {
        const lane = this._lane(choice, i);
        lane.end(i);
        lane.begin(KIND.preempted, i);
        lane.mark(i);
        this.jumps.preemption.push(i);
        return;
      }
      case TYPE.resumed: {
        const lane = this._lane(choice, i);
        lane.end(this._step >= 0 ? this._step : i);
        lane.mark(i);
        return;
      }
      case TYPE.sequence_finished: {
        const lane = this._lane(choice, i);
        lane.end(i);
        lane.mark(i);
        lane.isOver = true;
        return;
      }
      case TYPE.block_evicted:
        this.jumps.eviction.push(i);
        return;
      case TYPE.block_copied:
        this.jumps.copy.push(i);
        return;
      case TYPE.step_started:
        this._beginStep(i);
        return;
      case TYPE.step_finished:
        this._endStep(i);
        return;
      default:
        if (ENDS_REQUEST[code]) this._end(i);
    }
  }

  _end(i) {
    const request = this.trace.request[i];
    if (!this._ofRequest.has(request)) this._lane(this.trace.choice[i], i);
    for (const lane of this._ofRequest.get(request)) {
      if (lane.isOver) continue;
      lane.end(i);
      lane.mark(i);
      lane.isOver = true;
    }
  }

  _beginStep(i) {
    this._step = i;
    this._chunks.length = 0;
    this._firstTokens.length = 0;
    this.stepStarts.push(i);
  }

  _endStep(i) {
    const start = this._step >= 0 ? this._step : i;
    this._step = -1;
    if (this.stepStarts.length === this.stepEnds.length) this.stepStarts.push(start);
    this.stepEnds.push(i);
    for (const chunk of this._chunks) this._lane(this.trace.choice[chunk], chunk).slice(KIND.prefill, start, i, chunk);
    for (const lane of this._firstTokens) if (lane.open < 0 && !lane.isOver) lane.begin(KIND.decode, i);
    this._chunks.length = 0;
    this._firstTokens.length = 0;
  }
}
