/** What a race has shown so far, from the dashboard's events; and what it says about batching. */

/**
 * @typedef {object} Lane
 * @property {string} text
 * @property {"waiting"|"running"|"done"|"failed"} state
 * @property {number|null} ttftMs from when this lane's request was sent
 * @property {number|null} totalMs
 * @property {number|null} tokens as the server counted
 * @property {number|null} cachedTokens
 * @property {string} error
 */

/**
 * @typedef {object} Round
 * @property {"sequential"|"concurrent"} mode
 * @property {Lane[]} lanes
 * @property {number|null} wallMs from the first request's start to the last one's end; null while it runs
 */

const newLane = () => ({ text: "", state: "waiting", ttftMs: null, totalMs: null, tokens: null, cachedTokens: null, error: "" });

export class RaceState {
  constructor() {
    /** @type {Round[]} */
    this.rounds = [];
  }

  /** Take one event of the race's stream. */
  take(event) {
    if (event.type === "round") {
      this.rounds.push({ mode: event.mode, lanes: Array.from({ length: event.lanes }, newLane), wallMs: null });
      return;
    }
    const round = this.rounds.at(-1);
    if (event.type === "round_end") {
      round.wallMs = event.wall_ms;
      return;
    }
    const lane = round.lanes[event.lane];
    if (event.type === "start") lane.state = "running";
    else if (event.type === "text") lane.text += event.text;
    else if (event.type === "end") {
      Object.assign(lane, {
        state: event.error ? "failed" : "done",
        error: event.error,
        ttftMs: event.ttft_ms,
        totalMs: event.total_ms,
        tokens: event.tokens,
        cachedTokens: event.cached_tokens,
      });
    }
  }

  /** @returns {{tokens: number, tokensPerSecond: number|null, meanTtftMs: number|null, failed: number}} */
  static totals(round) {
    const done = round.lanes.filter(({ state }) => state === "done");
    const tokens = done.reduce((sum, lane) => sum + (lane.tokens ?? 0), 0);
    const firsts = done.map(({ ttftMs }) => ttftMs).filter((ms) => ms !== null);
    return {
      tokens,
      tokensPerSecond: round.wallMs ? (tokens / round.wallMs) * 1000 : null,
      meanTtftMs: firsts.length ? firsts.reduce((sum, ms) => sum + ms, 0) / firsts.length : null,
      failed: round.lanes.filter(({ state }) => state === "failed").length,
    };
  }

  /** @returns {number|null} how many times as many tokens per second side by side as one after another */
  speedUp() {
    const rate = (mode) => {
      const round = this.rounds.find((candidate) => candidate.mode === mode && candidate.wallMs !== null);
      return round && !RaceState.totals(round).failed ? RaceState.totals(round).tokensPerSecond : null;
    };
    const [alone, together] = [rate("sequential"), rate("concurrent")];
    return alone && together ? together / alone : null;
  }
}
