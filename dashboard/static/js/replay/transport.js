/** Buttons and keys that move the cursor, with Perfetto's keys where it has them. */

import { setText } from "../dom.js";

const ZOOM = 0.7;
const PAN = 0.25;
const JUMPS = { p: "preemption", e: "eviction", c: "copy" };

export class Transport {
  /**
   * @param {HTMLElement} panel the tab's
   * @param {import("./player.js").Player} player
   * @param {(message: string) => void} announce for those who don't see the picture
   */
  constructor(panel, player, announce) {
    this._panel = panel;
    this._player = player;
    this._announce = announce;
    this._session = null;
    this._lastF = null;
    this._play = panel.querySelector("#replay-play");
    this._place = panel.querySelector("[data-part=place]");
    this._help = panel.querySelector("#replay-help");
    this._listen();
  }

  show(session) {
    this._session = session;
    this._player.show(session);
    const place = () => this._session === session && this._showPlace();
    for (const name of ["cursor", "grown"]) session.addEventListener(name, place);
    place();
  }

  /** @returns {boolean} whether the key means something here */
  key(event) {
    const session = this._session;
    const { key } = event;
    if (key === "?") this._help.showModal();
    else if (!session) return false;
    else if (key === " ") {
      if (event.target.closest?.("button, summary, a")) return false;
      this._player.toggle();
    } else if (key === "w" || key === "W") session.zoom(ZOOM);
    else if (key === "s" || key === "S") session.zoom(1 / ZOOM);
    else if (key === "a" || key === "A") session.pan(event.shiftKey ? -1 : -PAN);
    else if (key === "d" || key === "D") session.pan(event.shiftKey ? 1 : PAN);
    else if (key === ".") session.seek(session.nextSlice(1));
    else if (key === ",") session.seek(session.nextSlice(-1));
    else if (key === "ArrowRight" || key === "ArrowLeft") session.seek(session.cursor + (key === "ArrowRight" ? 1 : -1));
    else if (key === "]" || key === "[") this.jump("step", key === "]" ? 1 : -1);
    else if (key.toLowerCase() in JUMPS) this.jump(JUMPS[key.toLowerCase()], event.shiftKey ? -1 : 1);
    else if (key === "f" || key === "F") this._frame();
    else if (key === "Escape") session.select(null);
    else return false;
    return true;
  }

  /** Go to the next event of a kind, or say that there is none. */
  jump(kind, direction = 1) {
    const session = this._session;
    if (!session) return;
    const i = session.next(kind, direction);
    if (i < 0) {
      this._announce(`There is no ${direction > 0 ? "later" : "earlier"} ${kind} in this trace.`);
      return;
    }
    session.seek(i);
    const { trace } = session;
    if (trace.choice[i] >= 0 && session.selection?.choice !== undefined) session.select({ choice: trace.choice[i] });
    this._announce(`seq ${session.seq}, step ${trace.step[i]}: ${trace.typeName(i)}`);
  }

  /** F shows what is selected; F again, at the same place, shows all. */
  _frame() {
    const session = this._session;
    const isAgain = this._lastF?.cursor === session.cursor && this._lastF.selection === session.selection && this._lastF.view === session.view;
    if (isAgain) session.fit();
    else session.focus();
    this._lastF = isAgain ? null : { cursor: session.cursor, selection: session.selection, view: session.view };
  }

  _showPlace() {
    const { trace, cursor, seq } = this._session;
    const text = trace.length ? `seq ${seq.toLocaleString("en-US")} of ${trace.seqOf(trace.length - 1).toLocaleString("en-US")} · step ${trace.step[cursor].toLocaleString("en-US")}` : "no events";
    setText(this._place, text);
  }

  _listen() {
    const panel = this._panel;
    this._play.addEventListener("click", () => this._player.toggle());
    this._player.addEventListener("change", () => {
      this._play.setAttribute("aria-pressed", String(this._player.isPlaying));
      setText(this._play, this._player.isPlaying ? "Pause" : "Play");
    });
    panel.querySelector("#replay-speed").addEventListener("change", (event) => {
      this._player.speed = Number(event.target.value);
    });
    for (const button of panel.querySelectorAll("[data-jump]")) {
      button.addEventListener("click", () => this.jump(button.dataset.jump, Number(button.dataset.direction ?? 1)));
    }
    for (const button of panel.querySelectorAll("[data-move]")) {
      button.addEventListener("click", () => this._session?.seek(this._session.cursor + Number(button.dataset.move)));
    }
    panel.querySelector("#replay-fit").addEventListener("click", () => this._session?.fit());
    for (const button of panel.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => this._session?.zoom(button.dataset.zoom === "in" ? ZOOM : 1 / ZOOM));
    }
    panel.querySelector("#replay-keys").addEventListener("click", () => this._help.showModal());
    panel.querySelector("#replay-axis").addEventListener("change", (event) => this._session?.useAxis(event.target.value));
  }
}
