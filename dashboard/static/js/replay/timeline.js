/** The lanes: a row per sequence over the time axis, drawn for the part that is in view. */

import { el } from "../dom.js";
import { TYPE } from "./events.js";
import { KIND } from "./lanes.js";
import { fitted, FONT, placeOn, Surface } from "./surface.js";
import { axisTicks } from "./ticks.js";

const ROW = 20;
const TOP = 22; // the axis
const CLICK_PX = 4;
const TICK_GAP_PX = 5; // tokens closer than this are not told apart

export const COLOR_OF_KIND = ["--replay-queue", "--prefill", "--decode", "--replay-preempted"];

export class Timeline {
  /**
   * @param {HTMLElement} root an empty element
   * @param {import("./palette.js").Palette} palette
   * @param {string} label of the canvas
   */
  constructor(root, palette, label) {
    this._palette = palette;
    this._label = label;
    this._session = null;
    this._rows = [];
    this.canvas = el("canvas", { role: "img", tabindex: "0", "aria-label": label });
    this._spacer = el("div", { class: "spacer" });
    this._scroller = el("div", { class: "scroller" }, this.canvas, this._spacer);
    root.append(this._scroller);
    this.surface = new Surface(this.canvas, (context, size) => this._paint(context, size), this._scroller);
    palette.addEventListener("change", () => this.surface.due());
    this._listen();
  }

  show(session) {
    this._session = session;
    for (const name of ["cursor", "view", "grown"]) session.addEventListener(name, () => this._session === session && this.surface.due());
    this.surface.due();
  }

  /** Bring the lane of a sequence into sight. */
  reveal(choice) {
    this._findRows();
    const row = this._rows.findIndex((lane) => lane.choice === choice);
    if (row < 0) return;
    const { scrollTop, clientHeight } = this._scroller;
    const y = row * ROW;
    if (y < scrollTop || y + ROW > scrollTop + clientHeight - TOP) this._scroller.scrollTop = Math.max(0, y - (clientHeight - TOP) / 2);
  }

  get _gutter() {
    return this.canvas.clientWidth < 560 ? 74 : 138;
  }

  _x(place) {
    const { start, end } = this._session.view;
    return this._gutter + ((place - start) / (end - start)) * (this.canvas.clientWidth - this._gutter);
  }

  _place(x) {
    const { start, end } = this._session.view;
    return start + ((x - this._gutter) / Math.max(1, this.canvas.clientWidth - this._gutter)) * (end - start);
  }

  /** Only sequences that are alive in the part in view have a row. */
  _findRows() {
    const { lanes, axis, view, trace } = this._session;
    const newest = trace.length - 1;
    this._rows = lanes.lanes.filter((lane) => axis.at(lane.first) <= view.end && axis.at(lane.isOver ? lane.last : newest) >= view.start);
    this._spacer.style.height = `${Math.max(0, this._rows.length * ROW + TOP - this.canvas.clientHeight)}px`;
  }

  _paint(context, { width, height }) {
    const session = this._session;
    if (!session?.trace.length) return;
    this._findRows();
    const palette = this._palette;
    context.font = FONT;
    const first = Math.floor(this._scroller.scrollTop / ROW);
    const offset = TOP - (this._scroller.scrollTop - first * ROW);
    const shown = this._rows.slice(first, first + Math.ceil(height / ROW) + 1);
    context.save();
    context.beginPath();
    context.rect(0, TOP, width, height);
    context.clip();
    shown.forEach((lane, k) => this._paintLane(context, lane, offset + k * ROW, width));
    context.restore();
    this._paintAxis(context, width, height);
    if (!this._rows.length) {
      context.fillStyle = palette.get("--muted");
      context.fillText("no sequence is alive in this part", this._gutter + 12, TOP + 24);
    }
    const at = Math.round(this._x(session.axis.at(session.cursor))) + 0.5;
    if (at >= this._gutter && at <= width) {
      context.strokeStyle = palette.get("--accent");
      context.lineWidth = 1.5;
      line(context, at, 0, at, height);
    }
    this._describe();
  }

  _paintAxis(context, width, height) {
    const { axis, view } = this._session;
    const palette = this._palette;
    const gutter = this._gutter;
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (const { at, text } of axisTicks(axis.name, view.start, view.end, (width - gutter) / 110)) {
      const x = Math.round(this._x(at)) + 0.5;
      if (x < gutter) continue;
      context.strokeStyle = palette.get("--grid");
      context.lineWidth = 1;
      line(context, x, TOP - 4, x, height);
      if (x < gutter + 20 || x > width - 24) continue;
      context.fillStyle = palette.get("--muted");
      context.fillText(text, x, TOP / 2 - 1);
    }
    context.textAlign = "left";
    context.fillStyle = palette.get("--muted");
    context.fillText(axis.name === "steps" ? "step" : "time", 8, TOP / 2 - 1);
    context.strokeStyle = palette.get("--line");
    line(context, 0, TOP - 0.5, width, TOP - 0.5);
    line(context, gutter - 0.5, 0, gutter - 0.5, height);
  }

