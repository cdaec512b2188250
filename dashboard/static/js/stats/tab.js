/** The Stats tab: every number of `GET /stats`, explained. */

import { el, setText } from "../dom.js";
import { count, durationText, MISSING, number, percent } from "../format.js";
import { at, SECTIONS } from "./meaning.js";

const WRITE = {
  text: (value) => (value === "" || value === null ? MISSING : String(value)),
  count,
  number,
  percent: (value) => (value === null ? MISSING : `${percent(value)} %`),
  seconds: (value) => durationText(value === null ? null : value * 1000),
  map: (value) => Object.entries(value).filter(([, n]) => n).map(([name, n]) => `${name} ${count(n)}`).join(", ") || "none",
};

export function create(panel) {
  return new StatsTab(panel);
}

class StatsTab {
  constructor(root) {
    this._values = [];
    this._stats = null;
    this._shown = false;
    this._about = root.querySelector("#stats-about");
    root.querySelector("#stats-sections").append(...SECTIONS.map((section) => this._section(section)));
  }

  show() {
    this._shown = true;
    this._draw();
  }

  hide() {
    this._shown = false;
  }

  frame(frame) {
    if (!frame.connected) return;
    this._stats = frame.stats;
    this._draw();
  }

  _section({ path, title, says, rows }) {
    const body = el("tbody");
    for (const [name, [label, meaning, how]] of Object.entries(rows)) {
      const value = el("td", { class: "number", "data-stat": `${path}.${name}` }, MISSING);
      this._values.push([`${path}.${name}`, value, WRITE[how]]);
      body.append(el("tr", {}, el("th", { scope: "row" }, label), value, el("td", { class: "meaning" }, meaning)));
    }
    const table = el("table", {}, el("caption", { class: "visually-hidden" }, title), body);
    return el("section", { class: "panel" }, el("h3", {}, title), el("p", { class: "note" }, says), table);
  }

  _draw() {
    if (!this._shown || !this._stats) return;
    const { schema, version, uptime_s: uptime } = this._stats;
    setText(this._about, `${schema} version ${version} · up for ${durationText(uptime * 1000)}`);
    for (const [path, node, write] of this._values) {
      const value = at(this._stats, path);
      setText(node, value === undefined ? MISSING : write(value));
    }
  }
}
