/** Playing: moves the cursor with time, or with steps, at a speed. */

const STEPS_PER_SECOND = 10; // at speed 1 on the axis of steps
const CALM_MS = 250; // with reduced motion the cursor moves four times a second instead of smoothly

export class Player extends EventTarget {
  constructor({ isCalm = () => matchMedia("(prefers-reduced-motion: reduce)").matches } = {}) {
    super();
    this._session = null;
    this._isCalm = isCalm;
    this._lastAt = 0;
    this._place = 0;
    this.speed = 1;
    this.isPlaying = false;
  }

  show(session) {
    this.pause();
    this._session = session;
  }

  toggle() {
    if (this.isPlaying) this.pause();
    else this.play();
  }

  play() {
    const session = this._session;
    if (!session?.trace.length || this.isPlaying) return;
    if (session.cursor >= session.trace.length - 1) session.seek(0);
    this.isPlaying = true;
    this._place = session.axis.at(session.cursor);
    this._lastAt = performance.now();
    this.dispatchEvent(new Event("change"));
    requestAnimationFrame(() => this._tick());
  }

  pause() {
    if (!this.isPlaying) return;
    this.isPlaying = false;
    this.dispatchEvent(new Event("change"));
  }

  _tick() {
    if (!this.isPlaying) return;
    const now = performance.now();
    const elapsed = now - this._lastAt;
    if (!this._isCalm() || elapsed >= CALM_MS) {
      this._lastAt = now;
      this._move(elapsed / 1e3);
    }
    if (this.isPlaying) requestAnimationFrame(() => this._tick());
  }

  _move(seconds) {
    const session = this._session;
    const here = session.axis.at(session.cursor);
    const next = session.cursor + 1 < session.trace.length ? session.axis.at(session.cursor + 1) : here;
    if (this._place < here || this._place >= next + (next - here)) this._place = here; // somebody moved the cursor
    this._place += seconds * this.speed * (session.axis.name === "steps" ? STEPS_PER_SECOND : 1);
    session.seekPlace(this._place);
    if (session.cursor >= session.trace.length - 1) this.pause();
  }
}
