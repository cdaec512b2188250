/** The table of requests: one row node per request, changed in place, so that focus and selection stay where they are. */

import { el, setText } from "../dom.js";
import { clock, count, durationText, MISSING, percent } from "../format.js";
import { waitsFor } from "./spans.js";

const ms = (seconds) => durationText(seconds === null ? null : seconds * 1000);

const COLUMNS = [
  { field: "request_id", title: "Request" },
  { field: "phase", title: "State" },
  { field: "arrival", title: "Arrived", text: (row) => clock(row.arrival), number: true },
  { field: "num_prompt_tokens", title: "Prompt", text: promptText, number: true },
  { field: "num_output_tokens", title: "Output", text: (row) => count(row.num_output_tokens), number: true },
  { field: "queue_s", title: "Queue", text: (row) => ms(row.queue_s), number: true },
  { field: "ttft_s", title: "TTFT", text: (row) => ms(row.ttft_s), number: true },
  { field: "mean_itl_s", title: "ITL mean", text: (row) => ms(row.mean_itl_s), number: true },
  { field: "total_s", title: "Total", text: totalText, number: true },
  { field: "num_preemptions", title: "Preempted", text: (row) => (row.num_preemptions ? count(row.num_preemptions) : MISSING), number: true },
];

function promptText(row) {
  if (!row.num_prompt_tokens) return MISSING;
  const cached = row.num_cached_tokens ? ` · ${percent(row.num_cached_tokens / row.num_prompt_tokens)} % cached` : "";
  return `${count(row.num_prompt_tokens)}${cached}`;
}

function totalText(row) {
  return row.phase === "ended" ? ms(row.e2e_s) : `${ms(row.age_s)} so far`;
}

/** What a request does now, or how it ended. */
export function stateText(row) {
  if (row.phase === "ended") return row.state === "finished" ? `finished: ${row.finish_reason}` : row.error_type || row.finish_reason || row.state;
  if (row.waits_for) return `${row.phase}: waits for ${waitsFor(row.waits_for)}`;
  return row.phase;
}

function stateClass(row) {
  if (["failed", "rejected"].includes(row.state)) return "bad";
  if (row.state === "aborted") return "warn";
  if (row.phase === "ended") return "done";
  return ["queue", "preempted"].includes(row.phase) ? "waits" : "runs";
}

export class RequestTable {
  /**
   * @param {HTMLTableElement} table
   * @param {{onSelect: (id: string) => void, onCancel: (id: string) => void, onSort: (field: string) => void}} does
   */
  constructor(table, does) {
    this._does = does;
    this._nodes = new Map();
    this._order = [];
    this._selected = "";
    this._body = table.tBodies[0];
    this._heads = COLUMNS.map((column) => this._head(column));
    table.tHead.append(el("tr", {}, ...this._heads, el("th", { scope: "col" }, el("span", { class: "visually-hidden" }, "Actions"))));
    this._body.addEventListener("keydown", (event) => this._key(event));
    this._body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row && !event.target.closest(".cancel")) this._does.onSelect(row.dataset.id);
    });
  }

  /**
   * @param {object[]} rows in the order to show
   * @param {{sort: string, selected: string}} view
   */
  show(rows, { sort, selected }) {
    this._selected = selected;
    this._showSort(sort);
    const order = rows.map((row) => row.request_id);
    const kept = new Set(order);
    for (const id of this._nodes.keys()) if (!kept.has(id)) this._nodes.delete(id);
    for (const row of rows) {
      const node = this._node(row.request_id);
      if (!node.isFinal) this._fill(node, row);
    }
    if (order.length !== this._order.length || order.some((id, i) => id !== this._order[i])) this._arrange(order);
    const tabbable = kept.has(selected) ? selected : order[0];
    for (const [id, node] of this._nodes) {
      const tabIndex = id === tabbable ? 0 : -1;
      if (node.open.tabIndex !== tabIndex) node.open.tabIndex = tabIndex;
      const isSelected = String(id === selected);
      if (node.row.getAttribute("aria-selected") !== isSelected) node.row.setAttribute("aria-selected", isSelected);
    }
  }

  focus(id) {
    this._nodes.get(id)?.open.focus();
  }

  _arrange(order) {
    const focused = this._body.contains(document.activeElement) ? document.activeElement : null;
    let here = this._body.firstElementChild;
    for (const id of order) {
      const { row } = this._nodes.get(id);
      if (row === here) here = here.nextElementSibling;
      else this._body.insertBefore(row, here);
    }
    while (this._body.rows.length > order.length) this._body.lastElementChild.remove();
    this._order = order;
    if (focused?.isConnected) focused.focus({ preventScroll: true });
  }

  _head({ field, title, number }) {
    const button = el("button", { type: "button", class: "quiet sort" }, title);
    button.addEventListener("click", () => this._does.onSort(field));
    return el("th", { scope: "col", class: number ? "number" : null, "data-field": field }, button);
  }

  _showSort(sort) {
    const field = sort.replace("-", "");
    for (const head of this._heads) {
      if (head.dataset.field !== field) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", sort.startsWith("-") ? "descending" : "ascending");
    }
  }

  _node(id) {
    const known = this._nodes.get(id);
    if (known) return known;
    const open = el("button", { type: "button", class: "quiet open", title: id, tabindex: "-1" }, id.replace(/^req-/, "").slice(0, 12));
    const state = el("span", { class: "state" });
    const cells = new Map([["request_id", open], ["phase", state]]);
    const tds = COLUMNS.map(({ field, number }) => {
      const td = el("td", { class: number ? "number" : null });
      if (cells.has(field)) td.append(cells.get(field));
      else cells.set(field, td);
      return td;
    });
    const cancel = el("button", { type: "button", class: "danger cancel", "aria-label": `Cancel ${id}` }, "Cancel");
    cancel.addEventListener("click", () => this._does.onCancel(id));
    const row = el("tr", { "data-id": id }, ...tds, el("td", {}, cancel));
    const node = { row, open, state, cells, cancel };
    this._nodes.set(id, node);
    return node;
  }

  /** A request that has ended and sent everything changes no more. */
  _fill(node, row) {
    node.isFinal = row.phase === "ended" && row.e2e_s !== null;
    node.state.className = `state ${stateClass(row)}`;
    setText(node.state, stateText(row));
    for (const { field, text } of COLUMNS) if (text) setText(node.cells.get(field), text(row));
    node.cancel.hidden = row.phase === "ended" || row.phase === "send";
  }

  _key(event) {
    const at = this._order.indexOf(event.target.closest("tr")?.dataset.id);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this._order.length - 1 }[event.key];
    if (at < 0 || to === undefined || !event.target.matches(".open")) return;
    event.preventDefault();
    const next = this._nodes.get(this._order[Math.min(this._order.length - 1, Math.max(0, to))]);
    event.target.tabIndex = -1;
    next.open.tabIndex = 0;
    next.open.focus();
  }
}
