/** The numbers on top of the Live tab. */

import { setText } from "../dom.js";
import { count, duration, MISSING, number, percent } from "../format.js";

const WAITS_FOR = {
  kv_blocks: "for KV blocks",
  token_budget: "for token budget",
  max_num_seqs: "for a sequence slot",
  shared_prefix: "for a shared prefix that another request computes",
  next_step: "for the next step",
};

const milliseconds = (seconds) => (seconds === null ? null : seconds * 1000);

/** @param {object} stats body of GET /stats */
export function tileTexts(stats) {
  const { recent, window, gauges, counters } = stats;
  const fields = {
    output: number(recent.decode_tokens_per_s),
    outputNote: `${count(counters.generated_tokens)} in all`,
    prefill: number(recent.prefill_tokens_per_s),
    prefillNote: `${count(counters.prompt_tokens_computed + counters.prompt_tokens_recomputed)} in all`,
    running: number(gauges.running),
    runningNote: `of ${number(stats.engine.max_num_seqs)} slots`,
    waiting: number(gauges.waiting),
    waitingNote: waitingNote(gauges),
    hit: percent(window.prefix_hit_ratio),
    hitUnit: window.prefix_hit_ratio === null ? "" : "%",
    hitNote: window.prefix_hit_ratio === null ? "none in 60 s" : `${count(counters.prefix_hit_tokens)} tokens`,
    preemptions: number(window.preemptions),
    preemptionsNote: window.preemptions
      ? `${number(window.recomputed_tokens)} tokens redone`
      : `${count(counters.preemptions)} in all`,
  };
  for (const name of ["ttft", "itl"]) {
    for (const q of ["p50", "p99"]) {
      const { value, unit } = duration(milliseconds(window[name][`${q}_s`]));
      fields[`${name}-${q}`] = value;
      fields[`${name}-${q}-unit`] = unit;
    }
    fields[`${name}Note`] = sampleNote(window[name].n, name === "ttft" ? "requests" : "gaps");
  }
  return fields;
}

function waitingNote({ waiting, blocked_on: reason, oldest_waiting_s: oldest }) {
  if (!waiting) return "nothing waits";
  const { value, unit } = duration(oldest * 1000);
  return `${WAITS_FOR[reason] ?? reason} · oldest ${value} ${unit}`;
}

function sampleNote(n, what) {
  if (n === 0) return `no ${what} in 60 s`;
  return `${count(n)} ${what} in 60 s${n < 100 ? ", p99 needs 100" : ""}`;
}

/** Draws the texts and the bar of KV blocks. */
export class Tiles {
  constructor(root) {
    this._fields = new Map([...root.querySelectorAll("[data-field]")].map((node) => [node.dataset.field, node]));
    this._waiting = root.querySelector("[data-tile=waiting]");
    this._preemptions = root.querySelector("[data-tile=preemptions]");
    this._bars = [...root.querySelectorAll("[data-blocks]")];
  }

  show(stats) {
    for (const [field, text] of Object.entries(tileTexts(stats))) setText(this._fields.get(field), text);
    this._waiting.classList.toggle("attention", stats.gauges.waiting > 0);
    this._preemptions.classList.toggle("attention", stats.window.preemptions > 0);
    this._showBlocks(stats.gauges.kv);
  }

  _showBlocks(kv) {
    for (const bar of this._bars) {
      const share = kv.total ? kv[bar.dataset.blocks] / kv.total : 0;
      bar.style.flexGrow = String(share);
      bar.hidden = share === 0;
    }
    for (const state of ["referenced", "cached", "free"]) {
      const share = kv.total ? ` (${percent(kv[state] / kv.total)} %)` : "";
      setText(this._fields.get(`kv-${state}`), kv.total ? count(kv[state]) + share : MISSING);
    }
    setText(this._fields.get("kv-total"), kv.total ? `${count(kv.total)} blocks` : "no pool");
  }
}
