/** The Raw metrics tab: what Prometheus would scrape, searchable, with what each means and how it moved since. */

import { askText } from "../ask.js";
import { el, setText } from "../dom.js";
import { count, durationText, MISSING, number } from "../format.js";
import { Poller } from "../poller.js";
import { matching, meanOf, parseExposition, quantileOf, totalOf } from "./exposition.js";
import { Sparkline } from "./sparkline.js";

const INTERVAL_MS = 2000;
const MIN_FOR_P99 = 100;

const TYPES = {
  counter: "Only goes up; what matters is how fast. The line is its rate.",
  gauge: "A state that goes up and down. The line is its value.",
  histogram: "Observations in buckets. The line is how many come in a second.",
  info: "A fact in labels.",
};

export function create(panel, page) {
  return new MetricsTab(panel, page);
}

class MetricsTab {
  constructor(root, page) {
    this._page = page;
    this._query = root.querySelector("#metric-query");
    this._count = root.querySelector("#metric-count");
    this._failure = root.querySelector("#metric-failure");
    this._list = root.querySelector("#metric-list");
    this._items = new Map();
    this._families = [];
    this._asked = 0;
    this._poller = new Poller((signal) => this._ask(signal), { intervalMs: INTERVAL_MS, onError: (error) => this._failed(error) });
    this._query.addEventListener("input", () => {
      page.setParams("metrics", this._query.value ? new URLSearchParams({ q: this._query.value }) : new URLSearchParams());
      this._filter();
    });
  }

  show(params) {
    this._query.value = params.get("q") ?? "";
    this._poller.start();
    this._filter();
  }

  hide() {
    this._poller.stop();
  }

  key(event) {
    if (event.key !== "/") return;
    event.preventDefault();
    this._query.focus();
  }

  async _ask(signal) {
    const families = parseExposition(await askText("metrics", { signal }));
    const now = performance.now() / 1000;
    this._failure.hidden = true;
    for (const family of families) this._item(family).show(family, now);
    if (families.map((each) => each.name).join() !== this._families.map((each) => each.name).join()) {
      this._list.replaceChildren(...families.map((family) => this._items.get(family.name).node));
    }
    this._families = families;
    this._filter();
  }

  _failed(error) {
    setText(this._failure, error.message);
    this._failure.hidden = false;
  }

  _item(family) {
    if (!this._items.has(family.name)) this._items.set(family.name, new MetricItem(family));
    return this._items.get(family.name);
  }

  _filter() {
    const kept = new Set(matching(this._families, this._query.value).map((each) => each.name));
    for (const [name, item] of this._items) item.node.hidden = !kept.has(name);
    setText(this._count, this._families.length ? `${kept.size} of ${this._families.length} metrics` : "");
  }
}

class MetricItem {
  constructor(family) {
    this._value = el("span", { class: "value" });
    this._rate = el("span", { class: "rate" });
    this._line = new Sparkline();
    this._samples = el("div", { class: "samples" });
    this._last = null;
    const head = el("summary", {}, el("code", {}, family.name), el("span", { class: "badge", title: TYPES[family.type] ?? "" }, family.type), this._line.node, this._rate, this._value);
    this._details = el("details", {}, head, this._samples);
    this._details.addEventListener("toggle", () => this._showSamples());
    this.node = el("li", {}, this._details, el("p", { class: "note" }, family.help || "No help text."));
  }

  show(family, now) {
    this._family = family;
    const total = totalOf(family);
    const rate = this._last && now > this._last.now ? Math.max(0, total - this._last.total) / (now - this._last.now) : null;
    this._last = { now, total };
    const moves = family.type === "counter" || family.type === "histogram";
    if (!moves) this._line.add(total);
    else if (rate !== null) this._line.add(rate);
    setText(this._value, valueText(family, total));
    setText(this._rate, moves && rate !== null ? `${number(rate)} /s` : "");
    this._showSamples();
  }

  _showSamples() {
    if (!this._details.open || !this._family) return;
    const family = this._family;
    const summary = family.type === "histogram" ? [el("p", { class: "note" }, histogramText(family))] : [];
    const lines = family.samples.map(({ name, labels, value }) => {
      const inside = labels.map(([label, text]) => `${label}="${text}"`).join(", ");
      return `${name}${inside ? `{${inside}}` : ""}  ${Number.isInteger(value) ? count(value) : value}`;
    });
    const text = lines.join("\n");
    const shown = this._samples.querySelector("pre");
    if (shown?.textContent === text) return;
    this._samples.replaceChildren(...summary, el("pre", { tabindex: "0", "aria-label": `Samples of ${family.name}` }, text));
  }
}

function valueText(family, total) {
  if (!family.samples.length) return MISSING;
  if (family.type === "histogram") return `${count(total)} seen`;
  if (family.name.endsWith("_seconds") && family.samples.length === 1 && total < 1e6) return durationText(total * 1000);
  return Number.isInteger(total) ? count(total) : number(total);
}

function histogramText(family) {
  const n = totalOf(family);
  if (!n) return "Nothing observed yet.";
  const write = family.name.endsWith("_seconds") ? (value) => durationText(value === null ? null : value * 1000) : number;
  const p99 = n < MIN_FOR_P99 ? `p99 needs ${MIN_FOR_P99}` : `p99 ${write(quantileOf(family, 0.99))}`;
  return `Since the start, all labels together, as the buckets have it: mean ${write(meanOf(family))}, p50 ${write(quantileOf(family, 0.5))}, ${p99}, n ${count(n)}.`;
}
