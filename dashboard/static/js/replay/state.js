/**
 * What the engine held after some number of events: every block, every sequence, every request.
 *
 * Blocks, sequences and requests are records that are never changed, only replaced. So a copy of the state is three
 * copies of arrays, and copies can be kept by the hundred (see docs/adr/0025-replay-state.md). The rules are those of
 * observability/engine_mirror.py.
 */

import { TYPES } from "./events.js";

/** Where a block is: nobody's, held by somebody, in the tree only, or neither and about to be freed. */
export const PLACES = Object.freeze(["free", "referenced", "cached", "released"]);
const [FREE, REFERENCED, CACHED, RELEASED] = PLACES.keys();

const NONE = Object.freeze([]);

/**
 * A block after some event. Never changed.
 *
 * `holders` is choice, position in its table, choice, position ...; `parent` is the block that it is published below (-1: a
 * root) and `publisher` the request that did it; `last` the index of the latest event that named it, -1 before the trace.
 */
class Block {
  constructor(place, holders, published, parent, publisher, last) {
    this.place = place;
    this.holders = holders;
    this.published = published;
    this.parent = parent;
    this.publisher = publisher;
    this.last = last;
  }

  get free() {
    return this.place === FREE;
  }
}

const placeFor = (holders, published) => (holders.length ? REFERENCED : published ? CACHED : RELEASED);
const used = (holders, published, parent, publisher, last) => new Block(placeFor(holders, published), holders, published, parent, publisher, last);
const freed = (last) => new Block(FREE, NONE, false, -1, -1, last);

/** The name of a block's place. */
export function placeOf(block) {
  return PLACES[block.place];
}

/** A sequence after some event. Never changed. */
class Choice {
  constructor(status, prefilled, output, isDecoding, preemptions) {
    this.status = status; // running, preempted, finished
    this.prefilled = prefilled;
    this.output = output;
    this.isDecoding = isDecoding;
    this.preemptions = preemptions;
  }
}

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
    this.blocks = new Array(trace.header.num_blocks).fill(freed(-1));
    this.choices = [];
    this.requests = [];
    this._counts = [this.blocks.length, 0, 0, 0]; // by place
    if (trace.snapshot) this._startWith(trace.snapshot);
  }

  copy() {
    const twin = Object.create(State.prototype);
    twin.trace = this.trace;
    twin.position = this.position;
    twin.inStep = this.inStep;
    twin.blocks = this.blocks.slice();
    twin.choices = this.choices.slice();
    twin.requests = this.requests.slice();
    twin._counts = this._counts.slice();
    return twin;
  }

  /** Blocks by the name of their place. */
  get counts() {
    return Object.fromEntries(PLACES.map((name, place) => [name, this._counts[place]]));
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
      this.setBlock(told.block_id, used(holders, published === true, parent, -1, -1));
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
        const own = new Choice(status, choice.num_computed_tokens, choice.num_output_tokens, isDecoding, choice.num_preemptions);
        this.choices[trace.choiceOf(told.request_id, choice.index)] = own;
      }
    }
  }

  setBlock(id, block) {
    this._counts[this.blocks[id].place]--;
    this._counts[block.place]++;
    this.blocks[id] = block;
  }

  /** The choice that event `i` is about, null unless its request is known; a fork has its parent's whole prompt. */
  choiceAt(i) {
    const request = this.requests[this.trace.request[i]];
    if (!request) return null;
    return this.choices[this.trace.choice[i]] ?? new Choice("running", request.prompt, 0, false, 0);
  }

  setChoice(i, choice) {
    this.choices[this.trace.choice[i]] = choice;
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
    if (block.published) state.setBlock(id, used(block.holders, false, -1, -1, block.last));
  });
}

function end(state, i, trace) {
  state.changeRequest(i, { end: TYPES[trace.type[i]], endedAt: i });
}

/** By type of the event: what it changes. */
const RULES = {
  block_allocated(state, i, { block, choice, a }) {
    state.setBlock(block[i], used([choice[i], a[i]], false, -1, -1, i));
  },
  block_shared(state, i, { block, choice, a }) {
    const { holders, published, parent, publisher } = state.blocks[block[i]];
    state.setBlock(block[i], used([...without(holders, choice[i]), choice[i], a[i]], published, parent, publisher, i));
  },
  block_copied(state, i, { block }) {
    const { holders, published, parent, publisher } = state.blocks[block[i]];
    state.setBlock(block[i], used(holders, published, parent, publisher, i));
  },
  block_published(state, i, { block, request, a }) {
    state.setBlock(block[i], used(state.blocks[block[i]].holders, true, a[i], request[i], i));
  },
  block_released(state, i, { block, choice }) {
    const { holders, published, parent, publisher } = state.blocks[block[i]];
    state.setBlock(block[i], used(without(holders, choice[i]), published, parent, publisher, i));
  },
  block_evicted(state, i, { block }) {
    state.setBlock(block[i], used(state.blocks[block[i]].holders, false, -1, -1, i));
  },
  block_freed(state, i, { block }) {
    state.setBlock(block[i], freed(i));
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
  scheduled(state, i, { a }) {
    state.changeRequest(i, { scheduled: true, cached: a[i] });
    if (state.choiceAt(i)) state.setChoice(i, new Choice("running", a[i], 0, false, 0));
  },
  chunk(state, i, { a, b }) {
    const own = state.choiceAt(i);
    if (own) state.setChoice(i, new Choice(own.status, a[i] + b[i], own.output, false, own.preemptions));
  },
  first_token(state, i) {
    const own = state.choiceAt(i);
    if (own) state.setChoice(i, own);
  },
  tokens(state, i, { b }) {
    const own = state.choiceAt(i);
    if (own) state.setChoice(i, new Choice(own.status, own.prefilled, b[i], true, own.preemptions));
  },
  preempted(state, i, { b }) {
    const own = state.choiceAt(i);
    if (own) state.setChoice(i, new Choice("preempted", own.prefilled, own.output, own.isDecoding, b[i]));
  },
  resumed(state, i, { a }) {
    const own = state.choiceAt(i);
    if (own) state.setChoice(i, new Choice("running", a[i], own.output, false, own.preemptions));
  },
  sequence_finished(state, i) {
    const own = state.choiceAt(i);
    if (own) state.setChoice(i, new Choice("finished", own.prefilled, own.output, own.isDecoding, own.preemptions));
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
    if (a[i]) state.blocks.forEach((block, id) => state.setBlock(id, freed(block.last)));
  },
};

const APPLY = TYPES.map((name) => RULES[name]);
