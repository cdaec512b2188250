/** The Config tab: every setting, what it is, where that came from, what it does. */

import { askJson } from "../ask.js";
import { el, setText } from "../dom.js";
import { otherRows, settingRows, SOURCES } from "./settings.js";

export function create(panel, page) {
  return new ConfigTab(panel, page);
}

class ConfigTab {
  constructor(root, page) {
    this._page = page;
    this._find = (selector) => root.querySelector(selector);
    this._rows = [];
    this._find("#config-query").addEventListener("input", () => this._change());
    this._find("#config-changed").addEventListener("change", () => this._change());
  }

  show(params) {
    this._find("#config-query").value = params.get("q") ?? "";
    this._find("#config-changed").checked = params.get("changed") === "1";
    this._filter();
    this._ask();
  }

  key(event) {
    if (event.key !== "/") return;
    event.preventDefault();
    this._find("#config-query").focus();
  }

  async _ask() {
    const failure = this._find("#config-failure");
    try {
      const answer = await askJson("telemetry/config");
      failure.hidden = true;
      this._fill(answer);
    } catch (error) {
      setText(failure, error.message);
      failure.hidden = false;
    }
  }

  _fill(answer) {
    setText(this._find("#config-about"), `Pellucid ${answer.project_version}, models ${answer.models.join(", ")}.`);
    this._rows = settingRows(answer).map((row) => ({ row, node: settingNode(row) }));
    this._find("#config-rows").replaceChildren(...this._rows.map(({ node }) => node));
    this._find("#config-others").replaceChildren(
      ...otherRows(answer).map(([path, value]) => el("tr", {}, el("th", { scope: "row" }, el("code", {}, path)), el("td", {}, value))),
    );
    this._filter();
  }

  _change() {
    const params = new URLSearchParams();
    if (this._find("#config-query").value) params.set("q", this._find("#config-query").value);
    if (this._find("#config-changed").checked) params.set("changed", "1");
    this._page.setParams("config", params);
    this._filter();
  }

  _filter() {
    const words = this._find("#config-query").value.toLowerCase().split(/\s+/).filter(Boolean);
    const onlyChanged = this._find("#config-changed").checked;
    let shown = 0;
    for (const { row, node } of this._rows) {
      const text = Object.values(row).join(" ").toLowerCase();
      node.hidden = (onlyChanged && row.source === "default") || !words.every((word) => text.includes(word));
      if (!node.hidden) shown++;
    }
    setText(this._find("#config-count"), this._rows.length ? `${shown} of ${this._rows.length} settings` : "");
  }
}

function settingNode({ part, flag, variable, value, became, source, fallback, text }) {
  const outcome = became ? [el("span", { class: "became" }, ` → ${became}`)] : [];
  return el(
    "tr",
    { class: source === "default" ? null : "changed" },
    el("th", { scope: "row" }, el("code", {}, flag), el("span", { class: "variable" }, variable)),
    el("td", { class: "setting" }, value, ...outcome),
    el("td", {}, el("span", { class: "badge" }, SOURCES[source] ?? source)),
    el("td", { class: "meaning" }, text, el("span", { class: "variable" }, `${part} · default: ${fallback}`)),
  );
}
