/** Which part of the hour the charts show: following the present, held still, or a range somebody chose. No DOM. */

import { clock } from "../format.js";

export const SPANS = [60, 300, 900, 3600];
const DEFAULT_SPAN = 300;
const MIN_RANGE_S = 5;

export class View {
  /** @param {{span?: number, heldAt?: number|null, range?: {start: number, end: number}|null}} [state] epoch seconds */
  constructor({ span = DEFAULT_SPAN, heldAt = null, range = null } = {}) {
    this.span = span;
    this.heldAt = heldAt;
    this.range = range;
  }

  /** @param {URLSearchParams} params what can't be read is taken for the default */
  static from(params) {
    const number = (name) => (params.has(name) && Number.isFinite(Number(params.get(name))) ? Number(params.get(name)) : null);
    const [start, end] = [number("from"), number("to")];
    return new View({
      span: SPANS.includes(number("range")) ? number("range") : DEFAULT_SPAN,
      heldAt: number("at"),
      range: start !== null && end !== null && end > start ? { start, end } : null,
    });
  }

  params() {
    const params = new URLSearchParams();
    if (this.span !== DEFAULT_SPAN) params.set("range", String(this.span));
    if (this.heldAt !== null) params.set("at", String(this.heldAt));
    if (this.range) {
      params.set("from", String(this.range.start));
      params.set("to", String(this.range.end));
    }
    return params;
  }

  /** @returns {"live"|"paused"|"range"} */
  get mode() {
    if (this.range) return "range";
    return this.heldAt === null ? "live" : "paused";
  }

  /** What to draw. @param {number} newest time of the newest row */
  window(newest) {
    if (this.range) return this.range;
    const end = this.heldAt ?? newest;
    return { start: end - this.span, end };
  }

  /** Hold still at the newest row, or follow again, forgetting a range. */
  toggled(newest) {
    return this.mode === "live" ? new View({ span: this.span, heldAt: newest }) : new View({ span: this.span });
  }

  spanning(span) {
    return new View({ span, heldAt: this.heldAt });
  }

  /** A range of whole seconds, never so short that nothing is in it. */
  ranged(a, b) {
    const middle = (a + b) / 2;
    const half = Math.max(Math.abs(b - a), MIN_RANGE_S) / 2;
    return new View({ span: this.span, heldAt: this.heldAt, range: { start: Math.round(middle - half), end: Math.round(middle + half) } });
  }

  /** Closer or wider around a moment. */
  zoomed(factor, around, newest) {
    const { start, end } = this.window(newest);
    const at = around ?? (start + end) / 2;
    return this.ranged(at - (at - start) * factor, at + (end - at) * factor);
  }

  /** @param {number} numNew rows that came since it was held still */
  text(numNew) {
    if (this.range) return `Range ${clock(this.range.start)} – ${clock(this.range.end)}`;
    if (this.heldAt === null) return "Live";
    return numNew ? `Paused · ${numNew} s new` : "Paused";
  }
}
