/** Everything that draws one session: overview, lanes, wall, prefix tree, list, inspector, tables. */

import { DataTables } from "./data_table.js";
import { EventList } from "./event_list.js";
import { Inspector } from "./inspector.js";
import { Overview } from "./overview.js";
import { Timeline } from "./timeline.js";
import { TreeView } from "./tree_view.js";
import { Wall } from "./wall.js";

export class Views {
  /**
   * @param {HTMLElement} panel the tab's
   * @param {import("./palette.js").Palette} palette
   */
  constructor(panel, palette) {
    const part = (name) => panel.querySelector(`[data-part=${name}]`);
    this.overview = new Overview(part("overview"), palette);
    this.timeline = new Timeline(part("lanes"), palette, "Sequences");
    this.wall = new Wall(part("wall"), palette, "Blocks");
    this.tree = new TreeView(part("tree"), palette);
    this.list = new EventList(part("list"), panel.querySelector("#replay-filter"));
    this.inspector = new Inspector(part("event"), part("selected"));
    this.tables = new DataTables(part("tables"));
    this._counts = part("counts");
  }

  show(session) {
    for (const view of [this.overview, this.timeline, this.wall, this.tree, this.list, this.inspector, this.tables]) view.show(session);
    const count = () => this._showCounts(session.state.counts, session.trace.header.num_blocks);
    for (const name of ["cursor", "grown"]) session.addEventListener(name, count);
    session.addEventListener("cursor", () => {
      const { choice, block } = session.selection ?? {};
      if (choice !== undefined) this.timeline.reveal(choice);
      if (block !== undefined) this.wall.reveal(block);
    });
    count();
  }

  /** Draw everything again, in the next frame. */
  due() {
    for (const view of [this.overview, this.timeline, this.wall, this.tree]) view.surface.due();
    this.tables.due();
  }

  get canvases() {
    return [this.overview, this.timeline, this.wall, this.tree].map((view) => view.canvas);
  }

  _showCounts(counts, total) {
    for (const node of this._counts.querySelectorAll("[data-count]")) {
      const text = (node.dataset.count === "total" ? total : counts[node.dataset.count]).toLocaleString("en-US");
      if (node.textContent !== text) node.textContent = text;
    }
  }
}
