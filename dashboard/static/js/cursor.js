/** The point in time that all charts show together; null when nobody points anywhere. */
export class Cursor extends EventTarget {
  constructor() {
    super();
    this.time = null;
  }

  set(time) {
    if (time === this.time) return;
    this.time = time;
    this.dispatchEvent(new Event("change"));
  }
}
