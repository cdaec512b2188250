/** The prefix tree at the cursor: a row per prefix, a cell per block; what is held is full, what is only cached hollow. */

import { el } from "../dom.js";
import { blockSentence, pointAtBlocks } from "./block_pointer.js";
import { layTree, neighbour, TREE_KEYS } from "./prefix_tree.js";
import { FONT, Surface } from "./surface.js";

const ROW = 18;
const LEFT = 8;
const LEAST_CELL = 4;
const LARGEST_CELL = 22;

export class TreeView {
  constructor(root, palette) {
    this._palette = palette;
    this._session = null;
    this._pointed = -1; // block under the arrow keys
    this._tree = { nodes: [], rows: 0, depth: 1 };
    this._cell = LARGEST_CELL;
    this.canvas = el("canvas", { role: "img", tabindex: "0", "aria-label": "Prefix tree" });
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

  _paint(context, { width, height }) {
    const session = this._session;
    if (!session) return;
    const { state, trace, cursor, selection } = session;
    const tree = (this._tree = layTree(state));
    const cell = (this._cell = Math.min(LARGEST_CELL, Math.max(LEAST_CELL, Math.floor((width - 2 * LEFT) / tree.depth))));
    const scrollTop = this._scroller.scrollTop;
    this._spacer.style.height = `${Math.max(0, tree.rows * ROW + 12 - height)}px`;
    const palette = this._palette;
    if (!tree.nodes.length) {
      context.font = FONT;
      context.fillStyle = palette.get("--muted");
      context.fillText(trace.header.prefix_cache === false ? "the prefix cache is off" : "nothing is published here", LEFT, 24);
    }
    const last = trace.length ? trace.block[cursor] : -1;
    for (const node of tree.nodes) {
      const y = node.row * ROW + 6 - scrollTop;
      if (y < -ROW || y > height + ROW) continue;
      const x = LEFT + node.depth * cell;
      if (node.parentRow >= 0 && node.parentRow !== node.row) {
        context.strokeStyle = palette.get("--axis");
        context.lineWidth = 1;
        context.beginPath();
        context.moveTo(x - 1.5, node.parentRow * ROW + 6 - scrollTop + 12);
        context.lineTo(x - 1.5, y + 6.5);
        context.lineTo(x + 1, y + 6.5);
        context.stroke();
      }
      const block = state.blocks[node.id];
      const isHeld = block.holders.length > 0;
      const wide = Math.max(2, cell - 2);
      context.fillStyle = isHeld ? palette.owner(trace.choices[block.holders[0]].request) : palette.get("--replay-cached");
      context.fillRect(x, y, wide, 13);
      if (!isHeld && wide > 4) {
        context.strokeStyle = palette.owner(block.publisher);
        context.lineWidth = 1;
        context.strokeRect(x + 0.5, y + 0.5, wide - 1, 12);
      }
      if (isHeld && block.holders.length > 2 && wide > 10) {
        context.font = FONT.replace("11px", "10px");
        context.textAlign = "center";
        context.textBaseline = "middle";
        context.fillStyle = palette.get("--on-slice");
        context.fillText(String(block.holders.length / 2), x + wide / 2, y + 7);
        context.textAlign = "left";
      }
      if (node.id === last || node.id === selection?.block) {
        context.strokeStyle = palette.get(node.id === selection?.block ? "--accent" : "--text");
        context.lineWidth = 2;
        context.strokeRect(x - 0.5, y - 0.5, wide + 1, 14);
      }
      if (node.id === this._pointed && document.activeElement === this.canvas) {
        context.strokeStyle = palette.get("--focus");
        context.lineWidth = 1.5;
        context.strokeRect(x - 2, y - 2, wide + 4, 17);
      }
    }
    const held = tree.nodes.filter(({ id }) => state.blocks[id].holders.length).length;
    const said = `Prefix tree: ${tree.nodes.length} blocks in ${tree.rows} prefixes, ${held} of them held, up to ${tree.nodes.length ? tree.depth : 0} blocks deep.${this._pointedSentence()}`;
    if (this.canvas.getAttribute("aria-label") !== said) this.canvas.setAttribute("aria-label", said);
  }

  _pointedSentence() {
    const isThere = this._tree.nodes.some(({ id }) => id === this._pointed);
    return isThere ? ` ${blockSentence(this._session, this._pointed)}` : "";
  }

  _blockAt({ x, y }) {
    const row = Math.floor((y + this._scroller.scrollTop - 6) / ROW);
    const depth = Math.floor((x - LEFT) / this._cell);
    return this._tree.nodes.find((node) => node.row === row && node.depth === depth)?.id ?? -1;
  }

  _listen() {
    const canvas = this.canvas;
    pointAtBlocks(canvas, { session: () => this._session, blockAt: (place) => this._blockAt(place) });
    canvas.addEventListener("blur", () => this.surface.due());
    canvas.addEventListener("keydown", (event) => this._key(event));
  }

  _key(event) {
    if (!this._session || event.ctrlKey || event.metaKey || event.altKey) return;
    if (TREE_KEYS.includes(event.key)) {
      const from = this._pointed < 0 ? (this._session.selection?.block ?? -1) : this._pointed;
      this._pointed = neighbour(layTree(this._session.state), from, event.key);
      this._reveal(this._pointed);
      this.surface.due();
    } else if (event.key === "Enter" && this._pointed >= 0) this._session.select({ block: this._pointed });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  _reveal(block) {
    const row = this._tree.nodes.find(({ id }) => id === block)?.row ?? 0;
    const { scrollTop, clientHeight } = this._scroller;
    if (row * ROW < scrollTop || (row + 1) * ROW + 6 > scrollTop + clientHeight) this._scroller.scrollTop = Math.max(0, row * ROW - clientHeight / 2);
  }
}
