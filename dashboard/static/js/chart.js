/** A time chart on a canvas: lines or stacked areas over one shared time axis and cursor. */

import { ChartRows, meanAt } from "./chart_rows.js";
import { ChartTable } from "./chart_table.js";
import { el, setText } from "./dom.js";
import { dragRange } from "./drag_range.js";
import { clock } from "./format.js";
import { timeTicks, valueTicks } from "./scale.js";
import { cleared } from "./sharp_canvas.js";

const MARGIN = { top: 8, right: 10, bottom: 22, left: 54 };
const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";

/**
 * @typedef {object} Series
 * @property {string} key column name
 * @property {string} label
 * @property {string} color name of a CSS custom property
 * @property {boolean} [dashed] told apart without colour
 * @property {boolean} [filled] a faint area below the line
 */

export class Chart {
  /**
   * @param {HTMLElement} figure holds the heading and the sentence; legend and canvas are added to it
   * @param {object} options
   * @param {Series[]} options.series drawn in order; stacked from the bottom
   * @param {boolean} [options.stacked]
   * @param {boolean} [options.full] the highest sum is the top of the axis, because it means "all of it"
   * @param {number} [options.smooth] draw and tell the mean of so many rows up to each one
   * @param {(value: number) => string} options.format for the legend
   * @param {(value: number) => string} [options.axisFormat] for the axis
   * @param {import("./columns.js").Columns} options.columns
   * @param {import("./cursor.js").Cursor} options.cursor shared by all charts
   */
  constructor(figure, { series, stacked = false, full = false, smooth = 1, format, axisFormat = format, columns, cursor }) {
    this._series = series;
    this._stacked = stacked;
    this._full = full;
    this._smooth = smooth;
    this._format = format;
    this._axisFormat = axisFormat;
    this._columns = columns;
    this._cursor = cursor;
    this._view = { start: 0, end: 0 };
    this._values = new Map();
    this._name = figure.querySelector("h3").textContent;

    this._canvas = el("canvas", { role: "img", tabindex: "0", "aria-label": this._name });
    figure.append(this._legend(), el("div", { class: "plot" }, this._canvas));
    this._context = this._canvas.getContext("2d");
    this._table = new ChartTable(figure, { series, columns, format });
    this._listen();
  }

  /**
   * Paint the picture. It changes no element, so that charts drawn one after another cost one layout.
   *
   * @param {{start: number, end: number}} view epoch seconds
   */
  draw(view) {
    this._view = view;
    this._paint();
  }

  /** Say what was drawn: the legend's numbers, the canvas's label, the table. */
  tell() {
    this._readOut();
    this._table.draw(this._view);
  }

  _legend() {
    const items = this._series.map(({ key, label, color, dashed }) => {
      const value = el("span", { class: "value" }, "–");
      this._values.set(key, value);
      const swatch = el("span", { class: dashed ? "swatch dashed" : "swatch" });
      swatch.style.setProperty("--swatch", `var(${color})`);
      return el("li", {}, swatch, el("span", { class: "label" }, label), value);
    });
    this._time = el("li", { class: "at" }, "");
    return el("ul", { class: "legend" }, ...items, this._time);
  }

  _listen() {
    new ResizeObserver(() => this._paint()).observe(this._canvas);
    this._cursor.addEventListener("change", () => {
      this._paint();
      this._readOut();
    });
    this._canvas.addEventListener("pointermove", (event) => this._cursor.set(this._timeAt(event.offsetX)));
    this._canvas.addEventListener("pointerleave", () => this._cursor.set(null));
    dragRange(this._canvas, this._cursor, (x) => this._momentAt(x));
    this._canvas.addEventListener("blur", () => this._cursor.set(null));
    this._canvas.addEventListener("keydown", (event) => this._key(event));
  }

