/** Time to first token over time of arrival, a point a request, on a canvas. */

import { el, setText } from "../dom.js";
import { clock, durationText } from "../format.js";
import { timeTicks } from "../scale.js";
import { stateText } from "./table.js";
import { cleared } from "../sharp_canvas.js";

const MARGIN = { top: 10, right: 14, bottom: 24, left: 62 };
const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";
const NEAR_PX = 18;
const DOT_PX = 3.5;
const MIN_SPAN_S = 60;
const EDGE = 0.015; // so that the oldest point is not on the axis

/** @returns {number[]} powers of ten in seconds, from at or below `low` to at or above `high` */
export function decades(low, high) {
  const first = Math.floor(Math.log10(low));
  const last = Math.max(first + 1, Math.ceil(Math.log10(high)));
  return Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i));
}

export class Scatter {
  /** @param {{onSelect: (id: string) => void}} does */
  constructor(plot, does) {
    this._does = does;
    this._points = [];
    this._selected = "";
    this._pointed = -1;
    this._canvas = el("canvas", { role: "img", tabindex: "0", "aria-label": "Time to first token over time" });
    this._tip = el("p", { class: "tip", hidden: true });
    plot.append(this._canvas, this._tip);
    this._context = this._canvas.getContext("2d");
    new ResizeObserver(() => this._paint()).observe(this._canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this._paint());
    this._canvas.addEventListener("pointermove", (event) => this._point(this._nearest(event.offsetX, event.offsetY)));
    this._canvas.addEventListener("pointerleave", () => this._point(-1));
    this._canvas.addEventListener("blur", () => this._point(-1));
    this._canvas.addEventListener("click", (event) => {
      const at = this._nearest(event.offsetX, event.offsetY);
      if (at >= 0) this._does.onSelect(this._points[at].row.request_id);
    });
    this._canvas.addEventListener("keydown", (event) => this._key(event));
  }

  /**
   * @param {object[]} rows those without a first token yet, and in flight, are drawn hollow at their age
   * @param {number} now Unix epoch seconds
   */
  show(rows, { now, selected }) {
    this._now = now;
    this._selected = selected;
    this._points = rows
      .filter((row) => row.ttft_s !== null || row.phase !== "ended")
      .map((row) => ({ row, t: row.arrival, value: Math.max(1e-4, row.ttft_s ?? row.age_s), open: row.ttft_s === null }))
      .sort((a, b) => a.t - b.t);
    this._pointed = Math.min(this._pointed, this._points.length - 1);
    this._paint();
  }

