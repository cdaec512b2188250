/** The point in time, and the range being dragged, that all charts show together; null when there is none. */
export class Cursor extends EventTarget {
  constructor() {
    super();
    this.time = null;
    this.range = null;
  }

  /** @param {number|null} time epoch seconds */
  set(time) {
    if (time === this.time) return;
    this.time = time;
    this.dispatchEvent(new Event("change"));
  }

  /** @param {{start: number, end: number}|null} range being chosen */
  drag(range) {
    this.range = range;
    this.dispatchEvent(new Event("change"));
  }

  /** A range was chosen. Event: `range`, with it as the detail. */
  choose(range) {
    this.drag(null);
    this.dispatchEvent(new CustomEvent("range", { detail: range }));
  }
}
