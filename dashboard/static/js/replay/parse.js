/**
 * Trace files from anywhere: JSON Lines in bounded pieces, every line checked, one clear message for what isn't a trace.
 *
 * Runs in a worker in the page and as it is under Node.
 */

import { Growing } from "./growing.js";
import { MAX_INDEX, Trace } from "./trace.js";
import { TraceError } from "./trace_error.js";

export const LIMITS = Object.freeze({
  bytes: 512 << 20, // of text, after unpacking
  line: 1 << 20,
  depth: 32,
  events: 1_000_000,
  blocks: 1 << 20,
});
const VERSIONS = [1, 2];
const LF = 10;

export class TraceParser {
  constructor(limits = LIMITS) {
    this._limits = limits;
    this._text = new Growing(Uint8Array, 1 << 20);
    this._starts = new Growing(Uint32Array);
    this._used = 0; // bytes that were whole lines
    this._lineNumber = 0;
    this._header = null;
    this._told = null; // the snapshot while its lines come
    this._trace = null;
    this.isCut = false; // the bytes end before their end
  }

  get numEvents() {
    return this._trace?.length ?? 0;
  }

  /** Take in the next bytes; @throws {TraceError} */
  feed(bytes) {
    if (this._text.length + bytes.length > this._limits.bytes) throw new TraceError(`the trace is larger than ${this._limits.bytes >> 20} MB, the most this page opens`);
    this._text.append(bytes);
    const { values, length } = this._text;
    const end = values.subarray(0, length).lastIndexOf(LF) + 1;
    if (end > this._used) this._lines(end);
    if (length - this._used > this._limits.line) throw this._at(new TraceError("the line is too long"), 1);
  }

  /**
   * Take in the last, unfinished line; a file that ends within an event is one whose writer was stopped.
   * @returns {Trace} without the lines; see `parts`
   */
  finish() {
    const { length } = this._text;
    if (length > this._used) {
      try {
        this._lines(length);
      } catch (error) {
        if (!(error instanceof TraceError) || !this._trace) throw error;
        this.isCut = true;
      }
    }
    if (!this._header) throw new TraceError("the file is empty");
    if (!this._told) this._trace ??= new Trace(this._header, null);
    if (!this._trace) throw this._at(new TraceError("the file ends within its snapshot"));
    this._trace.isTruncated = this.isCut;
    return this._trace;
  }

  /** The trace for another thread: `Trace.fromParts`. */
  parts() {
    const trace = this.finish();
    const starts = new Uint32Array(trace.length + 1);
    starts.set(this._starts.values.subarray(0, trace.length));
    starts[trace.length] = this._used;
    return { ...trace.parts(this._text.values, starts), firstSeq: trace.firstSeq };
  }

  _lines(end) {
    const { values } = this._text;
    let text;
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(values.subarray(this._used, end));
    } catch {
      throw this._at(new TraceError("not UTF-8 text"), 1);
    }
    for (const line of text.split("\n")) {
      if (this._used >= end) break;
      const start = this._used;
      const next = values.indexOf(LF, start) + 1;
      this._lineNumber++;
      try {
        this._line(line, start);
      } catch (error) {
        throw error instanceof TraceError ? this._at(error) : error;
      }
      this._used = next === 0 || next > end ? end : next;
    }
  }

  _line(line, start) {
    if (line.trim() === "") return;
    const value = parseLine(line, this._limits);
    if (!this._header) {
      this._header = checkedHeader(value, this._limits);
    } else if (!this._trace && this._told === null && value.type === "snapshot") {
      this._told = checkedSnapshot(value, this._limits);
      this._openIfTold();
    } else if (this._told && !this._trace) {
      tell(this._told, value, this._header);
      this._openIfTold();
    } else {
      this._trace ??= new Trace(this._header, null);
      if (this._trace.length >= this._limits.events) throw new TraceError(`the trace has more than ${this._limits.events.toLocaleString("en-US")} events, the most this page opens`);
      this._trace.append(value, false);
      this._starts.push(start);
    }
  }

  _openIfTold() {
    const { blocks, requests, num_blocks_told: numBlocks, num_requests_told: numRequests } = this._told;
    if (blocks.length === numBlocks && requests.length === numRequests) this._trace = new Trace(this._header, this._told);
  }

  _at(error, past = 0) {
    return new TraceError(`line ${this._lineNumber + past}: ${error.message}`);
  }
}

