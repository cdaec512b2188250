/**
 * What the engine held after some number of events: every block, every sequence, every request.
 *
 * Blocks, sequences and requests are records that are never changed, only replaced. So a copy of the state is three
 * copies of arrays, and copies can be kept by the hundred (see docs/adr/0025-replay-state.md). The rules are those of
 * observability/engine_mirror.py.
 */

import { TYPES } from "./events.js";

/**
 * @typedef {object} Block
 * @property {number[]} holders choice, position in its table, choice, position ...
 * @property {boolean} published it is in the prefix tree, below `parent` (-1: a root), put there by request `publisher`
 * @property {number} last event that named it latest, as an index; -1 before the trace
 * @property {boolean} free
 */

const NONE = Object.freeze([]);
const FREE_BLOCK = Object.freeze({ holders: NONE, published: false, parent: -1, publisher: -1, last: -1, free: true });

export const PLACES = ["free", "referenced", "cached", "released"];

/** `free`, `referenced` (somebody holds it), `cached` (in the tree only), `released` (neither, about to be freed). */
export function placeOf(block) {
  if (block.free) return "free";
  if (block.holders.length) return "referenced";
  return block.published ? "cached" : "released";
}

const NEW_CHOICE = Object.freeze({ status: "running", prefilled: 0, output: 0, isDecoding: false, preemptions: 0, end: "" });

/** Tokens whose KV is written: what chunks computed, or all but the newest once tokens come out. */
export function computedTokens(choice, request) {
  return choice.isDecoding ? (request?.prompt ?? 0) + choice.output - 1 : choice.prefilled;
}

export class State {
  /** @param {import("./trace.js").Trace} trace */
  constructor(trace) {
    this.trace = trace;
    this.position = 0; // events taken in
    this.inStep = false;
    this.blocks = new Array(trace.header.num_blocks).fill(FREE_BLOCK);
    this.choices = [];
    this.requests = [];
    this.counts = { free: this.blocks.length, referenced: 0, cached: 0, released: 0 };
    if (trace.snapshot) this._startWith(trace.snapshot);
  }

  copy() {
    const twin = Object.create(State.prototype);
    const { trace, position, inStep, blocks, choices, requests, counts } = this;
    return Object.assign(twin, {
      trace, position, inStep, blocks: blocks.slice(), choices: choices.slice(), requests: requests.slice(), counts: { ...counts },
    });
  }

  /** How many arrays' entries a copy takes. */
  get size() {
    return this.blocks.length + this.choices.length + this.requests.length;
  }

  /** Take in the events up to and without index `position`. */
  advance(position) {
    for (let i = this.position; i < position; i++) APPLY[this.trace.type[i]]?.(this, i, this.trace);
    this.position = Math.max(this.position, position);
  }

  _startWith(snapshot) {
    const { trace } = this;
    for (const told of snapshot.blocks) {
      const holders = told.owners.flatMap(({ request_id: id, index, position }) => [trace.choiceOf(id, index), position]);
      const { published, parent_block_id: parent } = told;
      this.setBlock(told.block_id, { holders, published: published === true, parent, publisher: -1, last: -1, free: false });
    }
    for (const told of snapshot.requests) {
      const request = trace.findRequest(told.request_id);
      this.requests[request] = {
        prompt: told.num_prompt_tokens, cached: told.num_cached_tokens, matched: told.num_matched_tokens, queued: told.queued,
        scheduled: told.scheduled, arrived: -1, end: "", endedAt: -1,
      };
      for (const choice of told.choices) {
        const status = choice.finished ? "finished" : choice.running ? "running" : "preempted";
        const isDecoding = choice.num_output_tokens > 0 && choice.num_computed_tokens === told.num_prompt_tokens + choice.num_output_tokens - 1;
        this.choices[trace.choiceOf(told.request_id, choice.index)] = {
          status, prefilled: choice.num_computed_tokens, output: choice.num_output_tokens, isDecoding, preemptions: choice.num_preemptions, end: "",
        };
      }
    }
  }

  setBlock(id, block) {
    this.counts[placeOf(this.blocks[id])]--;
    this.counts[placeOf(block)]++;
    this.blocks[id] = block;
  }

  changeBlock(id, changes, last) {
    this.setBlock(id, { ...this.blocks[id], free: false, ...changes, last });
  }

