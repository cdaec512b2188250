/** A load while it runs, or its timeline afterwards: a line of counts and four charts over one time axis. */

import { Chart } from "../chart.js";
import { Columns } from "../columns.js";
import { Cursor } from "../cursor.js";
import { setText } from "../dom.js";
import { count, durationText, number } from "../format.js";
import { withUnit } from "./figures.js";

const CAPACITY = 3600;
const NAMES = [
  "t", "rate_asked", "rate_sent", "rate_done", "in_flight", "waiting", "output_tokens_per_s", "ttft_p50_ms", "ttft_p95_ms",
  "itl_p50_ms", "itl_p95_ms",
];

const CHARTS = {
  rates: {
    format: (value) => withUnit(number(value), "/s"),
    axisFormat: number,
    series: [
      { key: "rate_asked", label: "asked", color: "--axis", dashed: true },
      { key: "rate_sent", label: "sent", color: "--running" },
      { key: "rate_done", label: "done", color: "--decode", filled: true },
    ],
  },
  flight: {
    format: number,
    series: [
      { key: "in_flight", label: "in flight", color: "--running", filled: true },
      { key: "waiting", label: "waiting for a connection", color: "--waiting", dashed: true },
    ],
  },
  tokens: { format: (value) => withUnit(number(value), "tok/s"), axisFormat: number, series: [{ key: "output_tokens_per_s", label: "output", color: "--decode", filled: true }] },
  latency: {
    format: durationText,
    series: [
      { key: "ttft_p50_ms", label: "TTFT p50", color: "--p50" },
      { key: "ttft_p95_ms", label: "TTFT p95", color: "--p99", dashed: true },
      { key: "itl_p50_ms", label: "between tokens p50", color: "--p90" },
    ],
  },
};

const PHASES = { preparing: "preparing", warm_up: "warming up", running: "running", draining: "waiting for the last answers", done: "done" };

export class LiveView {
  /** @param {HTMLElement} root */
  constructor(root) {
    this._root = root;
    this._line = root.querySelector("#load-line");
    this._failure = root.querySelector("#load-last-error");
    this._cursor = new Cursor();
    this._columns = new Columns(NAMES, CAPACITY);
    this._charts = [...root.querySelectorAll("[data-load-chart]")].map(
      (figure) => new Chart(figure, { ...CHARTS[figure.dataset.loadChart], columns: this._columns, cursor: this._cursor }),
    );
    this._pending = false;
  }

  /** Begin anew. */
  clear() {
    this._columns.clear();
    this._part = -1;
    this._origin = 0;
    setText(this._line, "");
    setText(this._failure, "");
    this.draw();
  }

  /**
   * @param {number} part which turn it belongs to
   * @param {object} snapshot
   * @param {number} startedAt Unix seconds of that turn; those of its first snapshot hold for all
   */
  take(part, snapshot, startedAt) {
    if (part !== this._part) {
      this._part = part;
      this._origin = startedAt;
    }
    const row = Object.fromEntries(NAMES.map((name) => [name, [snapshot[name] ?? null]]));
    this._columns.append({ ...row, t: [this._origin + snapshot.elapsed_s] });
    setText(this._line, lineOf(snapshot));
    setText(this._failure, snapshot.last_error);
    this._failure.hidden = !snapshot.last_error;
    this.draw();
  }

  draw() {
    if (this._pending) return;
    this._pending = true;
    requestAnimationFrame(() => {
      this._pending = false;
      if (this._root.offsetParent === null || !this._columns.length) return;
      const start = this._columns.at("t", 0);
      const end = Math.max(start + 5, this._columns.lastTime());
      for (const chart of this._charts) chart.draw({ start, end });
      for (const chart of this._charts) chart.tell();
    });
  }
}

/** @returns {string} one line about a running load */
export function lineOf(snapshot) {
  const failed = snapshot.num_failed + snapshot.num_rejected;
  const asked = snapshot.rate_asked === null ? "" : ` of ${number(snapshot.rate_asked)} asked`;
  return [
    `${PHASES[snapshot.phase]}, ${Math.round(snapshot.elapsed_s)} s`,
    snapshot.num_stages > 1 ? `${snapshot.stage_label} (${snapshot.stage + 1} of ${snapshot.num_stages})` : snapshot.stage_label,
    `${count(snapshot.in_flight)} in flight`,
    `${count(snapshot.num_done)} done${snapshot.num_planned ? ` of ${count(snapshot.num_planned)}` : ""}`,
    `${count(failed)} failed`,
    `${number(snapshot.rate_done)} /s${asked}`,
    `${number(snapshot.output_tokens_per_s)} tok/s`,
  ].filter(Boolean).join(" · ");
}
