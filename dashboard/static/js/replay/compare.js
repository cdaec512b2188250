/** A second trace beside the first: its lanes and its wall, at the same event, and the first event that differs. */

import { el, setText } from "../dom.js";
import { differingFields, diffTraces } from "./diff.js";
import { Session } from "./session.js";
import { summaryOf } from "./summary.js";
import { Timeline } from "./timeline.js";
import { Wall } from "./wall.js";

export class Comparison {
  /**
   * @param {HTMLElement} panel the tab's
   * @param {import("./palette.js").Palette} palette
   */
  constructor(panel, palette) {
    const part = (name) => panel.querySelector(`[data-part=${name}]`);
    this._panel = panel;
    this._parts = [part("difference"), part("lanes-b"), part("wall-b")];
    this._text = part("difference-text");
    this._timeline = new Timeline(part("lanes-b"), palette, "Sequences of B");
    this._wall = new Wall(part("wall-b"), palette, "Blocks of B");
    this._a = null;
    this._b = null;
    this._place = -1;
    this._isMoving = false;
    panel.querySelector("#replay-difference").addEventListener("click", () => this.goToDifference());
    panel.querySelector("#replay-end-compare").addEventListener("click", () => this.end());
  }

  get isOn() {
    return this._b !== null;
  }

  get canvases() {
    return this.isOn ? [this._timeline.canvas, this._wall.canvas] : [];
  }

  /** Put trace `b` beside session `a`. */
  start(a, b) {
    this.end();
    this._a = a;
    this._b = new Session(b, { name: "B", axis: a.axis.name });
    for (const part of this._parts) part.hidden = false;
    this._panel.classList.add("comparing");
    this._timeline.show(this._b);
    this._wall.show(this._b);
    this._join(a, this._b);
    this._join(this._b, a);
    this._describe(diffTraces(a.trace, b));
    if (this._place >= 0) this.goToDifference();
    else this._b.seek(a.cursor);
  }

  end() {
    if (!this.isOn) return;
    this._a = this._b = null;
    this._place = -1;
    for (const part of this._parts) part.hidden = true;
    this._panel.classList.remove("comparing");
  }

  goToDifference() {
    if (this._place >= 0) this._a.seek(Math.min(this._place, this._a.trace.length - 1));
  }

  /** Where one goes, the other follows: to the same event, to the same part of the axis. */
  _join(leader, follower) {
    const follow = (move) => () => {
      if (this._isMoving || ![this._a, this._b].every((each) => each === leader || each === follower)) return;
      this._isMoving = true;
      move();
      this._isMoving = false;
    };
    leader.addEventListener("cursor", follow(() => follower.seek(leader.cursor, { reveal: false })));
    leader.addEventListener("view", follow(() => {
      follower.useAxis(leader.axis.name);
      follower.show(leader.view);
    }));
  }

  _describe({ settings, place }) {
    this._place = place;
    const [a, b] = [this._a.trace, this._b.trace];
    const lines = settings.map(([name, x, y]) => `Setting ${name}: ${x} in A, ${y} in B.`);
    if (place < 0) lines.push(`All ${a.length.toLocaleString("en-US")} events are the same; times may differ.`);
    else {
      const told = (trace) => (place < trace.length ? `${trace.typeName(place)} ${summaryOf(trace, place)}` : "it has ended");
      const fields = differingFields(a, b, place);
      lines.push(`First difference: event ${(place + 1).toLocaleString("en-US")}${fields.length ? ` (${fields.join(", ")})` : ""}. A: ${told(a)}. B: ${told(b)}.`);
    }
    this._text.replaceChildren(...lines.map((line) => el("p", { dir: "auto" }, line)));
    const button = this._panel.querySelector("#replay-difference");
    button.hidden = place < 0;
    setText(button, "Go to it");
  }
}
