/** The Live tab: tiles, charts over one time axis, pause. */

import { Chart } from "../chart.js";
import { Cursor } from "../cursor.js";
import { toCurl } from "../curl.js";
import { setText } from "../dom.js";
import { durationText, number } from "../format.js";
import { Tiles } from "./tiles.js";

const CHARTS = {
  throughput: {
    format: number,
    smooth: 5,
    series: [
      { key: "generated_tokens", label: "output tok/s", color: "--decode", filled: true },
      { key: "prefill_tokens", label: "prefill tok/s", color: "--prefill", dashed: true },
    ],
  },
  requests: {
    format: number,
    series: [
      { key: "running", label: "running", color: "--running", filled: true },
      { key: "waiting", label: "waiting", color: "--waiting", dashed: true },
    ],
  },
  ttft: {
    format: durationText,
    series: [
      { key: "ttft_p50_ms", label: "p50", color: "--p50" },
      { key: "ttft_p90_ms", label: "p90", color: "--p90" },
      { key: "ttft_p99_ms", label: "p99", color: "--p99", dashed: true },
    ],
  },
  itl: {
    format: durationText,
    series: [
      { key: "itl_p50_ms", label: "p50", color: "--p50" },
      { key: "itl_p99_ms", label: "p99", color: "--p99", dashed: true },
    ],
  },
  kv: {
    format: number,
    stacked: true,
    full: true,
    series: [
      { key: "kv_referenced", label: "referenced", color: "--kv-referenced" },
      { key: "kv_cached", label: "cached", color: "--kv-cached" },
      { key: "kv_free", label: "free", color: "--kv-free" },
    ],
  },
  batch: {
    format: number,
    stacked: true,
    series: [
      { key: "batch_decode", label: "decode tokens", color: "--decode" },
      { key: "batch_prefill", label: "prefill tokens", color: "--prefill" },
    ],
  },
};

export function create(panel, page) {
  return new LiveTab(panel, page.history);
}

class LiveTab {
  constructor(root, history) {
    this._columns = history;
    this._cursor = new Cursor();
    this._tiles = new Tiles(root);
    this._charts = [...root.querySelectorAll("[data-chart]")].map(
      (figure) => new Chart(figure, { ...CHARTS[figure.dataset.chart], columns: this._columns, cursor: this._cursor }),
    );
    this._span = root.querySelector("#span");
    this._pause = root.querySelector("#pause");
    this._idle = root.querySelector("#idle");
    this._pausedAt = null;
    this._numNew = 0;
    this._shown = false;
    this._seen = history.lastTime();
    this._drawPending = false;
    this._listen(root);
  }

  frame(frame) {
    if (!frame.connected) return;
    const newest = this._columns.lastTime();
    this._numNew += this._columns.length - this._columns.lowerBound(this._seen + 0.5);
    this._seen = newest;
    if (this._pausedAt === null) {
      this._numNew = 0;
      this._tiles.show(frame.stats);
      this._showIdle(frame.stats);
    }
    this._showPause();
    this._draw();
  }

  show() {
    this._shown = true;
    this._draw();
  }

  /** Drawing costs nothing while the tab is hidden. */
  hide() {
    this._shown = false;
  }

  key(event) {
    if (event.key.toLowerCase() === "l") this.togglePause();
  }

  togglePause() {
    this._pausedAt = this._pausedAt === null ? this._columns.lastTime() : null;
    this._numNew = 0;
    this._showPause();
    this._draw();
  }

  _listen(root) {
    this._span.addEventListener("change", () => this._draw());
    this._pause.addEventListener("click", () => this.togglePause());
    const copy = root.querySelector("#copy-curl");
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(root.querySelector("#curl").textContent);
      setText(copy, "Copied");
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this._draw());
  }

  _showPause() {
    const paused = this._pausedAt !== null;
    this._pause.setAttribute("aria-pressed", String(paused));
    setText(this._pause, paused ? (this._numNew ? `Resume · ${this._numNew} s new` : "Resume") : "Pause");
  }

  _showIdle(stats) {
    const busy = stats.gauges.in_flight > 0 || stats.window.decode_tokens_per_s > 0 || stats.window.prefill_tokens_per_s > 0;
    this._idle.hidden = busy || stats.engine.state !== "ready";
  }

  /** @param {string} name what the ready-made request asks for */
  model(name) {
    const { serviceUrl, needsKey } = document.body.dataset;
    const body = { model: name, stream: true, messages: [{ role: "user", content: "Why is glass clear?" }] };
    const curl = toCurl(`${serviceUrl}/v1/chat/completions`, body, { keyVariable: needsKey === "true" ? "PELLUCID_API_KEY" : "", indent: 0 });
    setText(this._idle.querySelector("#curl"), curl);
  }

  _draw() {
    if (this._drawPending || !this._shown) return;
    this._drawPending = true;
    requestAnimationFrame(() => {
      this._drawPending = false;
      const end = this._pausedAt ?? this._columns.lastTime();
      if (!Number.isFinite(end)) return;
      const view = { start: end - Number(this._span.value), end };
      for (const chart of this._charts) chart.draw(view);
    });
  }
}
