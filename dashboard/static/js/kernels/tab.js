/** The Kernels tab: what the laboratory measured beside the running server: times, errors, the cost of a call. */

import { askJson } from "../ask.js";
import { el, setText } from "../dom.js";
import { clock, durationText, number } from "../format.js";
import { Poller } from "../poller.js";
import { checkRows, microseconds, timingGroups } from "./tables.js";

export function create(panel) {
  return new KernelsTab(panel);
}

class KernelsTab {
  constructor(root) {
    this._find = (selector) => root.querySelector(selector);
    this._drawn = 0;
    this._refresh = false;
    this._poller = new Poller((signal) => this._ask(signal), { onError: (error) => this._say(error.message, { isFailure: true }) });
    this._find("#kernels-again").addEventListener("click", () => {
      this._refresh = true;
      this._poller.now();
    });
  }

  show() {
    this._poller.start();
  }

  hide() {
    this._poller.stop();
  }

  async _ask(signal) {
    const path = this._refresh ? "kernels?refresh=1" : "kernels";
    this._refresh = false;
    const { state, progress = "", reason = "", report = null } = await askJson(path, { signal });
    this._find("#kernels-again").disabled = state === "measuring";
    if (state === "measuring") this._say(`Measuring: ${progress}. Serving goes first.`);
    else if (state === "failed") this._say(reason, { isFailure: true });
    else this._say("");
    if (report && report.conditions.measured_at !== this._drawn) this._draw(report);
    if (state !== "measuring") this._poller.stop();
  }

  _say(text, { isFailure = false } = {}) {
    const failure = this._find("#kernels-failure");
    setText(failure, isFailure ? text : "");
    failure.hidden = !isFailure;
    setText(this._find("#kernels-progress"), isFailure ? "" : text);
  }

  _draw({ conditions, backends, checks, timings, call_costs: costs }) {
    this._drawn = conditions.measured_at;
    this._find("#kernels-conditions").replaceChildren(...conditionsOf(conditions));
    this._find("#kernels-backends").replaceChildren(...backends.map(backendNode));
    this._find("#kernels-timings").replaceChildren(...timingGroups(timings).map(timingNode));
    this._find("#kernels-checks").replaceChildren(...checkRows(checks).map(checkNode));
    this._find("#kernels-costs").replaceChildren(...costs.map(costNode));
    this._find("#kernels-report").hidden = false;
  }
}

function conditionsOf(conditions) {
  const { measured_at: at, duration_s: took, load_average: load, niceness, num_threads: threads, num_cores: cores, instruction_set: set } = conditions;
  const said = [
    `measured at ${clock(at)} in ${durationText(took * 1000)}`,
    `${threads} of ${cores} cores`,
    set && `native kernels: ${set}`,
    load !== null && `load ${number(load)}`,
    niceness > 0 && `niceness ${niceness}: it gave way to others, so these are times of a machine in use`,
    `Python ${conditions.python}, NumPy ${conditions.numpy}, torch ${conditions.torch}`,
    conditions.compiler,
  ];
  return said.filter(Boolean).map((text) => el("li", {}, text));
}

function backendNode({ name, state, reason, version, device, kernels }) {
  const mark = { available: "badge good", failed: "badge bad" }[state] ?? "badge";
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, name),
    el("td", {}, el("span", { class: mark }, state)),
    el("td", {}, device || "–"),
    el("td", { class: "meaning" }, reason || `${version} · ${kernels.length} kernels`),
  );
}

function timingNode({ kernel, phase, shape, rows }) {
  const body = rows.map(({ backend, median_us: median, p25_us: low, p75_us: high, times, share, num_samples: n, calls_per_sample: calls }) => {
    const bar = el("span", { class: "span" });
    bar.style.width = `${100 * share}%`;
    const title = `${microseconds(low)} – ${microseconds(high)} (quartiles of ${n} samples of ${calls} calls)`;
    return el(
      "tr",
      { title },
      el("th", { scope: "row" }, backend),
      el("td", { class: "bar-cell", "aria-hidden": "true" }, el("span", { class: "track" }, bar)),
      el("td", { class: "number" }, microseconds(median)),
      el("td", { class: "number times" }, times === 1 ? "fastest" : `×${number(times)}`),
    );
  });
  const caption = el("caption", {}, el("strong", {}, kernel), ` ${phase}`, el("span", { class: "note" }, ` ${shape}`));
  return el("table", { class: "timing" }, caption, el("tbody", {}, ...body));
}

function checkNode({ kernel, backend, n, passed, worst }) {
  const error = worst.max_rel_error === null ? "not finite" : worst.max_rel_error.toExponential(1);
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, kernel),
    el("td", {}, backend),
    el("td", {}, el("span", { class: passed === n ? "badge good" : "badge bad" }, `${passed} of ${n}`)),
    el("td", { class: "number" }, error),
    el("td", { class: "number" }, worst.tolerance.toExponential(0)),
    el("td", { class: "meaning" }, `${worst.shape}, against ${worst.oracle}`),
  );
}

function costNode({ binding, arguments: given, interpreter_lock: lock, median_ns: median, p25_ns: low, p75_ns: high }) {
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, binding),
    el("td", {}, given),
    el("td", {}, lock),
    el("td", { class: "number" }, `${number(median)} ns`),
    el("td", { class: "number" }, `${number(low)} – ${number(high)} ns`),
  );
}
