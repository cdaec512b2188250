/**
 * Which of the alerts in observability/prometheus/alerts.yml would fire, as far as `/stats` tells. No DOM.
 *
 * A rule holds or doesn't at a moment, and fires once it has held for `for_s`. Those that look at more than the page
 * has seen (an hour, thirty days) are Prometheus's alone.
 */

const DOWN_FOR_S = 30;

/**
 * @typedef {object} Rule
 * @property {string} name as in alerts.yml
 * @property {"page"|"ticket"} severity
 * @property {number} for_s
 * @property {(moment: {stats: object, history: import("../history.js").History, earlier: (seconds: number) => object|null}) => string} says
 *   why it holds; "" when it doesn't
 */

/** @type {Rule[]} */
export const RULES = [
  {
    name: "PellucidEngineDown", severity: "page", for_s: 60,
    says: ({ stats }) => (stats.engine.state === "down" ? "The engine process does not answer; requests get 503." : ""),
  },
  {
    name: "PellucidEngineRestarting", severity: "page", for_s: 0,
    says: ({ stats, earlier }) => {
      const before = earlier(900);
      const n = before ? stats.engine.restarts - before.restarts : 0;
      return n > 1 ? `The engine restarted ${n} times within 15 minutes.` : "";
    },
  },
  {
    name: "PellucidEngineStalled", severity: "page", for_s: 30,
    says: ({ stats, history }) => {
      const idle = history.length >= 60 && sum(history, "generated_tokens", 60) + sum(history, "prefill_tokens", 60) === 0;
      return stats.gauges.in_flight > 0 && idle ? `${stats.gauges.in_flight} requests are here and no token was computed for a minute.` : "";
    },
  },
  {
    name: "PellucidHeartbeatOld", severity: "page", for_s: 15,
    says: ({ stats: { engine } }) => (engine.state !== "down" && engine.heartbeat_age_s > 10 ? `The engine was last heard from ${Math.round(engine.heartbeat_age_s)} s ago.` : ""),
  },
  {
    name: "PellucidQueueOld", severity: "ticket", for_s: 60,
    says: ({ stats: { gauges } }) => (gauges.oldest_waiting_s > 30 ? `A request has waited ${Math.round(gauges.oldest_waiting_s)} s.` : ""),
  },
  {
    name: "PellucidKvPressure", severity: "ticket", for_s: 120,
    says: ({ stats: { gauges }, history }) => {
      const n = sum(history, "preemptions", 300);
      return gauges.kv.usage_ratio > 0.9 && n > 0 ? `The KV pool is ${Math.round(100 * gauges.kv.usage_ratio)} % referenced, with ${n} preemptions in five minutes.` : "";
    },
  },
  {
    name: "PellucidRecomputeWaste", severity: "ticket", for_s: 300,
    says: ({ history }) => {
      const all = sum(history, "prefill_tokens", 300) + sum(history, "generated_tokens", 300);
      const share = all ? sum(history, "recomputed_tokens", 300) / all : 0;
      return share > 0.1 ? `${Math.round(100 * share)} % of the tokens of five minutes had been computed before.` : "";
    },
  },
  {
    name: "PellucidEventsDropped", severity: "ticket", for_s: 0,
    says: ({ stats, earlier }) => {
      const before = earlier(600);
      const n = before ? stats.counters.events_dropped - before.eventsDropped : 0;
      return n > 0 ? `${n} engine events were lost within ten minutes: the other numbers miss something.` : "";
    },
  },
  {
    name: "PellucidSpansDropped", severity: "ticket", for_s: 0,
    says: ({ stats, earlier }) => {
      const before = earlier(600);
      const n = before ? spansDropped(stats) - before.spansDropped : 0;
      return n > 0 ? `${n} spans could not be delivered to the collector within ten minutes.` : "";
    },
  },
];

const KEPT_S = 900;

export class Alerts {
  /** @param {import("../history.js").History} history */
  constructor(history) {
    this._history = history;
    this._since = new Map();
    this._seen = []; // one small object a frame, of the last quarter of an hour
  }

  /**
   * @param {object} frame of the feed
   * @param {number} now seconds, ascending
   * @returns {{name: string, severity: string, text: string, isFiring: boolean, held_s: number}[]} firing ones first
   */
  at(frame, now) {
    if (!frame.connected) {
      return this._held([["PellucidScrapeDown", "page", DOWN_FOR_S, "The service does not answer."]], now);
    }
    const { stats } = frame;
    this._seen.push({ t: now, restarts: stats.engine.restarts, eventsDropped: stats.counters.events_dropped, spansDropped: spansDropped(stats) });
    while (this._seen[0].t < now - KEPT_S) this._seen.shift();
    const earlier = (seconds) => this._seen.find((each) => each.t >= now - seconds) ?? null;
    const moment = { stats, history: this._history, earlier };
    const holding = RULES.map(({ name, severity, for_s: wait, says }) => [name, severity, wait, says(moment)]);
    return this._held(holding.filter(([, , , text]) => text), now);
  }

  _held(holding, now) {
    const names = new Set(holding.map(([name]) => name));
    for (const name of this._since.keys()) if (!names.has(name)) this._since.delete(name);
    const alerts = holding.map(([name, severity, wait, text]) => {
      if (!this._since.has(name)) this._since.set(name, now);
      const held = now - this._since.get(name);
      return { name, severity, text, isFiring: held >= wait, held_s: held };
    });
    return alerts.sort((a, b) => Number(b.isFiring) - Number(a.isFiring));
  }
}

function spansDropped(stats) {
  return Object.values(stats.tracing.spans_dropped).reduce((all, n) => all + n, 0);
}

function sum(history, name, seconds) {
  let total = 0;
  for (let i = Math.max(0, history.length - seconds); i < history.length; i++) total += history.at(name, i) || 0;
  return total;
}
