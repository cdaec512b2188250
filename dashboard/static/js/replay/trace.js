/**
 * One trace in columns: a number per event and column, and the events' lines as they came.
 *
 * Event `i` (from 0) has seq `firstSeq + i`. Requests and choices (sequences) are numbered in the order in which they are
 * first named; `-1` says that an event names none.
 */

import { DEFAULTS, NAMES_BLOCK, NAMES_REQUEST, NUMBERS, TYPE, TYPES } from "./events.js";
import { Growing } from "./growing.js";
import { TraceError } from "./trace_error.js";

export const MAX_INDEX = 65_535; // choices of one request
const COLUMNS = {
  type: Uint8Array, t: Float64Array, step: Int32Array, request: Int32Array, choice: Int32Array, block: Int32Array,
  a: Int32Array, b: Int32Array, c: Int32Array,
};
const MAX_INT = 2 ** 31 - 1;
const FIELDS = TYPES.map((name) => NUMBERS[name] ?? []);

export class Trace {
  /**
   * @param {object} header the file's first line
   * @param {{seq: number, blocks: object[], requests: object[]}|null} snapshot what the engine held before event 0
   */
  constructor(header, snapshot) {
    this.header = header;
    this.snapshot = snapshot;
    this.firstSeq = snapshot ? snapshot.seq + 1 : 1;
    this.requestIds = [];
    this.choices = []; // {request, index}
    this.isTruncated = false;
    this.numUnknown = 0;
    this._columns = Object.fromEntries(Object.entries(COLUMNS).map(([name, kind]) => [name, new Growing(kind)]));
    this._details = []; // of events that came as objects; those of a file are in `_lines`
    this._lines = null; // {bytes, starts}
    this._requests = new Map();
    this._choices = new Map();
    this._adoptViews();
    for (const request of snapshot?.requests ?? []) {
      this._requestOf(request.request_id);
      for (const choice of request.choices) this.choiceOf(request.request_id, choice.index);
    }
  }

  get length() {
    return this._columns.type.length;
  }

  seqOf(i) {
    return this.firstSeq + i;
  }

  /** Index of the event with this seq, held within the trace. */
  indexOfSeq(seq) {
    return Math.min(Math.max(0, seq - this.firstSeq), this.length - 1);
  }

  /** Index of the last event at or before time `t`; -1 if there is none. */
  lastAt(t) {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.t[middle] <= t) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  typeName(i) {
    return TYPES[this.type[i]] ?? this.detail(i).type;
  }

  /** The whole event as an object. */
  detail(i) {
    const numLines = this._lines ? this._lines.starts.length - 1 : 0;
    if (i >= numLines) return this._details[i - numLines];
    const { bytes, starts } = this._lines;
    return JSON.parse(new TextDecoder().decode(bytes.subarray(starts[i], starts[i + 1])));
  }

  requestId(request) {
    return this.requestIds[request] ?? "";
  }

  /** Number of a request that the trace names, -1 for any other. */
  findRequest(requestId) {
    return this._requests.get(requestId) ?? -1;
  }

  choiceName(choice) {
    if (choice < 0) return "";
    const { request, index } = this.choices[choice];
    return index ? `${this.requestIds[request]} #${index}` : this.requestIds[request];
  }

  /** Number of a choice, a new one if it was never named. */
  choiceOf(requestId, index) {
    const request = this._requestOf(requestId);
    const key = request * (MAX_INDEX + 1) + index;
    let choice = this._choices.get(key);
    if (choice === undefined) {
      choice = this.choices.length;
      this._choices.set(key, choice);
      this.choices.push({ request, index });
    }
    return choice;
  }

