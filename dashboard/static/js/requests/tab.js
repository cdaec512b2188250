/** The Requests tab: who is here and who was, and why each took as long as it did. */

import { AskError, askJson, tellJson } from "../ask.js";
import { el, setText } from "../dom.js";
import { count } from "../format.js";
import { Poller } from "../poller.js";
import { panelOf } from "./panel.js";
import { rank, RequestRows, SHOWS, visibleRows } from "./rows.js";
import { Scatter } from "./scatter.js";
import { RequestTable } from "./table.js";

const KEPT = 2000;
const FIRST_RECENT = 1000;
const NEXT_RECENT = 100;
const SHOWN = 200;
const MAX_STEPS = 4000;

export function create(panel, page) {
  return new RequestsTab(panel, page);
}

class RequestsTab {
  constructor(root, page) {
    this._page = page;
    this._rows = new RequestRows(KEPT);
    this._view = { id: "", show: "all", query: "", sort: "" };
    this._detail = null;
    this._steps = null;
    this._numAsked = FIRST_RECENT;
    this._find = (selector) => root.querySelector(selector);
    this._scatter = new Scatter(this._find(".scatter .plot"), { onSelect: (id) => this._select(id, { focus: true }) });
    this._table = new RequestTable(this._find("table"), {
      onSelect: (id) => this._select(id, { focus: true }),
      onCancel: (id) => this._cancel(id),
      onSort: (field) => this._sort(field),
    });
    this._poller = new Poller((signal) => this._ask(signal), { onError: (error) => this._failed(error) });
    this._listen(root);
  }

  show(params) {
    const show = params.get("show") ?? "all";
    this._view = { id: params.get("id") ?? "", show: show in SHOWS ? show : "all", query: params.get("q") ?? "", sort: params.get("sort") ?? "" };
    this._traceId = params.get("trace_id") ?? "";
    this._find("#request-query").value = this._view.query;
    this._find("#request-show").value = this._view.show;
    if (this._detail?.request_id !== this._view.id) this._forgetDetail();
    this._poller.start();
    this._draw();
    if (this._poller.isRunning && this._rows.t) this._poller.now();
  }

  hide() {
    this._poller.stop();
  }

  key(event) {
    if (event.key === "Escape" && this._view.id) this._close();
    if (event.key === "/") {
      event.preventDefault();
      this._find("#request-query").focus();
    }
  }

  _listen(root) {
    this._find("#request-query").addEventListener("input", (event) => this._change({ query: event.target.value }));
    this._find("#request-show").addEventListener("change", (event) => this._change({ show: event.target.value }));
    this._find("#request-close").addEventListener("click", () => this._close());
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && event.target.closest("#request-detail")) this._close();
    });
  }

  async _ask(signal) {
    const answer = await askJson(`telemetry/requests?recent=${this._numAsked}`, { signal });
    this._numAsked = NEXT_RECENT;
    this._rows.take(answer);
    this._find("#request-failure").hidden = true;
    if (this._traceId) this._openTrace();
    this._draw();
    const isSettled = this._detail?.request_id === this._view.id && this._detail.attribution.is_complete;
    if (this._view.id && !isSettled) await this._askDetail(signal);
  }

  async _askDetail(signal) {
    const { id } = this._view;
    try {
      const detail = await askJson(`telemetry/requests/${encodeURIComponent(id)}`, { signal });
      const steps = await this._stepsOf(detail, signal);
      if (this._view.id !== id) return;
      this._detail = detail;
      this._steps = steps;
      this._drawPanel();
    } catch (error) {
      if (!(error instanceof AskError) || error.status !== 404 || this._view.id !== id) throw error;
      this._showPanel(id, el("p", { class: "note" }, "The server no longer knows this request: it keeps the newest ones only."));
    }
  }

  /** The engine's steps from its first chunk on; null when it had none, or they are gone. */
  async _stepsOf(detail, signal) {
    const first = detail.chunks[0]?.step;
    if (first === undefined) return null;
    try {
      return await askJson(`telemetry/steps?since=${first - 1}&limit=${MAX_STEPS}`, { signal });
    } catch (error) {
      if (error instanceof AskError) return null;
      throw error;
    }
  }

  _failed(error) {
    const box = this._find("#request-failure");
    setText(box, error.message);
    box.hidden = false;
  }

  // --- what the reader does ---

  _change(change) {
    Object.assign(this._view, change);
    const params = new URLSearchParams();
    for (const [name, value] of [["id", this._view.id], ["q", this._view.query], ["sort", this._view.sort]]) if (value) params.set(name, value);
    if (this._view.show !== "all") params.set("show", this._view.show);
    this._page.setParams("requests", params);
    this._draw();
  }

  /** First the largest, then the smallest, then as they came. */
  _sort(field) {
    const { sort } = this._view;
    this._change({ sort: sort === `-${field}` ? field : sort === field ? "" : `-${field}` });
  }

  _select(id, { focus = false } = {}) {
    if (this._view.id !== id) this._forgetDetail();
    this._change({ id });
    this._poller.now();
    if (focus) this._find("#request-title").focus({ preventScroll: false });
  }

  _openTrace() {
    const row = this._rows.ofTrace(this._traceId);
    this._traceId = "";
    if (row) this._change({ id: row.request_id });
  }

  _close() {
    const { id } = this._view;
    this._forgetDetail();
    this._change({ id: "" });
    this._table.focus(id);
  }

  _forgetDetail() {
    this._detail = null;
    this._steps = null;
  }

  async _cancel(id) {
    const status = this._find("#request-status");
    try {
      await tellJson(`telemetry/requests/${encodeURIComponent(id)}/cancel`, {});
      setText(status, `${id} is being cancelled.`);
    } catch (error) {
      setText(status, `${id} could not be cancelled: ${error.message}`);
    }
    this._poller.now();
  }

  // --- drawing ---

  _draw() {
    const { id, sort } = this._view;
    const rows = visibleRows(this._rows.all, this._view);
    this._table.show(rows.slice(0, SHOWN), { sort, selected: id });
    this._scatter.show(rows, { now: this._rows.t, selected: id });
    const cut = rows.length > SHOWN ? `the first ${SHOWN} of ` : "";
    setText(this._find("#request-count"), `${cut}${count(rows.length)} shown · ${count(this._rows.inFlight.length)} in flight`);
    this._find("#request-none").hidden = rows.length > 0 || !this._rows.t;
    this._find(".requests").classList.toggle("with-detail", id !== "");
    this._find("#request-detail").hidden = id === "";
    if (id && this._detail?.request_id !== id) this._showPanel(id, el("p", { class: "note" }, "Asking…"));
  }

  _drawPanel() {
    const detail = this._detail;
    const others = this._rows.ended.map((row) => row.ttft_s);
    const known = {
      steps: this._steps,
      rank: rank(detail.ttft_s, others),
      hasReplay: this._page.tabs.includes("replay"),
      onCancel: () => this._cancel(detail.request_id),
    };
    this._showPanel(detail.request_id, ...panelOf(detail, known));
  }

  _showPanel(id, ...parts) {
    setText(this._find("#request-title"), id);
    const body = this._find("#request-body");
    const hadFocus = body.contains(document.activeElement);
    body.replaceChildren(...parts);
    if (hadFocus) this._find("#request-title").focus();
  }
}
