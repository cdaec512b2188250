/** The Live tab: tiles, alerts, and charts over one time axis that follows, holds still, or shows a range. */

import { Chart } from "../chart.js";
import { copyOnClick } from "../copy.js";
import { Cursor } from "../cursor.js";
import { toCurl } from "../curl.js";
import { el, setText } from "../dom.js";
import { Alerts } from "./alerts.js";
import { CHARTS } from "./charts.js";
import { Steps } from "./steps.js";
import { Tiles } from "./tiles.js";
import { View } from "./view.js";

export function create(panel, page) {
  return new LiveTab(panel, page);
}

class LiveTab {
  constructor(root, page) {
    this._page = page;
    this._columns = page.history;
    this._cursor = new Cursor();
    this._view = new View();
    this._tiles = new Tiles(root);
    this._alerts = new Alerts(page.history);
    this._charts = [...root.querySelectorAll("[data-chart]")].map(
      (figure) => new Chart(figure, { ...CHARTS[figure.dataset.chart], columns: this._columns, cursor: this._cursor }),
    );
    this._steps = new Steps(root.querySelector("#steps"));
    this._find = (selector) => root.querySelector(selector);
    this._span = this._find("#span");
    this._pause = this._find("#pause");
    this._shown = false;
    this._drawPending = false;
    this._listen(root);
  }

  show(params) {
    this._shown = true;
    this._view = View.from(params);
    this._changed();
  }

  /** Drawing costs nothing while the tab is hidden. */
  hide() {
    this._shown = false;
    this._steps.follow(false);
  }

  frame(frame) {
    this._showAlerts(this._alerts.at(frame, performance.now() / 1000));
    if (!frame.connected) return;
    if (this._view.mode === "live") {
      this._tiles.show(frame.stats);
      this._showIdle(frame.stats);
    }
    this._showMode();
    this._draw();
  }

  key(event) {
    const newest = this._columns.lastTime();
    const key = event.key.toLowerCase();
    if (key === "l") this._look(this._view.toggled(newest));
    else if (key === "+" || key === "-") this._look(this._view.zoomed(key === "+" ? 0.5 : 2, this._cursor.time, newest));
    else if (key === "escape" && this._view.mode === "range") this._look(new View({ span: this._view.span }));
  }

  /** @param {string} name what the ready-made request asks for */
  model(name) {
    const { serviceUrl, needsKey } = document.body.dataset;
    const body = { model: name, stream: true, messages: [{ role: "user", content: "Why is glass clear?" }] };
    const curl = toCurl(`${serviceUrl}/v1/chat/completions`, body, { needsKey: needsKey === "true", indent: 0 });
    setText(this._find("#curl"), curl);
  }

  _listen() {
    this._span.addEventListener("change", () => this._look(this._view.spanning(Number(this._span.value))));
    this._pause.addEventListener("click", () => this._look(this._view.toggled(this._columns.lastTime())));
    this._cursor.addEventListener("range", ({ detail: { start, end } }) => this._look(this._view.ranged(start, end)));
    copyOnClick(this._find("#copy-curl"), () => this._find("#curl").textContent);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this._draw());
  }

  _look(view) {
    this._view = view;
    this._page.setParams("live", view.params());
    this._changed();
  }

  _changed() {
    this._span.value = String(this._view.span);
    this._steps.follow(this._shown && this._view.mode === "live");
    this._showMode();
    this._draw();
  }

  _showMode() {
    const { mode, heldAt } = this._view;
    const numNew = heldAt === null ? 0 : this._columns.length - this._columns.lowerBound(heldAt + 0.5);
    const badge = this._find("#mode");
    badge.dataset.mode = mode;
    setText(badge, this._view.text(numNew));
    this._pause.setAttribute("aria-pressed", String(mode !== "live"));
    setText(this._pause, { live: "Pause", paused: "Resume", range: "Back to live" }[mode]);
  }

  _showAlerts(alerts) {
    const firing = alerts.filter((alert) => alert.isFiring).length;
    const head = firing ? `${firing} would fire` : alerts.length ? "none yet" : "none would fire";
    setText(this._find("#alert-count"), head);
    this._find("#alerts").classList.toggle("firing", firing > 0);
    const items = alerts.map(({ name, severity, text, isFiring, held_s: held }) => {
      const state = isFiring ? severity : `pending for ${Math.round(held)} s`;
      return el("li", { class: isFiring ? severity : "pending" }, el("strong", {}, name), ` ${text} `, el("span", { class: "badge" }, state));
    });
    const list = this._find("#alert-list");
    if (items.map((item) => item.textContent).join() !== [...list.children].map((item) => item.textContent).join()) list.replaceChildren(...items);
  }

  _showIdle(stats) {
    const busy = stats.gauges.in_flight > 0 || stats.window.decode_tokens_per_s > 0 || stats.window.prefill_tokens_per_s > 0;
    this._find("#idle").hidden = busy || stats.engine.state !== "ready";
  }

  _draw() {
    if (this._drawPending || !this._shown) return;
    this._drawPending = true;
    requestAnimationFrame(() => {
      this._drawPending = false;
      const view = this._view.window(this._columns.lastTime());
      if (!Number.isFinite(view.end)) return;
      for (const chart of this._charts) chart.draw(view);
      for (const chart of this._charts) chart.tell();
    });
  }
}
