/** The block wall: every block of the pool, with who owns it, how often it is shared, and which one was touched last. */

import { el } from "../dom.js";
import { blockSentence, pointAtBlocks } from "./block_pointer.js";
import { placeOf } from "./state.js";
import { FONT, Surface } from "./surface.js";

const LEAST_CELL = 5;
const LARGEST_CELL = 26;
const NUMBER_FROM = 13; // cells this large say their ref count

export class Wall {
  /**
   * @param {HTMLElement} root an empty element
   * @param {import("./palette.js").Palette} palette
   * @param {string} label of the canvas
   */
  constructor(root, palette, label) {
    this._palette = palette;
    this._label = label;
    this._session = null;
    this._pointed = -1; // block under the arrow keys
    this._grid = { cell: LARGEST_CELL, columns: 1 };
    this.canvas = el("canvas", { role: "img", tabindex: "0", "aria-label": label });
    this._spacer = el("div", { class: "spacer" });
    this._scroller = el("div", { class: "scroller" }, this.canvas, this._spacer);
    root.append(this._scroller);
    this.surface = new Surface(this.canvas, (context, size) => this._paint(context, size), this._scroller);
    palette.addEventListener("change", () => this.surface.due());
    this._listen();
  }

  show(session) {
    this._session = session;
    this._pointed = -1;
    for (const name of ["cursor", "grown"]) session.addEventListener(name, () => this._session === session && this.surface.due());
    this.surface.due();
  }

  /** Bring a block into sight. */
  reveal(block) {
    const { cell, columns } = this._grid;
    const y = Math.floor(block / columns) * cell;
    const { scrollTop, clientHeight } = this._scroller;
    if (y < scrollTop || y + cell > scrollTop + clientHeight) this._scroller.scrollTop = Math.max(0, y - clientHeight / 2);
  }

  _lay(width, height) {
    const total = this._session.trace.header.num_blocks;
    let cell = LARGEST_CELL;
    while (cell > LEAST_CELL && Math.ceil(total / Math.floor(width / cell)) * cell > height) cell--;
    const columns = Math.max(1, Math.floor(width / cell));
    this._grid = { cell, columns };
    this._spacer.style.height = `${Math.max(0, Math.ceil(total / columns) * cell - height)}px`;
    return { cell, columns, total };
  }

  _paint(context, { width, height }) {
    const session = this._session;
    if (!session) return;
    const { cell, columns, total } = this._lay(width, height);
    const { state, trace, cursor, selection } = session;
    const scrollTop = this._scroller.scrollTop;
    const first = Math.floor(scrollTop / cell) * columns;
    const stop = Math.min(total, (Math.ceil((scrollTop + height) / cell) + 1) * columns);
    const size = cell - (cell > 7 ? 2 : 1);
    const chosen = selection?.choice ?? -1;
    context.font = cell > 17 ? FONT : FONT.replace("11px", "9px");
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let id = first; id < stop; id++) {
      const x = (id % columns) * cell;
      const y = Math.floor(id / columns) * cell - scrollTop;
      this._paintBlock(context, state.blocks[id], trace, { x, y, size, chosen });
    }
    const last = trace.length ? trace.block[cursor] : -1;
    if (last >= 0) this._frame(context, last, "--text", 2);
    if (selection?.block !== undefined) this._frame(context, selection.block, "--accent", 2.5);
    if (this._pointed >= 0 && document.activeElement === this.canvas) this._frame(context, this._pointed, "--focus", 1.5);
    this._describe(state);
  }

  _paintBlock(context, block, trace, { x, y, size, chosen }) {
    const palette = this._palette;
    const place = placeOf(block);
    context.globalAlpha = 1;
    if (place === "free") {
      context.fillStyle = palette.get("--kv-free");
      context.fillRect(x, y, size, size);
      return;
    }
    if (place === "referenced") {
      const { holders } = block;
      const isChosen = chosen < 0 || holders.some((value, k) => k % 2 === 0 && value === chosen);
      context.globalAlpha = isChosen ? 1 : 0.28;
      context.fillStyle = palette.owner(trace.choices[holders[0]].request);
      context.fillRect(x, y, size, size);
      if (holders.length > 2) this._paintShared(context, holders, trace, x, y, size);
      if (block.published && size > 6) {
        context.fillStyle = palette.get("--on-slice");
        context.fillRect(x + 1, y + size - 2, size - 2, 1);
      }
    } else if (place === "cached") {
      context.globalAlpha = chosen < 0 ? 1 : 0.4;
      context.fillStyle = palette.get("--replay-cached");
      context.fillRect(x, y, size, size);
      context.strokeStyle = palette.owner(block.publisher);
      context.lineWidth = size > 8 ? 1.5 : 1;
      const inset = context.lineWidth / 2;
      context.strokeRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
    } else {
      context.fillStyle = palette.get("--replay-evicted");
      context.fillRect(x, y, size, size);
    }
    context.globalAlpha = 1;
  }

  /** The second owner's colour in a corner, and the ref count where there is room. */
  _paintShared(context, holders, trace, x, y, size) {
    const palette = this._palette;
    context.fillStyle = palette.owner(trace.choices[holders[2]].request);
    context.beginPath();
    context.moveTo(x + size, y);
    context.lineTo(x + size, y + size);
    context.lineTo(x, y + size);
    context.fill();
    if (size < NUMBER_FROM - 2) {
      context.fillStyle = palette.get("--on-slice");
      context.fillRect(x + size / 2 - 1, y + size / 2 - 1, 2, 2);
      return;
    }
    context.fillStyle = palette.get("--on-slice");
    context.fillText(String(holders.length / 2), x + size / 2, y + size / 2 + 0.5);
  }

  _frame(context, id, color, width) {
    const { cell, columns } = this._grid;
    const x = (id % columns) * cell;
    const y = Math.floor(id / columns) * cell - this._scroller.scrollTop;
    context.strokeStyle = this._palette.get(color);
    context.lineWidth = width;
    context.strokeRect(x - 0.5, y - 0.5, cell - 1, cell - 1);
  }

  _describe(state) {
    const { free, referenced, cached } = state.counts;
    const pointed = this._pointed >= 0 ? ` ${blockSentence(this._session, this._pointed)}` : "";
    const said = `${this._label}: ${referenced} referenced, ${cached} cached, ${free} free.${pointed}`;
    if (this.canvas.getAttribute("aria-label") !== said) this.canvas.setAttribute("aria-label", said);
  }

  _blockAt({ x, y }) {
    const { cell, columns } = this._grid;
    const column = Math.floor(x / cell);
    const id = Math.floor((y + this._scroller.scrollTop) / cell) * columns + column;
    return column < columns && id < this._session.trace.header.num_blocks ? id : -1;
  }

  _listen() {
    const canvas = this.canvas;
    pointAtBlocks(canvas, { session: () => this._session, blockAt: (place) => this._blockAt(place) });
    canvas.addEventListener("blur", () => this.surface.due());
    canvas.addEventListener("keydown", (event) => this._key(event));
  }

  _key(event) {
    if (!this._session || event.ctrlKey || event.metaKey || event.altKey) return;
    const { columns } = this._grid;
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -Infinity, End: Infinity };
    if (event.key in moves) {
      const from = this._pointed < 0 ? (this._session.selection?.block ?? 0) : this._pointed;
      this._pointed = Math.min(Math.max(0, from + moves[event.key]), this._session.trace.header.num_blocks - 1);
      this.reveal(this._pointed);
      this.surface.due();
    } else if (event.key === "Enter" && this._pointed >= 0) this._session.select({ block: this._pointed });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
