/** The Load tab: say what to send, watch it, compare what came. The dashboard's process does the sending. */

import { el, setText } from "../dom.js";
import { TargetPicker } from "../targets.js";
import { LiveView } from "./live_view.js";
import { buildOrder } from "./order.js";
import { showResults } from "./result_view.js";
import { RunsList } from "./runs_list.js";

const MAX_TRACE_BYTES = 16 << 20;

export function create(panel) {
  return new LoadTab(panel);
}

class LoadTab {
  constructor(root) {
    const find = (selector) => root.querySelector(selector);
    this._form = find("#load-form");
    this._start = find("#load-start");
    this._stop = find("#load-stop");
    this._problem = find("#load-problem");
    this._now = find("#load-now");
    this._nowTitle = find("#load-now-title");
    this._status = find("#load-status");
    this._results = find("#load-results");
    this._drop = find("#load-drop");
    this._file = find("#load-file");
    this._one = new TargetPicker(find("#load-target"), find("#load-model"));
    this._other = new TargetPicker(find("#load-other"), find("#load-other-model"), { none: "nobody" });
    this._live = new LiveView(this._now);
    this._list = new RunsList(find("#load-runs"));
    this._details = new Map(); // id -> record with its timelines, of loads that are over
    this._trace = "";
    this._source = null;
    this._running = "";
    this._shown = false;
    this._listen();
    this._showKind();
    this._refresh();
  }

  model() {
    this._one.refresh();
  }

  show() {
    this._shown = true;
    this._refresh();
    this._live.draw();
  }

  hide() {
    this._shown = false;
  }

  _listen() {
    this._form.addEventListener("submit", (event) => {
      event.preventDefault();
      this._begin();
    });
    this._form.addEventListener("change", () => this._showKind());
    this._other.addEventListener("change", () => this._showKind());
    this._stop.addEventListener("click", () => this._end());
    this._list.addEventListener("change", () => this._compare());
    this._list.addEventListener("forget", (event) => this._forget(event.detail));
    this._file.addEventListener("change", () => this._take(this._file.files[0]));
    this._drop.addEventListener("dragover", (event) => event.preventDefault());
    this._drop.addEventListener("drop", (event) => {
      event.preventDefault();
      this._take(event.dataTransfer.files[0]);
    });
  }

  /** Show the inputs that belong to what is chosen. */
  _showKind() {
    const values = this._values();
    for (const node of this._form.querySelectorAll("[data-for]")) {
      const [name, ...wanted] = node.dataset.for.split(" ");
      node.hidden = !wanted.includes(values[name]);
      for (const input of node.querySelectorAll("input, select")) input.disabled = node.hidden;
    }
    const isPair = this._other.target !== null;
    for (const node of this._form.querySelectorAll("[data-pair]")) node.hidden = !isPair;
    for (const side of ["prompt", "output"]) {
      const kind = values[`${side}_kind`];
      const [a, b] = { fixed: ["tokens", ""], uniform: ["from", "to"] }[kind] ?? ["mean", "std. deviation"];
      setText(this._form.querySelector(`label[for=load-${side}-a]`), a);
      setText(this._form.querySelector(`label[for=load-${side}-b]`), b || "–");
      this._form.querySelector(`#load-${side}-b`).closest(".field").hidden = !b;
    }
  }

  _values() {
    const values = {};
    for (const input of this._form.elements) if (input.name) values[input.name] = input.type === "checkbox" ? input.checked : input.value;
    return values;
  }

  async _take(file) {
    if (!file) return;
    if (file.size > MAX_TRACE_BYTES) return this._say("The trace is larger than 16 MiB.");
    this._trace = await file.text();
    const lines = this._trace.split("\n").filter((line) => line.trim()).length;
    setText(this._drop.querySelector("p"), `${file.name}: ${lines.toLocaleString("en-US")} requests`);
    return this._say("");
  }