  _paintLane(context, lane, y, width) {
    const { trace, selection } = this._session;
    const palette = this._palette;
    const gutter = this._gutter;
    const { request } = trace.choices[lane.choice];
    const isSelected = selection?.choice === lane.choice;
    if (isSelected) {
      context.fillStyle = palette.get("--replay-selected");
      context.fillRect(0, y, width, ROW);
    }
    context.save();
    context.beginPath();
    context.rect(gutter, y, width - gutter, ROW);
    context.clip();
    this._paintSlices(context, lane, y, width);
    this._paintTokens(context, lane, y, width);
    this._paintMarks(context, lane, y, width);
    context.restore();
    context.fillStyle = palette.owner(request);
    context.fillRect(8, y + 6, 8, 8);
    context.fillStyle = palette.get(isSelected ? "--text" : "--muted");
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(fitted(context, shortName(trace, lane.choice), gutter - 28), 21, y + ROW / 2 + 0.5);
  }

  _paintSlices(context, lane, y, width) {
    const { axis, trace, view } = this._session;
    const first = firstReaching(lane, axis, view.start);
    let lastX = -1;
    let lastKind = -1;
    const paint = (kind, start, end, chunk) => {
      const x1 = Math.max(this._gutter - 2, this._x(axis.at(start)));
      const x2 = Math.min(width + 2, this._x(axis.at(end)));
      if (kind === lastKind && x2 <= lastX + 0.5) return;
      lastX = x2;
      lastKind = kind;
      this._paintSlice(context, kind, x1, Math.max(x2, x1 + 1), y, chunk);
    };
    for (let k = first; k < lane.starts.length; k++) {
      if (axis.at(lane.starts.values[k]) > view.end) break;
      paint(lane.kinds.values[k], lane.starts.values[k], lane.ends.values[k], lane.chunks.values[k]);
    }
    if (lane.open >= 0 && !lane.isOver) paint(lane.open, lane.openSince, trace.length - 1, -1);
  }

  _paintSlice(context, kind, x1, x2, y, chunk) {
    const palette = this._palette;
    const color = palette.get(COLOR_OF_KIND[kind]);
    context.fillStyle = color;
    if (kind === KIND.queue) {
      context.globalAlpha = 0.9;
      context.fillRect(x1, y + ROW / 2 - 1.5, x2 - x1, 3);
    } else if (kind === KIND.preempted) {
      context.globalAlpha = 0.2;
      context.fillRect(x1, y + 4, x2 - x1, ROW - 8);
      context.globalAlpha = 1;
      context.strokeStyle = color;
      context.lineWidth = 1;
      context.setLineDash([4, 3]);
      context.strokeRect(x1 + 0.5, y + 4.5, Math.max(0, x2 - x1 - 1), ROW - 9);
      context.setLineDash([]);
    } else {
      context.globalAlpha = kind === KIND.decode ? 0.45 : 1;
      context.fillRect(x1, y + 4, Math.max(1, x2 - x1 - (kind === KIND.prefill && x2 - x1 > 4 ? 1 : 0)), ROW - 8);
    }
    context.globalAlpha = 1;
    if (kind === KIND.prefill && chunk >= 0 && x2 - x1 > 34) {
      context.fillStyle = palette.get("--on-slice");
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText(`+${this._session.trace.b[chunk]}`, (x1 + x2) / 2, y + ROW / 2 + 0.5);
    }
  }

  /** A stroke per token, where they are far enough apart to be seen. */
  _paintTokens(context, lane, y, width) {
    const { axis, view } = this._session;
    const { values, length } = lane.tokens;
    const from = lowerBound(values, length, (i) => axis.at(i) < view.start);
    const to = lowerBound(values, length, (i) => axis.at(i) <= view.end);
    if (to - from === 0) return;
    const spread = this._x(axis.at(values[to - 1])) - this._x(axis.at(values[from]));
    if (to - from > 1 && spread / (to - from) < TICK_GAP_PX) return;
    context.fillStyle = this._palette.get("--decode");
    for (let k = from; k < to; k++) context.fillRect(Math.round(this._x(axis.at(values[k]))) - 1, y + 4, 2, ROW - 8);
  }

