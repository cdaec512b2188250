/** The rows behind a chart as a table, for those who would rather read, and for screen readers. */

import { el, setText } from "./dom.js";
import { clock } from "./format.js";

const MAX_ROWS = 60;

export class ChartTable {
  /**
   * @param {HTMLElement} figure
   * @param {{series: {key: string, label: string}[], columns: import("./columns.js").Columns, format: (value: number) => string}} chart
   */
  constructor(figure, { series, columns, format }) {
    const title = figure.querySelector("h3").textContent;
    this._series = series;
    this._columns = columns;
    this._format = format;
    this._body = el("tbody");
    const head = el("tr", {}, el("th", { scope: "col" }, "time"), ...series.map(({ label }) => el("th", { scope: "col" }, label)));
    const table = el("table", {}, el("caption", { class: "visually-hidden" }, title), el("thead", {}, head), this._body);
    this._box = el("div", { class: "chart-table", tabindex: "0", role: "region", "aria-label": `${title} as a table`, hidden: true }, table);
    this._button = el("button", { type: "button", class: "quiet as-table", "aria-expanded": "false", "aria-label": `${title} as a table` }, "Table");
    this._button.addEventListener("click", () => this._toggle());
    figure.querySelector("figcaption").append(this._button);
    figure.append(this._box);
  }

  /** @param {{start: number, end: number}} view epoch seconds; newest first, evenly thinned out to sixty rows */
  draw(view) {
    this._view = view;
    if (this._box.hidden) return;
    const columns = this._columns;
    const [first, last] = [columns.lowerBound(view.start), columns.lowerBound(view.end + 0.5)];
    const step = Math.max(1, Math.ceil((last - first) / MAX_ROWS));
    const rows = [];
    for (let i = last - 1; i >= first; i -= step) {
      rows.push([clock(columns.at("t", i)), ...this._series.map(({ key }) => this._format(columns.at(key, i)))]);
    }
    while (this._body.rows.length > rows.length) this._body.lastElementChild.remove();
    rows.forEach((cells, r) => {
      const row = this._body.rows[r] ?? this._body.appendChild(el("tr", {}, el("th", { scope: "row" }), ...this._series.map(() => el("td"))));
      cells.forEach((text, c) => setText(row.cells[c], text));
    });
  }

  _toggle() {
    this._box.hidden = !this._box.hidden;
    this._button.setAttribute("aria-expanded", String(!this._box.hidden));
    if (this._view) this.draw(this._view);
  }
}