  async _begin() {
    const sides = [this._one, this._other].filter(({ target }) => target).map(({ target, model }) => ({ target: target.name, model }));
    const order = buildOrder(this._values(), { sides, trace: this._trace, seed: 1 + Math.floor(Math.random() * 1e6) });
    this._say("");
    this._start.disabled = true;
    try {
      const run = await this._send("POST", "api/load/runs", order);
      this._list.picked = new Set([run.id]);
      await this._refresh();
    } catch (error) {
      this._say(error.message);
    } finally {
      this._start.disabled = false;
    }
  }

  async _end() {
    this._stop.disabled = true;
    try {
      if (this._running) await this._send("DELETE", `api/load/runs/${this._running}`);
    } catch (error) {
      this._say(error.message);
    } finally {
      this._stop.disabled = false;
    }
  }

  async _forget(id) {
    try {
      await this._send("DELETE", `api/load/runs/${id}`);
    } catch (error) {
      this._say(error.message);
    }
    await this._refresh();
  }

  async _send(method, url, body) {
    const response = await fetch(url, { method, headers: { "content-type": "application/json" }, body: body && JSON.stringify(body) });
    const answer = response.status === 204 ? null : await response.json();
    if (!response.ok) throw new Error(answer?.error?.message ?? `The dashboard answered ${response.status}.`);
    return answer;
  }

  async _refresh() {
    let runs;
    try {
      runs = (await this._send("GET", "api/load/runs")).runs;
    } catch {
      return; // the header says that the dashboard doesn't answer
    }
    if (!this._list.picked.size && runs.length) this._list.picked.add(runs[0].id);
    this._list.show(runs);
    const running = runs.find(({ state }) => state === "running");
    if (running) this._watch(running);
    else this._showIdle();
    await this._compare();
  }

  _watch(run) {
    if (this._running === run.id) return;
    this._source?.close();
    this._running = run.id;
    this._stop.hidden = false;
    this._now.hidden = false;
    this._live.clear();
    setText(this._nowTitle, `Running: ${run.label || run.id}`);
    setText(this._status, "The load has begun.");
    const source = new EventSource(`api/load/runs/${run.id}/live`);
    this._source = source;
    source.addEventListener("snapshot", (event) => {
      const { part, age_s: age, snapshot } = JSON.parse(event.data);
      this._live.take(part, snapshot, Date.now() / 1000 - age - snapshot.elapsed_s);
    });
    source.addEventListener("run", (event) => {
      const record = JSON.parse(event.data);
      if (record.state === "running") return;
      source.close();
      this._showIdle();
      setText(this._status, record.error ? `The load failed: ${record.error}` : "The load is over.");
      this._list.picked.add(record.id);
      this._refresh();
    });
    source.addEventListener("open", () => this._live.clear()); // a new connection begins with all snapshots
  }

  _showIdle() {
    this._source?.close();
    this._source = null;
    this._running = "";
    this._stop.hidden = true;
  }

  /** The picked results side by side, and the timeline of the newest of them when nothing runs. */
  async _compare() {
    const records = this._list.records;
    showResults(this._results, records);
    const newest = records.at(-1);
    if (this._running) return;
    this._now.hidden = !newest?.parts.length;
    if (this._now.hidden) return;
    const record = await this._detail(newest.id);
    if (!record || this._running || this._list.records.at(-1)?.id !== record.id) return;
    this._live.clear();
    setText(this._nowTitle, `${record.label || record.id}: over time`);
    record.parts.forEach(({ result }, part) => result.timeline.forEach((snapshot) => this._live.take(part, snapshot, result.started_at)));
  }

  async _detail(id) {
    try {
      if (!this._details.has(id)) this._details.set(id, await this._send("GET", `api/load/runs/${id}`));
      return this._details.get(id);
    } catch {
      return null;
    }
  }

  _say(problem) {
    this._problem.replaceChildren(...(problem ? [el("p", { class: "failure", role: "alert" }, problem)] : []));
  }
}