function parseLine(line, limits) {
  if (line.length > limits.line) throw new TraceError("the line is too long");
  checkDepth(line, limits.depth);
  let value;
  try {
    value = JSON.parse(line);
  } catch {
    throw new TraceError("not JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new TraceError("not a JSON object");
  return value;
}

/** Most lines have too few brackets to need the scan. */
function checkDepth(line, most) {
  if (line.split("{", most + 1).length + line.split("[", most + 1).length <= most) return;
  let depth = 0;
  let inString = false;
  for (let i = 0; i < line.length; i++) {
    const code = line.charCodeAt(i);
    if (inString) {
      if (code === 92) i++;
      else if (code === 34) inString = false;
    } else if (code === 34) inString = true;
    else if (code === 91 || code === 123) {
      if (++depth > most) throw new TraceError(`nested deeper than ${most} levels`);
    } else if (code === 93 || code === 125) depth--;
  }
}

function checkedHeader(value, limits) {
  if (value.schema !== "pellucid-trace") throw new TraceError("not a Pellucid trace: its first line must be a header with `schema` \"pellucid-trace\"");
  if (!VERSIONS.includes(value.version)) throw new TraceError(`\`version\` must be one of ${VERSIONS.join(", ")}; the file was written by another version of this program`);
  for (const name of ["block_size", "num_blocks", "max_num_seqs", "max_num_batched_tokens"]) {
    if (!Number.isInteger(value[name]) || value[name] < 1 || value[name] > 2 ** 31 - 1) throw new TraceError(`\`${name}\` must be an integer of at least 1`);
  }
  if (value.num_blocks > limits.blocks) throw new TraceError(`\`num_blocks\` must be at most ${limits.blocks.toLocaleString("en-US")}`);
  for (const name of ["wall_origin_s", "monotonic_origin_s"]) {
    if (typeof value[name] !== "number" || !Number.isFinite(value[name])) throw new TraceError(`\`${name}\` must be a number`);
  }
  for (const name of ["model", "executor", "tokenizer", "life"]) value[name] = typeof value[name] === "string" ? value[name] : "";
  if (!Number.isInteger(value.num_dropped_events)) value.num_dropped_events = 0;
  return value;
}

function checkedSnapshot(value, limits) {
  const { seq, num_blocks_told: numBlocks, num_requests_told: numRequests } = value;
  if (!Number.isSafeInteger(seq) || seq < 0) throw new TraceError("`snapshot`: `seq` must be an integer of at least 0");
  for (const n of [numBlocks, numRequests]) {
    if (!Number.isInteger(n) || n < 0 || n > limits.blocks) throw new TraceError("`snapshot`: `num_blocks_told` and `num_requests_told` must be integers of at least 0");
  }
  return { ...value, blocks: [], requests: [] };
}

const isCount = (value, most = 2 ** 31 - 1) => Number.isInteger(value) && value >= 0 && value <= most;

/** Take in one line of a snapshot: its blocks come first, then its requests. */
function tell(snapshot, value, header) {
  const wantsBlock = snapshot.blocks.length < snapshot.num_blocks_told;
  if (value.type !== (wantsBlock ? "snapshot_block" : "snapshot_request")) throw new TraceError("not the line of a snapshot that was announced");
  if (wantsBlock) {
    const isOwner = (owner) => typeof owner?.request_id === "string" && isCount(owner.index, MAX_INDEX) && isCount(owner.position);
    const isBlock = isCount(value.block_id, header.num_blocks - 1) && Array.isArray(value.owners) && value.owners.every(isOwner);
    const isParent = Number.isInteger(value.parent_block_id) && value.parent_block_id >= -1 && value.parent_block_id < header.num_blocks;
    if (!isBlock || !isParent) throw new TraceError("`snapshot_block`: `block_id`, `owners` or `parent_block_id` is wrong");
    snapshot.blocks.push(value);
    return;
  }
  const isChoice = (choice) => typeof choice === "object" && choice !== null && isCount(choice.index, MAX_INDEX) && isCount(choice.num_computed_tokens) && isCount(choice.num_output_tokens);
  const isRequest = typeof value.request_id === "string" && isCount(value.num_prompt_tokens) && Array.isArray(value.choices) && value.choices.every(isChoice);
  if (!isRequest) throw new TraceError("`snapshot_request`: `request_id`, `num_prompt_tokens` or `choices` is wrong");
  snapshot.requests.push(value);
}
