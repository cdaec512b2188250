/** One prompt in N requests, one after another and side by side: what batching is worth on this server. */

import { el, setText } from "../dom.js";
import { count, durationText, number } from "../format.js";
import { SseParser } from "../sse.js";
import { RaceState } from "./race_state.js";

const NAMES = { sequential: "One after another", concurrent: "Side by side" };

export class RaceView {
  /**
   * @param {HTMLElement} root
   * @param {() => {target: string, request: object, valid: boolean}} settings what the form beside it says now
   */
  constructor(root, settings) {
    const find = (selector) => root.querySelector(selector);
    this._settings = settings;
    this._form = find("#race-form");
    this._prompt = find("#race-prompt");
    this._lanes = find("#race-lanes");
    this._modes = find("#race-modes");
    this._start = find("#race-start");
    this._stop = find("#race-stop");
    this._results = find("#race-results");
    this._verdict = find("#race-verdict");
    this._abort = null;
    this._pending = false;
    this._rounds = [];
    this._form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this._abort) this._run();
    });
    this._stop.addEventListener("click", () => this._abort?.abort());
  }

  async _run() {
    const { target, request, valid } = this._settings();
    const content = this._prompt.value.trim();
    if (!valid || !content) return;
    const body = {
      target,
      lanes: Number(this._lanes.value),
      modes: this._modes.value.split(" "),
      request: { ...request, n: undefined, messages: [...request.messages, { role: "user", content }] },
    };
    this._state = new RaceState();
    this._rounds = [];
    this._results.replaceChildren();
    setText(this._verdict, "");
    this._verdict.classList.remove("failure");
    this._abort = new AbortController();
    this._busy(true);
    try {
      await this._stream(body);
      this._draw();
    } catch (error) {
      this._draw();
      setText(this._verdict, error.name === "AbortError" ? "Stopped." : error.message);
      this._verdict.classList.toggle("failure", error.name !== "AbortError");
    } finally {
      this._abort = null;
      this._busy(false);
    }
  }

  async _stream(body) {
    const response = await fetch("api/race", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: this._abort.signal,
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    const parser = new SseParser();
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      for (const event of parser.feed(value)) this._state.take(JSON.parse(event.data));
      this._drawSoon();
    }
  }

  _drawSoon() {
    if (this._pending) return;
    this._pending = true;
    requestAnimationFrame(() => {
      this._pending = false;
      this._draw();
    });
  }

  _draw() {
    this._state.rounds.forEach((round, i) => {
      if (!this._rounds[i]) {
        this._rounds[i] = roundNode(round);
        this._results.append(this._rounds[i].node);
      }
      showRound(this._rounds[i], round);
    });
    const factor = this._state.speedUp();
    if (factor === null) return;
    const n = this._state.rounds[0].lanes.length;
    setText(this._verdict, `Side by side, ${n} requests together make ${number(factor)} times as many tokens per second as one after another.`);
  }

  _busy(busy) {
    this._start.hidden = busy;
    this._stop.hidden = !busy;
  }
}

function roundNode(round) {
  const totals = el("dl", { class: "metrics" });
  const lanes = round.lanes.map((_, i) => {
    const text = el("p", { class: "lane-text", dir: "auto" });
    const note = el("p", { class: "note" });
    return { text, note, node: el("li", { class: "lane" }, el("h4", {}, String(i + 1)), text, note) };
  });
  const node = el("section", { class: "round" }, el("h3", {}, NAMES[round.mode]), totals, el("ol", { class: "lanes" }, ...lanes.map((lane) => lane.node)));
  return { node, totals, lanes };
}

function showRound({ totals, lanes }, round) {
  const sums = RaceState.totals(round);
  const pairs = [
    ["wall", round.wallMs === null ? "running…" : durationText(round.wallMs)],
    ["together", sums.tokensPerSecond === null ? "–" : `${number(sums.tokensPerSecond)} tok/s`],
    ["tokens", count(sums.tokens)],
    ["mean TTFT", durationText(sums.meanTtftMs)],
  ];
  if (sums.failed) pairs.push(["failed", String(sums.failed)]);
  const text = pairs.flat().join("|");
  if (totals.dataset.text !== text) {
    totals.dataset.text = text;
    totals.replaceChildren(...pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  }
  round.lanes.forEach((lane, i) => {
    lanes[i].node.dataset.state = lane.state;
    setText(lanes[i].text, lane.error || lane.text.slice(-600));
    setText(lanes[i].note, laneNote(lane));
  });
}

function laneNote(lane) {
  if (lane.state === "waiting") return "waits its turn";
  if (lane.state === "running") return "running…";
  if (lane.state === "failed") return "failed";
  const speed = lane.tokens > 1 && lane.totalMs > lane.ttftMs ? `${number(((lane.tokens - 1) / (lane.totalMs - lane.ttftMs)) * 1000)} tok/s` : "–";
  return `TTFT ${durationText(lane.ttftMs)} · ${speed} · ${count(lane.tokens)} tokens · ${count(lane.cachedTokens)} cached`;
}
