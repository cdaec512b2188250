/** The loads that are kept: pick some to compare, export, forget. */

import { el } from "../dom.js";
import { clock } from "../format.js";
import { arrivalWords } from "./order.js";

const STATES = { running: "running", done: "done", stopped: "stopped early", failed: "failed" };

export class RunsList extends EventTarget {
  /**
   * Events: `change` when other runs are picked, `forget` (detail: id).
   * @param {HTMLElement} root
   */
  constructor(root) {
    super();
    this._root = root;
    this._runs = [];
    this.picked = new Set();
  }

  /** @param {object[]} runs newest first */
  show(runs) {
    this._runs = runs;
    const known = new Set(runs.map(({ id }) => id));
    for (const id of this.picked) if (!known.has(id)) this.picked.delete(id);
    const focused = document.activeElement?.id ?? "";
    this._root.replaceChildren(...(runs.length ? [this._table()] : [el("p", { class: "note" }, "No load has run yet. The form says what one is made of; “Start” sends it.")]));
    if (focused) document.getElementById(focused)?.focus();
  }

  /** @returns {object[]} the picked ones, oldest first */
  get records() {
    return this._runs.filter(({ id }) => this.picked.has(id)).reverse();
  }

  pickOnly(id) {
    this.picked = new Set([id]);
    this.show(this._runs);
    this.dispatchEvent(new Event("change"));
  }

  _table() {
    const head = ["Compare", "Load", "Servers", "Arrivals", "Began", "State", "Actions"].map((text) => el("th", { scope: "col" }, text));
    return el("div", { class: "table-scroll", tabindex: "0", role: "group", "aria-label": "Loads" }, el("table", { class: "runs" }, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...this._runs.map((run) => this._row(run)))));
  }

  _row(run) {
    const box = el("input", { type: "checkbox", id: `pick-${run.id}`, "aria-label": `Compare ${run.label || run.id}`, checked: this.picked.has(run.id) });
    box.addEventListener("change", () => {
      if (box.checked) this.picked.add(run.id);
      else this.picked.delete(run.id);
      this.dispatchEvent(new Event("change"));
    });
    const began = run.parts[0] ? clock(run.parts[0].result.started_at) : "–";
    const forms = ["json", "csv"].map((form) => el("a", { href: `api/load/runs/${run.id}/export.${form}`, download: `${run.id}.${form}`, "aria-label": `Export ${run.label || run.id} as ${form.toUpperCase()}` }, form.toUpperCase()));
    const forget = el("button", { type: "button", class: "quiet", id: `forget-${run.id}`, "aria-label": `Forget ${run.label || run.id}`, onclick: () => this.dispatchEvent(new CustomEvent("forget", { detail: run.id })) }, "Forget");
    const actions = run.state === "running" ? [] : [...forms, forget];
    const cells = [box, run.label || run.id, run.sides.map(({ target }) => target).join(" / "), arrivalWords(run.plan), began];
    return el("tr", { "data-run": run.id }, ...cells.map((cell) => el("td", {}, cell)), el("td", { "data-state": run.state, title: run.error || null }, STATES[run.state]), el("td", { class: "row-actions" }, ...actions));
  }
}
