/** The newest steps of the engine, a bar each: whose tokens were in it, and how long it took. */

import { askJson } from "../ask.js";
import { el, setText } from "../dom.js";
import { durationText } from "../format.js";
import { Poller } from "../poller.js";
import { valueTicks } from "../scale.js";
import { cleared } from "../sharp_canvas.js";

const CAPACITY = 240;
const BAR_PX = 6;
const MARGIN = { top: 8, right: 10, bottom: 10, left: 54 };
const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";

/** Keep the newest steps; a restarted engine counts from the beginning. */
export function joined(steps, newer) {
  const last = steps.at(-1);
  const first = newer[0];
  const kept = last && first && first.step <= last.step ? [] : steps;
  return [...kept, ...newer].slice(-CAPACITY);
}

/** The tokens of a step, from the bottom of its bar upwards. */
export function partsOf(step) {
  const again = Math.min(step.num_recomputed_tokens, step.num_prefill_tokens);
  return { decode: step.num_decode_tokens, prefill: step.num_prefill_tokens - again, recompute: again };
}

export class Steps {
  constructor(figure) {
    this._steps = [];
    this._pointed = -1;
    this._canvas = el("canvas", { role: "img", tabindex: "0", "aria-label": "Newest steps" });
    this._read = el("p", { class: "legend read-out" });
    figure.append(this._read, el("div", { class: "plot" }, this._canvas));
    this._context = this._canvas.getContext("2d");
    this._poller = new Poller((signal) => this._ask(signal));
    new ResizeObserver(() => this._paint()).observe(this._canvas);
    this._canvas.addEventListener("pointermove", (event) => this._point(this._at(event.offsetX)));
    this._canvas.addEventListener("pointerleave", () => this._point(-1));
    this._canvas.addEventListener("blur", () => this._point(-1));
    this._canvas.addEventListener("keydown", (event) => this._key(event));
  }

  /** @param {boolean} follows false keeps the picture as it is */
  follow(follows) {
    if (follows) this._poller.start();
    else this._poller.stop();
  }

  async _ask(signal) {
    const since = this._steps.at(-1)?.step ?? 0;
    const { steps } = await askJson(`telemetry/steps?since=${since}&limit=${CAPACITY}`, { signal });
    if (!steps.length && since) return this._askAnew(signal);
    this._take(steps);
  }

  /** Nothing newer: the engine is idle, or counts from the beginning again. */
  async _askAnew(signal) {
    const { steps } = await askJson("telemetry/steps?since=0&limit=1", { signal });
    if (steps.length && steps[0].step < this._steps.at(-1).step) this._take(steps);
  }

  _take(steps) {
    if (!steps.length) return;
    this._steps = joined(this._steps, steps);
    this._pointed = -1;
    this._paint();
  }

  _key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    if (!(event.key in moves) || !this._steps.length) return;
    event.preventDefault();
    const from = this._pointed < 0 ? this._steps.length : this._pointed;
    this._point(Math.min(this._steps.length - 1, Math.max(0, from + moves[event.key])));
  }

  _point(at) {
    if (at === this._pointed) return;
    this._pointed = at;
    this._paint();
  }

  _at(x) {
    const right = this._canvas.clientWidth - MARGIN.right;
    const fromRight = Math.floor((right - x) / BAR_PX);
    const at = this._steps.length - 1 - fromRight;
    return fromRight >= 0 && at >= 0 && x >= MARGIN.left ? at : -1;
  }

  _paint() {
    const context = this._context;
    const size = cleared(this._canvas, context);
    if (!size) return;
    const { width, height } = size;
    const style = getComputedStyle(this._canvas);
    const color = (name) => style.getPropertyValue(name).trim();
    const room = Math.floor((width - MARGIN.left - MARGIN.right) / BAR_PX);
    const first = Math.max(0, this._steps.length - room);
    const shown = this._steps.slice(first);
    const totals = shown.map((step) => step.num_prefill_tokens + step.num_decode_tokens);
    const ticks = valueTicks(Math.max(0, ...totals));
    const top = ticks.at(-1) || 1;
    const y = (value) => height - MARGIN.bottom - (value / top) * (height - MARGIN.top - MARGIN.bottom);
    paintScale(context, color, { ticks, y, width });
    const tones = { decode: color("--decode"), prefill: color("--prefill"), recompute: color("--p99") };
    shown.forEach((step, i) => {
      const x = width - MARGIN.right - (shown.length - i) * BAR_PX;
      let below = 0;
      context.globalAlpha = this._pointed < 0 || this._pointed === first + i ? 1 : 0.45;
      for (const [part, tokens] of Object.entries(partsOf(step))) {
        context.fillStyle = tones[part];
        context.fillRect(x, y(below + tokens), BAR_PX - 1, y(below) - y(below + tokens));
        below += tokens;
      }
    });
    context.globalAlpha = 1;
    this._readOut();
  }

  _readOut() {
    const step = this._steps[this._pointed] ?? this._steps.at(-1);
    const text = step ? stepText(step) : "No step yet.";
    setText(this._read, text);
    this._canvas.setAttribute("aria-label", `Newest steps; ${text}`);
  }
}

function paintScale(context, color, { ticks, y, width }) {
  context.font = FONT;
  context.lineWidth = 1;
  context.textAlign = "right";
  context.textBaseline = "middle";
  ticks.forEach((tick, i) => {
    const at = Math.round(y(tick)) + 0.5;
    context.strokeStyle = color(i === 0 ? "--axis" : "--grid");
    context.beginPath();
    context.moveTo(MARGIN.left, at);
    context.lineTo(width - MARGIN.right, at);
    context.stroke();
    context.fillStyle = color("--faint");
    context.fillText(String(tick), MARGIN.left - 8, at);
  });
}

function stepText(step) {
  const { decode, prefill, recompute } = partsOf(step);
  const ms = (seconds) => durationText(seconds * 1000);
  const parts = [`${decode} decode`, `${prefill} prefill`, ...(recompute ? [`${recompute} again`] : [])];
  return `Step ${step.step}: ${parts.join(" + ")} of ${step.token_budget} tokens, ${step.num_seqs} sequences, ${ms(step.t - step.started)} (execute ${ms(step.execute_s)})`;
}
