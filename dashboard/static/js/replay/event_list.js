/** The events as a list: as many rows in the page as can be seen, however many there are. */

import { el, setText } from "../dom.js";
import { FAMILY, TYPE } from "./events.js";
import { summaryOf } from "./summary.js";
import { timeText } from "./ticks.js";
import { onceAFrame } from "./once_a_frame.js";

const ROW = 24;
const SPARE = 3;

export class EventList {
  /**
   * @param {HTMLElement} root an empty element
   * @param {HTMLSelectElement} filter
   */
  constructor(root, filter) {
    this._session = null;
    this._filter = filter;
    this._shown = null; // indices when filtered, null for all
    this._rows = [];
    this._due = onceAFrame(() => this._draw());
    this._spacer = el("div", { class: "spacer" });
    this._body = el("div", { class: "rows" });
    this._box = el("div", { class: "list", role: "listbox", tabindex: "0", "aria-label": "Events" }, this._spacer, this._body);
    root.append(this._box);
    this._box.addEventListener("scroll", () => this._due(), { passive: true });
    this._box.addEventListener("click", (event) => this._click(event));
    this._box.addEventListener("keydown", (event) => this._key(event));
    filter.addEventListener("change", () => this._refilter());
    new ResizeObserver(() => this._due()).observe(this._box);
  }

  show(session) {
    this._session = session;
    session.addEventListener("cursor", () => {
      if (this._session !== session) return;
      if (["choice", "block"].includes(this._filter.value)) this._refilter();
      this._follow();
    });
    session.addEventListener("grown", () => this._session === session && this._refilter());
    this._refilter();
  }

  get _length() {
    return this._shown ? this._shown.length : (this._session?.trace.length ?? 0);
  }

  _at(row) {
    return this._shown ? this._shown[row] : row;
  }

  /** The row of an event, or of the last shown one before it; -1 if there is none. */
  _rowOf(i) {
    if (!this._shown) return i;
    let low = 0;
    let high = this._shown.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this._shown[middle] <= i) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  _refilter() {
    if (!this._session) return;
    const accepts = this._accepts(this._filter.value);
    this._shown = null;
    if (accepts) {
      const found = [];
      for (let i = 0; i < this._session.trace.length; i++) if (accepts(i)) found.push(i);
      this._shown = found;
    }
    this._follow();
  }

  _accepts(name) {
    const { trace, selection } = this._session;
    if (name === "all") return null;
    if (name === "marks") {
      const marks = [TYPE.preempted, TYPE.resumed, TYPE.block_evicted, TYPE.block_copied, TYPE.engine_failed, TYPE.stalled];
      return (i) => marks.includes(trace.type[i]);
    }
    if (name === "choice") return (i) => selection?.choice !== undefined && trace.choice[i] === selection.choice;
    if (name === "block") {
      const block = selection?.block ?? trace.block[this._session.cursor];
      return (i) => trace.block[i] === block || (trace.type[i] === TYPE.block_copied && trace.a[i] === block);
    }
    return (i) => FAMILY[trace.type[i]] === name;
  }

  /** Keep the row of the cursor in sight. */
  _follow() {
    const row = this._rowOf(this._session.cursor);
    const { scrollTop, clientHeight } = this._box;
    this._spacer.style.height = `${this._length * ROW}px`;
    if (row >= 0 && (row * ROW < scrollTop || (row + 1) * ROW > scrollTop + clientHeight)) {
      this._box.scrollTop = Math.max(0, row * ROW - clientHeight / 2 + ROW);
    }
    this._due();
  }

  _draw() {
    const height = this._box.clientHeight;
    if (!this._session || !height) return;
    const { trace, cursor } = this._session;
    const first = Math.max(0, Math.floor(this._box.scrollTop / ROW) - SPARE);
    const num = Math.min(this._length - first, Math.ceil(height / ROW) + 2 * SPARE);
    while (this._rows.length < num) this._rows.push(this._newRow());
    const cursorRow = this._rowOf(cursor);
    this._body.style.transform = `translateY(${first * ROW}px)`;
    this._box.removeAttribute("aria-activedescendant");
    this._rows.forEach((row, k) => {
      row.node.hidden = k >= num;
      if (k >= num) return;
      const i = this._at(first + k);
      const isCurrent = this._at(cursorRow) === i;
      row.i = i;
      setText(row.seq, String(trace.seqOf(i)));
      setText(row.time, timeText(trace.t[i] - trace.t[0]));
      setText(row.type, trace.typeName(i));
      setText(row.text, summaryOf(trace, i));
      row.node.dataset.family = FAMILY[trace.type[i]];
      row.node.setAttribute("aria-selected", String(isCurrent));
      row.node.setAttribute("aria-posinset", String(first + k + 1));
      row.node.setAttribute("aria-setsize", String(this._length));
      if (isCurrent) this._box.setAttribute("aria-activedescendant", row.node.id);
    });
  }

  _newRow() {
    const [seq, time, type, text] = ["seq", "time", "type", "text"].map((name) => el("span", { class: name }));
    text.setAttribute("dir", "auto");
    const node = el("div", { role: "option", id: `replay-event-${this._rows.length}`, "aria-selected": "false" }, seq, time, type, text);
    this._body.append(node);
    return { node, seq, time, type, text, i: 0 };
  }

  _click(event) {
    const node = event.target.closest('[role="option"]');
    const row = this._rows.find((candidate) => candidate.node === node);
    if (row) this._session.seek(row.i);
  }

  _key(event) {
    if (!this._session || !this._length || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this._box.clientHeight / ROW) - 1);
    const moves = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity };
    if (!(event.key in moves)) return;
    event.preventDefault();
    event.stopPropagation();
    const row = Math.min(Math.max(0, this._rowOf(this._session.cursor) + moves[event.key]), this._length - 1);
    this._session.seek(this._at(row));
  }
}