  _key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    const columns = this._columns;
    if (event.key === "Escape") this._cursor.set(null);
    else if (event.key in steps && columns.length) {
      const from = this._cursor.time ?? this._view.end;
      const next = Math.min(columns.length - 1, Math.max(0, columns.nearest(from) + steps[event.key]));
      this._cursor.set(Math.max(this._view.start, columns.at("t", next)));
    } else return;
    event.preventDefault();
  }

  /** The moment under a pixel, within the view. */
  _momentAt(x) {
    const { start, end } = this._view;
    const share = (x - MARGIN.left) / Math.max(1, this._width() - MARGIN.left - MARGIN.right);
    return start + Math.min(1, Math.max(0, share)) * (end - start);
  }

  _timeAt(x) {
    const row = this._columns.nearest(this._momentAt(x));
    return row < 0 ? null : this._columns.at("t", row);
  }

  _width() {
    return this._canvas.clientWidth;
  }

  _paint() {
    const context = this._context;
    const size = cleared(this._canvas, context);
    if (!size) return;
    const { width, height } = size;

    const style = getComputedStyle(this._canvas);
    const colors = new Map(this._series.map(({ color }) => [color, style.getPropertyValue(color).trim()]));
    const { start, end } = this._view;
    const rows = new ChartRows(this._columns, this._series.map(({ key }) => key), this._view, this._smooth);
    const max = rows.max(this._stacked);
    const ticks = valueTicks(max).filter((tick) => !this._full || tick <= max);
    const top = (this._full ? max : ticks[ticks.length - 1]) || 1;
    const x = (t) => MARGIN.left + ((t - start) / Math.max(1e-9, end - start)) * (width - MARGIN.left - MARGIN.right);
    const y = (value) => height - MARGIN.bottom - (value / top) * (height - MARGIN.top - MARGIN.bottom);

    if (max === 0) this._paintEmpty(context, style, width, height);
    this._paintAxes(context, style, { x, y, ticks, width, height });
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, 0, width - MARGIN.left - MARGIN.right + 1, y(0) + (this._stacked ? 0 : 1));
    context.clip();
    if (this._stacked) this._paintAreas(context, colors, rows, x, y);
    else this._paintLines(context, colors, rows, x, y);
    context.restore();
    this._paintRange(context, style, x, height);
    this._paintCursor(context, style, colors, x, y, height);
  }

  _paintAxes(context, style, { x, y, ticks, width, height }) {
    const { start, end } = this._view;
    context.font = FONT;
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    ticks.forEach((tick, i) => {
      const at = Math.round(y(tick)) + 0.5;
      context.strokeStyle = style.getPropertyValue(i === 0 ? "--axis" : "--grid");
      line(context, MARGIN.left, at, width - MARGIN.right, at);
      context.fillStyle = style.getPropertyValue("--faint");
      context.fillText(this._axisFormat(tick), MARGIN.left - 8, at);
    });
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    for (const t of timeTicks(start, end, Math.max(2, (width - MARGIN.left) / 90))) {
      const at = x(t);
      if (at < MARGIN.left + 22 || at > width - MARGIN.right - 22) continue;
      context.fillText(clock(t), at, height - 6);
    }
  }

  _paintEmpty(context, style, width, height) {
    context.font = FONT;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = style.getPropertyValue("--faint");
    context.fillText("nothing in this range", (MARGIN.left + width - MARGIN.right) / 2, (height - MARGIN.bottom) / 2);
  }

  _paintLines(context, colors, rows, x, y) {
    const at = rows.times.map(x);
    this._series.forEach(({ color, dashed, filled }, s) => {
      const values = rows.values[s];
      context.strokeStyle = colors.get(color);
      context.fillStyle = colors.get(color);
      context.lineWidth = 1.75;
      context.lineJoin = "bevel";
      context.setLineDash(dashed ? [5, 4] : []);
      for (const [first, last] of rows.runs(values)) {
        context.beginPath();
        for (let i = first; i < last; i++) context.lineTo(at[i], y(values[i]));
        if (last - first === 1) context.arc(at[first], y(values[first]), 0.9, 0, 7);
        context.stroke();
        if (!filled) continue;
        context.lineTo(at[last - 1], y(0));
        context.lineTo(at[first], y(0));
        context.globalAlpha = 0.12;
        context.fill();
        context.globalAlpha = 1;
      }
    });
  }

  _paintAreas(context, colors, rows, x, y) {
    const at = rows.times.map(x);
    const runs = rows.runs(rows.times).filter(([first, last]) => last - first > 1);
    let below = new Float64Array(at.length).fill(y(0));
    context.globalAlpha = 0.8;
    rows.stacks().forEach((sums, s) => {
      const above = sums.map(y);
      context.fillStyle = colors.get(this._series[s].color);
      for (const [first, last] of runs) {
        context.beginPath();
        for (let i = first; i < last; i++) context.lineTo(at[i], above[i]);
        for (let i = last - 1; i >= first; i--) context.lineTo(at[i], below[i]);
        context.fill();
      }
      below = above;
    });
  }

  _paintRange(context, style, x, height) {
    const range = this._cursor.range;
    if (!range) return;
    context.fillStyle = style.getPropertyValue("--focus");
    context.globalAlpha = 0.14;
    context.fillRect(x(range.start), MARGIN.top, x(range.end) - x(range.start), height - MARGIN.top - MARGIN.bottom);
    context.globalAlpha = 1;
  }

  _paintCursor(context, style, colors, x, y, height) {
    const time = this._cursor.time;
    if (time === null || time < this._view.start || time > this._view.end) return;
    const at = Math.round(x(time)) + 0.5;
    context.strokeStyle = style.getPropertyValue("--cursor");
    context.lineWidth = 1;
    line(context, at, MARGIN.top, at, height - MARGIN.bottom);
    if (this._stacked) return;
    const row = this._columns.nearest(time);
    for (const { key, color } of this._series) {
      const value = meanAt(this._columns, key, row, this._smooth);
      if (Number.isNaN(value)) continue;
      context.beginPath();
      context.arc(at - 0.5, y(value), 3.25, 0, 7);
      context.fillStyle = colors.get(color);
      context.fill();
    }
  }

  /** The numbers at the cursor, or the newest ones, in the legend and in the canvas's label. */
  _readOut() {
    const columns = this._columns;
    const time = this._cursor.time;
    const row = columns.length ? columns.nearest(time ?? this._view.end) : -1;
    const said = [];
    for (const { key, label } of this._series) {
      const text = row < 0 ? "–" : this._format(meanAt(columns, key, row, this._smooth));
      setText(this._values.get(key), text);
      said.push(`${label} ${text}`);
    }
    const at = row < 0 ? "" : clock(columns.at("t", row));
    setText(this._time, time === null ? "" : at);
    this._canvas.setAttribute("aria-label", row < 0 ? `${this._name}: no data yet` : `${this._name} at ${at}: ${said.join(", ")}`);
  }
}

function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}