  /** A choice that was never heard of is a fork, which has its parent's whole prompt. */
  choice(i) {
    const number = this.trace.choice[i];
    return this.choices[number] ?? { ...NEW_CHOICE, prefilled: this.requests[this.trace.request[i]]?.prompt ?? 0 };
  }

  changeChoice(i, changes) {
    if (this.requests[this.trace.request[i]]) this.choices[this.trace.choice[i]] = { ...this.choice(i), ...changes };
  }

  changeRequest(i, changes) {
    const request = this.trace.request[i];
    if (this.requests[request]) this.requests[request] = { ...this.requests[request], ...changes };
  }
}

function without(holders, choice) {
  const at = holders.findIndex((value, k) => k % 2 === 0 && value === choice);
  if (at < 0) return holders;
  return holders.length === 2 ? NONE : [...holders.slice(0, at), ...holders.slice(at + 2)];
}

function withdrawAll(state) {
  state.blocks.forEach((block, id) => {
    if (block.published) state.setBlock(id, { ...block, published: false, parent: -1, publisher: -1 });
  });
}

function end(state, i, trace) {
  state.changeRequest(i, { end: TYPES[trace.type[i]], endedAt: i });
}

/** By code of the event's type: what it changes. */
const RULES = {
  block_allocated(state, i, { block, choice, a }) {
    state.setBlock(block[i], { holders: [choice[i], a[i]], published: false, parent: -1, publisher: -1, last: i, free: false });
  },
  block_shared(state, i, { block, choice, a }) {
    const { holders } = state.blocks[block[i]];
    state.changeBlock(block[i], { holders: [...without(holders, choice[i]), choice[i], a[i]] }, i);
  },
  block_copied(state, i, { block }) {
    state.changeBlock(block[i], {}, i);
  },
  block_published(state, i, { block, request, a }) {
    state.changeBlock(block[i], { published: true, parent: a[i], publisher: request[i] }, i);
  },
  block_released(state, i, { block, choice }) {
    state.changeBlock(block[i], { holders: without(state.blocks[block[i]].holders, choice[i]) }, i);
  },
  block_evicted(state, i, { block }) {
    state.changeBlock(block[i], { published: false, parent: -1, publisher: -1 }, i);
  },
  block_freed(state, i, { block }) {
    state.setBlock(block[i], { ...FREE_BLOCK, last: i });
  },
  cache_cleared: withdrawAll,
  arrived(state, i, { request, a }) {
    state.requests[request[i]] = { prompt: a[i], cached: 0, matched: -1, queued: false, scheduled: false, arrived: i, end: "", endedAt: -1 };
  },
  queued(state, i) {
    state.changeRequest(i, { queued: true });
  },
  prefix_lookup(state, i, { a }) {
    state.changeRequest(i, { matched: a[i] });
  },
  scheduled(state, i, { a, request, choice }) {
    state.changeRequest(i, { scheduled: true, cached: a[i] });
    if (state.requests[request[i]]) state.choices[choice[i]] = { ...NEW_CHOICE, prefilled: a[i] };
  },
  chunk(state, i, { a, b }) {
    state.changeChoice(i, { prefilled: a[i] + b[i], isDecoding: false });
  },
  first_token(state, i) {
    state.changeChoice(i, {});
  },
  tokens(state, i, { b }) {
    state.changeChoice(i, { output: b[i], isDecoding: true });
  },
  preempted(state, i, { b }) {
    state.changeChoice(i, { status: "preempted", preemptions: b[i] });
  },
  resumed(state, i, { a }) {
    state.changeChoice(i, { status: "running", prefilled: a[i], isDecoding: false });
  },
  sequence_finished(state, i) {
    state.changeChoice(i, { status: "finished" });
  },
  rejected: end, finished: end, failed: end, aborted: end,
  step_started(state) {
    state.inStep = true;
  },
  step_finished(state) {
    state.inStep = false;
  },
  engine_failed(state, i, { a }) {
    state.inStep = false;
    if (a[i] === 0) return;
    state.blocks.fill({ ...FREE_BLOCK, last: i });
    state.counts = { free: state.blocks.length, referenced: 0, cached: 0, released: 0 };
  },
};

const APPLY = TYPES.map((name) => RULES[name]);