  _key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    if (event.key in steps && this._points.length) {
      const from = this._pointed < 0 ? this._points.length : this._pointed;
      this._point(Math.min(this._points.length - 1, Math.max(0, from + steps[event.key])));
    } else if (event.key === "Enter" && this._pointed >= 0) this._does.onSelect(this._points[this._pointed].row.request_id);
    else return;
    event.preventDefault();
  }

  _point(at) {
    if (at === this._pointed) return;
    this._pointed = at;
    this._paint();
    this._canvas.style.cursor = at < 0 ? "default" : "pointer";
  }

  _nearest(x, y) {
    let best = -1;
    let least = NEAR_PX ** 2;
    this._points.forEach((point, i) => {
      const distance = (point.x - x) ** 2 + (point.y - y) ** 2;
      if (distance < least) [best, least] = [i, distance];
    });
    return best;
  }

  _paint() {
    const context = this._context;
    const size = cleared(this._canvas, context);
    if (!size) return;
    const { width, height } = size;
    const style = getComputedStyle(this._canvas);
    const color = (name) => style.getPropertyValue(name).trim();
    context.font = FONT;
    if (!this._points.length) {
      context.fillStyle = color("--faint");
      context.textAlign = "center";
      context.fillText("no request yet", width / 2, height / 2);
    } else this._paintPoints(context, color, width, height);
    this._readOut();
  }

  _paintPoints(context, color, width, height) {
    const first = Math.min(this._points[0].t, this._now - MIN_SPAN_S);
    const start = first - EDGE * (this._now - first);
    const values = this._points.map((point) => point.value);
    const ticks = decades(Math.min(...values), Math.max(...values));
    const [low, high] = [Math.log10(ticks[0]), Math.log10(ticks[ticks.length - 1])];
    const x = (t) => MARGIN.left + ((t - start) / Math.max(1e-9, this._now - start)) * (width - MARGIN.left - MARGIN.right);
    const y = (value) => height - MARGIN.bottom - ((Math.log10(value) - low) / (high - low)) * (height - MARGIN.top - MARGIN.bottom);
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    ticks.forEach((tick, i) => {
      const at = Math.round(y(tick)) + 0.5;
      context.strokeStyle = color(i === 0 ? "--axis" : "--grid");
      context.beginPath();
      context.moveTo(MARGIN.left, at);
      context.lineTo(width - MARGIN.right, at);
      context.stroke();
      context.fillStyle = color("--faint");
      context.fillText(durationText(tick * 1000), MARGIN.left - 8, at);
    });
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    for (const t of timeTicks(start, this._now, Math.max(2, width / 110))) {
      if (x(t) > MARGIN.left + 22 && x(t) < width - 34) context.fillText(clock(t), x(t), height - 7);
    }
    const colors = { decode: color("--decode"), bad: color("--bad"), open: color("--waiting"), preempted: color("--p99") };
    const plain = new Map(); // dots of one colour are filled in one go
    this._points.forEach((point, i) => {
      point.x = x(point.t);
      point.y = y(point.value);
      const { row } = point;
      const bad = ["failed", "aborted", "rejected"].includes(row.state);
      const tone = bad ? colors.bad : point.open ? colors.open : row.num_preemptions ? colors.preempted : colors.decode;
      const chosen = row.request_id === this._selected || i === this._pointed;
      if (bad || point.open || chosen) paintPoint(context, point, { tone, bad, radius: chosen ? 6 : DOT_PX, ring: chosen ? color("--text") : null });
      else if (plain.has(tone)) plain.get(tone).push(point);
      else plain.set(tone, [point]);
    });
    for (const [tone, points] of plain) paintDots(context, points, tone);
  }

  _readOut() {
    const point = this._points[this._pointed] ?? null;
    this._tip.hidden = point === null;
    const n = this._points.length;
    if (!point) {
      this._canvas.setAttribute("aria-label", `Time to first token over time, ${n} requests; arrow keys go from one to the next, Enter opens it`);
      return;
    }
    const { row } = point;
    const text = `${clock(row.arrival)} · ${point.open ? "no token for" : "TTFT"} ${durationText(point.value * 1000)} · ${stateText(row)}`;
    setText(this._tip, text);
    this._tip.style.left = `${Math.min(Math.max(point.x, 90), this._canvas.clientWidth - 110)}px`;
    this._tip.style.top = `${point.y < 48 ? point.y + 12 : point.y - 34}px`;
    this._canvas.setAttribute("aria-label", `${row.request_id}: ${text}; Enter opens it`);
  }
}

function paintDots(context, points, tone) {
  context.fillStyle = tone;
  context.globalAlpha = 0.72;
  context.beginPath();
  for (const { x, y } of points) {
    context.moveTo(x + DOT_PX, y);
    context.arc(x, y, DOT_PX, 0, 7);
  }
  context.fill();
  context.globalAlpha = 1;
}

function paintPoint(context, { x, y, open }, { tone, bad, radius, ring }) {
  context.strokeStyle = tone;
  context.fillStyle = tone;
  context.lineWidth = 1.75;
  context.beginPath();
  if (bad) {
    context.moveTo(x - radius, y - radius);
    context.lineTo(x + radius, y + radius);
    context.moveTo(x + radius, y - radius);
    context.lineTo(x - radius, y + radius);
    context.stroke();
  } else {
    context.arc(x, y, radius, 0, 7);
    context.globalAlpha = open ? 1 : 0.72;
    if (open) context.stroke();
    else context.fill();
    context.globalAlpha = 1;
  }
  if (!ring) return;
  context.strokeStyle = ring;
  context.beginPath();
  context.arc(x, y, radius + 2.5, 0, 7);
  context.stroke();
}
