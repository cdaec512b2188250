/** The whole trace in a strip: pool by state, where preemptions and evictions are, what is in view. Also a slider. */

import { el } from "../dom.js";
import { placeOn, Surface } from "./surface.js";

const MARKS = 9; // rows of pixels at the bottom for preemptions and evictions

export class Overview {
  constructor(root, palette) {
    this._palette = palette;
    this._session = null;
    this._columns = null; // one sample of the pool per pixel, made anew when the trace, width or axis changes
    this.canvas = el("canvas", {
      role: "slider", tabindex: "0", "aria-label": "Place in the trace", "aria-valuemin": "1", "aria-valuemax": "1", "aria-valuenow": "1",
    });
    root.append(this.canvas);
    this.surface = new Surface(this.canvas, (context, size) => this._paint(context, size));
    palette.addEventListener("change", () => this.surface.due());
    this._listen();
  }

  show(session) {
    this._session = session;
    this._columns = null;
    for (const name of ["cursor", "view", "grown"]) {
      session.addEventListener(name, () => {
        if (this._session !== session) return;
        if (name === "grown") this._columns = null;
        this.surface.due();
      });
    }
    this.surface.due();
  }

  _span() {
    const { start, end } = this._session.whole();
    return { start, length: end - start };
  }

  _x(place, width) {
    const { start, length } = this._span();
    return ((place - start) / length) * width;
  }

  _paint(context, { width, height }) {
    const session = this._session;
    if (!session?.trace.length) return;
    const palette = this._palette;
    const columns = this._sampled(Math.floor(width));
    const floor = height - MARKS;
    for (let x = 0; x < columns.num; x++) {
      const referenced = columns.referenced[x] * floor;
      const cached = columns.cached[x] * floor;
      context.fillStyle = palette.get("--kv-referenced");
      context.fillRect(x, floor - referenced, 1, referenced);
      context.fillStyle = palette.get("--kv-cached");
      context.fillRect(x, floor - referenced - cached, 1, cached);
    }
    for (const [name, color, y] of [["eviction", "--replay-evicted", floor + 1], ["preemption", "--replay-preempted", floor + 5]]) {
      context.fillStyle = palette.get(color);
      for (const x of columns[name]) context.fillRect(x, y, 2, 3);
    }
    const from = this._x(session.view.start, width);
    const to = this._x(session.view.end, width);
    if (to - from < width - 3) {
      context.fillStyle = palette.get("--replay-outside");
      context.fillRect(0, 0, Math.max(0, from), height);
      context.fillRect(to, 0, width - to, height);
      context.strokeStyle = palette.get("--axis");
      context.lineWidth = 1;
      context.strokeRect(Math.round(from) + 0.5, 0.5, Math.max(2, Math.round(to - from) - 1), height - 1);
    }
    context.fillStyle = palette.get("--accent");
    context.fillRect(Math.round(this._x(session.axis.at(session.cursor), width)) - 1, 0, 2, height);
    this._describe();
  }

  /** Shares of the pool at each pixel, by the steps' own counts. */
  _sampled(width) {
    const { trace, axis, lanes } = this._session;
    if (this._columns?.num === width && this._columns.axis === axis) return this._columns;
    const total = trace.header.num_blocks;
    const columns = { num: width, axis, referenced: new Float32Array(width), cached: new Float32Array(width), preemption: [], eviction: [] };
    let x = 0;
    let last = [0, 0];
    for (const i of lanes.stepEnds.values.subarray(0, lanes.stepEnds.length)) {
      const at = Math.min(width - 1, Math.floor(this._x(axis.at(i), width)));
      for (; x < at; x++) [columns.referenced[x], columns.cached[x]] = last;
      last = [trace.b[i] / total, trace.c[i] / total];
    }
    for (; x < width; x++) [columns.referenced[x], columns.cached[x]] = last;
    for (const name of ["preemption", "eviction"]) {
      const seen = new Set();
      const jumps = lanes.jumps[name];
      for (const i of jumps.values.subarray(0, jumps.length)) seen.add(Math.floor(this._x(axis.at(i), width)));
      columns[name] = [...seen];
    }
    this._columns = columns;
    return columns;
  }

  _describe() {
    const { trace, cursor } = this._session;
    const values = {
      "aria-valuemin": trace.firstSeq, "aria-valuemax": trace.seqOf(trace.length - 1), "aria-valuenow": trace.seqOf(cursor),
      "aria-valuetext": `event ${trace.seqOf(cursor)}, ${trace.typeName(cursor)}, step ${trace.step[cursor]}`,
    };
    for (const [name, value] of Object.entries(values)) this.canvas.setAttribute(name, String(value));
  }

  _listen() {
    const canvas = this.canvas;
    let isDown = false;
    const scrub = (event) => {
      const { start, length } = this._span();
      this._session.seekPlace(start + (placeOn(canvas, event).x / canvas.clientWidth) * length);
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (!this._session || event.button !== 0) return;
      isDown = true;
      canvas.setPointerCapture(event.pointerId);
      scrub(event);
    });
    canvas.addEventListener("pointermove", (event) => isDown && scrub(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (isDown = false));
    canvas.addEventListener("keydown", (event) => this._key(event));
  }

  _key(event) {
    const session = this._session;
    if (!session || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.round(session.trace.length / 20));
    const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: page, PageDown: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in moves)) return;
    event.preventDefault();
    event.stopPropagation();
    session.seek(Math.min(Math.max(0, session.cursor + moves[event.key]), session.trace.length - 1));
  }
}
