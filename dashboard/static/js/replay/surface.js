/** A canvas that is as sharp as the screen, is painted at most once a frame, and only while it can be seen. */

import { cleared } from "../sharp_canvas.js";

export const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";

export class Surface {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {(context: CanvasRenderingContext2D, size: {width: number, height: number}) => void} paint CSS pixels
   * @param {HTMLElement} [scroller] an element that scrolls under the canvas: painted again when it does
   */
  constructor(canvas, paint, scroller = null) {
    this.canvas = canvas;
    this._paint = paint;
    this._context = canvas.getContext("2d", { alpha: true });
    this._isDue = false;
    new ResizeObserver(() => this.due()).observe(canvas);
    scroller?.addEventListener("scroll", () => this.due(), { passive: true });
  }

  /** Ask for a paint in the next frame. */
  due() {
    if (this._isDue) return;
    this._isDue = true;
    requestAnimationFrame(() => this.now());
  }

  /** Paint at once. */
  now() {
    this._isDue = false;
    const size = cleared(this.canvas, this._context);
    if (size) this._paint(this._context, size);
  }
}

/** Where a pointer is on a canvas, in CSS pixels. */
export function placeOn(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

/** Text cut to a width, with an ellipsis. */
export function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : "";
}