  /**
   * Append the next event; it is checked first, and nothing is changed when it is refused.
   * @param {object} event as it stands in the file or in the live feed
   * @param {boolean} isKept whether to hold on to the object; false when its line is kept
   * @throws {TraceError}
   */
  append(event, isKept = true) {
    const code = this._check(event);
    const numbers = code === TYPE.unknown ? [] : FIELDS[code];
    const values = [0, 0, 0];
    for (let k = 0; k < numbers.length; k++) values[k] = integer(event, numbers[k], numbers[k].startsWith("parent") ? -1 : 0);
    if (code === TYPE.engine_failed) values[0] = event.lost === true ? 1 : 0;
    if (code === TYPE.block_copied) this._checkBlock(event, "source");
    let block = -1;
    if (NAMES_BLOCK[code]) block = this._checkBlock(event, "block_id");
    if (code === TYPE.block_published && values[0] >= this.header.num_blocks) this._checkBlock(event, "parent_block_id");
    let request = -1;
    let choice = -1;
    if (NAMES_REQUEST[code]) {
      const index = integer(event, "index", 0, MAX_INDEX);
      if (typeof event.request_id !== "string") throw new TraceError(`event \`${event.type}\`: \`request_id\` must be a string`);
      request = this._requestOf(event.request_id);
      choice = this.choiceOf(event.request_id, index);
    }
    const columns = this._columns;
    columns.type.push(code);
    columns.t.push(event.t);
    columns.step.push(event.step);
    columns.request.push(request);
    columns.choice.push(choice);
    columns.block.push(block);
    columns.a.push(values[0]);
    columns.b.push(values[1]);
    columns.c.push(values[2]);
    if (code === TYPE.unknown) this.numUnknown++;
    if (isKept) this._details.push(event);
    if (this.type !== columns.type.values) this._adoptViews();
  }

  /** What `fromParts` makes the same trace of, in another thread; the buffers can be transferred. */
  parts(bytes, starts) {
    const columns = Object.fromEntries(Object.entries(this._columns).map(([name, column]) => [name, column.trimmed()]));
    const { header, snapshot, requestIds, choices, isTruncated, numUnknown } = this;
    return { header, snapshot, requestIds, choices, isTruncated, numUnknown, columns, bytes, starts };
  }

  static fromParts(parts) {
    const trace = new Trace(parts.header, parts.snapshot);
    parts.requestIds.forEach((requestId) => trace._requestOf(requestId));
    parts.choices.forEach(({ request, index }) => trace.choiceOf(parts.requestIds[request], index));
    for (const [name, values] of Object.entries(parts.columns)) trace._columns[name] = Growing.of(values);
    trace._lines = { bytes: parts.bytes, starts: parts.starts };
    trace.isTruncated = parts.isTruncated;
    trace.numUnknown = parts.numUnknown;
    if (!trace.snapshot && trace.length) trace.firstSeq = parts.firstSeq ?? trace.detail(0).seq;
    trace._adoptViews();
    return trace;
  }

  _adoptViews() {
    for (const name of Object.keys(COLUMNS)) this[name] = this._columns[name].values;
  }

  _requestOf(requestId) {
    let request = this._requests.get(requestId);
    if (request === undefined) {
      request = this.requestIds.length;
      this._requests.set(requestId, request);
      this.requestIds.push(requestId);
    }
    return request;
  }

  /** The code of the event's type, after checking what every event has. */
  _check(event) {
    if (typeof event !== "object" || event === null || typeof event.type !== "string") throw new TraceError("not an event: no `type`");
    const { type, seq, t } = event;
    const step = integer(event, "step", 0);
    const n = this.length;
    if (!Number.isSafeInteger(seq) || seq < 1) throw new TraceError(`event \`${type}\`: \`seq\` must be a positive integer`);
    if (typeof t !== "number" || !Number.isFinite(t)) throw new TraceError(`event \`${type}\`: \`t\` must be a number`);
    if (n === 0 && !this.snapshot) this.firstSeq = seq;
    if (seq !== this.firstSeq + n) throw new TraceError(`\`seq\` must be gapless: ${seq} where ${this.firstSeq + n} was due`);
    if (n && t < this.t[n - 1]) throw new TraceError(`time runs backwards at seq ${seq}`);
    if (n && step < this.step[n - 1]) throw new TraceError(`steps run backwards at seq ${seq}`);
    return Object.hasOwn(TYPE, type) ? TYPE[type] : TYPE.unknown;
  }

  _checkBlock(event, name) {
    return integer(event, name, 0, this.header.num_blocks - 1);
  }
}

function integer(event, name, least, most = MAX_INT) {
  const value = event[name] ?? DEFAULTS[name];
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new TraceError(`event \`${event.type}\`: \`${name}\` must be an integer in ${least}..${most}`);
  }
  return value;
}
