/**
 * A trace as Chrome / Perfetto JSON, in the very form of `pellucid trace perfetto` (observability/trace_perfetto.py): the
 * steps with their stages and counters in one process, a track per sequence in another. Times are microseconds since the
 * first event.
 */

const ENGINE_PID = 1;
const REQUESTS_PID = 2;
const STEP_TID = 1;
const STEP_ARGS = ["num_seqs", "num_prefill_tokens", "num_decode_tokens", "num_generated_tokens", "token_budget", "blocked_on"];
const STAGES = ["schedule", "execute", "sample", "update"];
const ENDS = ["finished", "failed", "aborted", "rejected"];
const MARKS = ["engine_started", "engine_failed", "engine_stopped", "stalled", "cache_cleared"];

/** @returns {object} what is to be written as JSON */
export function perfettoOf(trace) {
  const { model, executor, life } = trace.header;
  const writer = new Writer();
  for (let i = 0; i < trace.length; i++) writer.take(trace.detail(i), trace.choice[i], trace);
  writer.ending();
  return { displayTimeUnit: "ms", otherData: { model, executor, life }, traceEvents: writer.records(trace.length ? trace.t[0] : 0) };
}

class Track {
  constructor(tid) {
    this.tid = tid;
    this.openName = "";
    this.args = {};
    this.start = 0;
    this.freeFrom = -Infinity;
  }

  begin(name, t, args = {}) {
    Object.assign(this, { openName: name, args, start: t });
  }
}

class Writer {
  constructor() {
    this._records = [meta("process_name", ENGINE_PID, 0, "engine"), meta("process_name", REQUESTS_PID, 0, "requests"), meta("thread_name", ENGINE_PID, STEP_TID, "steps")];
    this._tracks = new Map(); // by choice
    this._numTracks = 0;
    this._step = null;
    this._chunks = [];
    this._firstTokens = [];
    this._ended = new Set();
    this._lastT = 0;
  }

  records(origin) {
    const micro = (seconds) => Math.round(seconds * 1e9) / 1e3;
    return this._records.map((record) => ({
      ...record,
      ...("ts" in record ? { ts: micro(record.ts - origin) } : {}),
      ...("dur" in record ? { dur: micro(record.dur) } : {}),
    }));
  }

  take(event, choice, trace) {
    this._lastT = event.t;
    const { type } = event;
    if (ENDS.includes(type)) this._onEnd(event, choice, trace);
    else if (MARKS.includes(type)) this._onMark(event);
    else this[`_on_${type}`]?.(event, choice, trace);
  }

  ending() {
    for (const track of this._tracks.values()) {
      track.args.unfinished = true;
      this._end(track, this._lastT);
    }
  }

  _track(choice, trace) {
    let track = this._tracks.get(choice);
    if (!track) {
      track = new Track(++this._numTracks);
      this._tracks.set(choice, track);
      const { request, index } = trace.choices[choice];
      const id = trace.requestIds[request];
      this._records.push(meta("thread_name", REQUESTS_PID, track.tid, index === 0 ? id : `${id} choice ${index}`));
    }
    return track;
  }

  _slice(track, name, start, end, args) {
    const from = Math.max(start, track.freeFrom);
    if (end <= from) return;
    track.freeFrom = end;
    this._records.push({ name, ph: "X", pid: REQUESTS_PID, tid: track.tid, ts: from, dur: end - from, args: { ...args } });
  }

  _end(track, t) {
    const name = track.openName;
    track.openName = "";
    if (name) this._slice(track, name, track.start, t, track.args);
  }

  _on_arrived(event, choice, trace) {
    const { num_prompt_tokens, max_tokens, n = 1 } = event;
    this._track(choice, trace).begin("arrived", event.arrival ?? event.t, { num_prompt_tokens, max_tokens, n });
  }

  _on_queued(event, choice, trace) {
    const track = this._track(choice, trace);
    this._end(track, event.t);
    track.begin("queue", event.t, { num_waiting: event.num_waiting });
  }

  _on_chunk(event, choice, trace) {
    this._chunks.push({ event, choice });
    const track = this._track(choice, trace);
    if (this._step) this._end(track, this._step.t);
  }

  _on_tokens(event, choice, trace) {
    if (this._tracks.get(choice)?.openName) return;
    this._track(choice, trace);
    this._firstTokens.push(choice);
  }

  _on_preempted(event, choice, trace) {
    const track = this._track(choice, trace);
    this._end(track, event.t);
    track.begin("preempted", event.t, { num_lost_tokens: event.num_lost_tokens });
  }

  _on_resumed(event, choice, trace) {
    this._end(this._track(choice, trace), this._step ? this._step.t : event.t);
  }

  _on_sequence_finished(event, choice, trace) {
    const track = this._track(choice, trace);
    Object.assign(track.args, { finish_reason: event.finish_reason, num_output_tokens: event.num_output_tokens });
    this._end(track, event.t);
  }

  _onEnd(event, choice, trace) {
    const { request } = trace.choices[choice];
    for (const [other, track] of this._tracks) {
      if (trace.choices[other].request !== request || this._ended.has(other)) continue;
      track.args.outcome = event.type;
      this._end(track, event.t);
      this._ended.add(other);
    }
    if (!this._step) this._forgetEnded();
  }

  _forgetEnded() {
    for (const choice of this._ended) this._tracks.delete(choice);
    this._ended.clear();
  }

  _on_step_started(event) {
    this._step = event;
    this._chunks = [];
    this._firstTokens = [];
  }

  _on_step_finished(event) {
    const start = this._step ? this._step.t : event.t;
    this._step = null;
    this._engineSlice(`${event.kind} step`, start, event.t, { step: event.step, ...Object.fromEntries(STEP_ARGS.map((name) => [name, event[name]])) });
    let at = start;
    for (const stage of STAGES) {
      const end = Math.min(at + Math.max(0, event[`${stage}_s`] ?? 0), event.t);
      if (end > at) this._engineSlice(stage, at, end, {});
      at = end;
    }
    const { num_referenced_blocks: referenced, num_cached_blocks: cached, num_free_blocks: free, num_running: running, num_waiting: waiting } = event;
    this._counter("KV blocks", event.t, { referenced, cached, free });
    this._counter("requests", event.t, { running, waiting });
    for (const { event: chunk, choice } of this._chunks) {
      const track = this._tracks.get(choice);
      const { start: first, num_tokens, num_recomputed = 0 } = chunk;
      if (track) this._slice(track, "prefill chunk", start, event.t, { start: first, num_tokens, num_recomputed });
    }
    this._forgetEnded();
    for (const choice of this._firstTokens) {
      const track = this._tracks.get(choice);
      if (track && !track.openName) track.begin("decode", event.t);
    }
    this._chunks = [];
    this._firstTokens = [];
  }

  _onMark({ type, seq: _seq, t, ...args }) {
    this._records.push({ name: type, ph: "i", s: "g", pid: ENGINE_PID, tid: STEP_TID, ts: t, args });
  }

  _engineSlice(name, start, end, args) {
    this._records.push({ name, ph: "X", pid: ENGINE_PID, tid: STEP_TID, ts: start, dur: Math.max(0, end - start), args });
  }

  _counter(name, t, values) {
    this._records.push({ name, ph: "C", pid: ENGINE_PID, ts: t, args: values });
  }
}

function meta(name, pid, tid, value) {
  return { name, ph: "M", pid, tid, args: { name: value } };
}
