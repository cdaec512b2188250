/** The numbers behind the canvases, as tables: sequences and blocks at the cursor. */

import { el } from "../dom.js";
import { computedTokens, placeOf } from "./state.js";
import { shortName } from "./timeline.js";

const MAX_ROWS = 500;

export class DataTables {
  /** @param {HTMLElement} root filled only while it is shown */
  constructor(root) {
    this._root = root;
    this._session = null;
    this._isDue = false;
  }

  show(session) {
    this._session = session;
    for (const name of ["cursor", "grown"]) session.addEventListener(name, () => this._session === session && this.due());
    this.due();
  }

  due() {
    if (this._isDue || this._root.hidden || !this._session) return;
    this._isDue = true;
    requestAnimationFrame(() => {
      this._isDue = false;
      this._root.replaceChildren(this._sequences(), this._blocks());
    });
  }

  _sequences() {
    const { trace, state } = this._session;
    const rows = [];
    state.choices.forEach((choice, number) => {
      const request = state.requests[trace.choices[number].request];
      if (!choice || !request || request.end) return;
      rows.push([trace.choiceName(number), choice.status, request.prompt, request.cached, computedTokens(choice, request), choice.output, choice.preemptions]);
    });
    state.requests.forEach((request, number) => {
      if (request && !request.end && !request.scheduled) rows.push([trace.requestId(number), "waiting", request.prompt, 0, 0, 0, 0]);
    });
    return table(`Sequences in flight at seq ${this._session.seq}`, ["sequence", "state", "prompt", "cached", "computed", "output", "preempted"], rows);
  }

  _blocks() {
    const { trace, state } = this._session;
    const rows = [];
    state.blocks.forEach((block, id) => {
      if (block.free) return;
      const owners = block.holders.filter((_, k) => k % 2 === 0).map((choice) => shortName(trace, choice));
      const inTree = block.published ? (block.parent < 0 ? "root" : `below ${block.parent}`) : "–";
      const last = block.last < 0 ? "–" : `${trace.typeName(block.last)}, seq ${trace.seqOf(block.last)}`;
      rows.push([id, placeOf(block), owners.length, owners.join(", ") || "–", inTree, last]);
    });
    return table(`Blocks in use at seq ${this._session.seq}`, ["block", "state", "ref count", "owners", "prefix tree", "last event"], rows);
  }
}

function table(caption, columns, rows) {
  const shown = rows.slice(0, MAX_ROWS);
  const more = rows.length > shown.length ? `, the first ${MAX_ROWS} of ${rows.length.toLocaleString("en-US")}` : `, ${rows.length.toLocaleString("en-US")}`;
  const head = el("tr", {}, ...columns.map((name) => el("th", { scope: "col" }, name)));
  const body = shown.map((row) => el("tr", {}, ...row.map((value) => el("td", { dir: "auto" }, String(value)))));
  return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption }, el("table", {}, el("caption", {}, caption + more), el("thead", {}, head), el("tbody", {}, ...body)));
}