  /** Preempted: a triangle down; resumed: one up; first token: a dot; end: a bar. */
  _paintMarks(context, lane, y, width) {
    const { axis, trace } = this._session;
    const palette = this._palette;
    let lastX = -10;
    for (const i of lane.marks.values.subarray(0, lane.marks.length)) {
      const x = this._x(axis.at(i));
      if (x < this._gutter - 6 || x > width + 6) continue;
      const code = trace.type[i];
      if (x < lastX + 2 && code !== TYPE.preempted) continue;
      lastX = x;
      if (code === TYPE.preempted) triangle(context, x, y + 2, y + 10, palette.get("--replay-preempted"));
      else if (code === TYPE.resumed) triangle(context, x, y + ROW - 2, y + ROW - 10, palette.get("--good"));
      else if (code === TYPE.first_token) {
        context.fillStyle = palette.get("--text");
        context.beginPath();
        context.arc(x, y + ROW / 2, 2.25, 0, 7);
        context.fill();
      } else {
        context.fillStyle = palette.get(code === TYPE.failed || code === TYPE.rejected || code === TYPE.aborted ? "--bad" : "--muted");
        context.fillRect(Math.round(x) - 1, y + 3, 2, ROW - 6);
      }
    }
  }

  _describe() {
    const { axis, view, trace, cursor } = this._session;
    const ticks = (x) => (axis.name === "steps" ? `step ${Math.max(0, Math.floor(x))}` : `${Math.max(0, x).toFixed(3)} s`);
    const said = `${this._label}: ${this._rows.length} sequences from ${ticks(view.start)} to ${ticks(view.end)}, cursor at event ${trace.seqOf(cursor)}, ${trace.typeName(cursor)}`;
    if (this.canvas.getAttribute("aria-label") !== said) this.canvas.setAttribute("aria-label", said);
  }

  // --- pointer ---

  _listen() {
    const canvas = this.canvas;
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (!this._session || event.button !== 0) return;
      const { x, y } = placeOn(canvas, event);
      drag = { x, view: this._session.view, isScrub: y < TOP, hasMoved: false };
      canvas.setPointerCapture(event.pointerId);
      if (drag.isScrub) this._session.seekPlace(this._place(x), { reveal: false });
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const { x } = placeOn(canvas, event);
      drag.hasMoved ||= Math.abs(x - drag.x) > CLICK_PX;
      if (drag.isScrub) this._session.seekPlace(this._place(x), { reveal: false });
      else if (drag.hasMoved) {
        const { start, end } = drag.view;
        const moved = ((x - drag.x) / Math.max(1, canvas.clientWidth - this._gutter)) * (end - start);
        this._session.show({ start: start - moved, end: end - moved });
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.hasMoved && !drag.isScrub) this._click(placeOn(canvas, event));
      drag = null;
    });
    canvas.addEventListener("pointercancel", () => (drag = null));
    this._scroller.addEventListener(
      "wheel",
      (event) => {
        if (!this._session) return;
        const sideways = event.shiftKey ? event.deltaY : event.deltaX;
        if (event.ctrlKey || event.metaKey) this._session.zoom(1.0015 ** event.deltaY, this._place(placeOn(canvas, event).x));
        else if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) this._session.pan(sideways / canvas.clientWidth);
        else return;
        event.preventDefault();
      },
      { passive: false },
    );
  }

  _click({ x, y }) {
    const lane = this._rows[Math.floor((y - TOP + this._scroller.scrollTop) / ROW)];
    const session = this._session;
    if (!lane) {
      session.select(null);
      return;
    }
    session.selection = { choice: lane.choice };
    if (x < this._gutter) session.select(session.selection);
    else session.seekPlace(this._place(x), { reveal: false });
  }
}

/** First slice that ends at or after place `x`. */
function firstReaching(lane, axis, x) {
  return lowerBound(lane.ends.values, lane.ends.length, (i) => axis.at(i) < x);
}

function lowerBound(values, length, isBefore) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isBefore(values[middle])) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Ids may be long; their beginning and end tell them apart. */
export function shortName(trace, choice) {
  const name = trace.choiceName(choice);
  return name.length > 16 ? `${name.slice(0, 8)}…${name.slice(-4)}` : name;
}

function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

function triangle(context, x, base, tip, color) {
  context.fillStyle = color;
  context.beginPath();
  context.moveTo(x - 4.5, base);
  context.lineTo(x + 4.5, base);
  context.lineTo(x, tip);
  context.fill();
}
