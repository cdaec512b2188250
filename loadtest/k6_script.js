// A staged ramp for k6 with thresholds:
//
//   k6 run -e BASE_URL=http://127.0.0.1:8100 loadtest/k6_script.js
//
// BASE_URL, MODEL, API_KEY, MAX_TOKENS, PEAK_RATE (requests a second), STAGE_S, SUMMARY_FILE.
//
// Requests arrive at a rate that doesn't wait for answers. k6 has no server-sent events: it hands over the body when it is
// complete, and `timings.waiting` ends at the response's head, which a streaming server sends at once. So time to first token
// and the rest are what the server says of itself in the stream's final chunk, which it does when asked with "timings": true;
// an answer without them counts as failed. `pellucid loadtest` measures the same from outside.
// @ts-check

import { check } from "k6";
import exec from "k6/execution";
import http from "k6/http";
import { Counter, Rate, Trend } from "k6/metrics";

const BASE_URL = (__ENV.BASE_URL || "http://127.0.0.1:8100").replace(/\/+$/, "");
const MAX_TOKENS = Number(__ENV.MAX_TOKENS || 32);
const PEAK_RATE = Number(__ENV.PEAK_RATE || 8);
const STAGE_S = Number(__ENV.STAGE_S || 20);
const WORDS = "stone light river glass window field morning paper engine signal garden number winter copper".split(" ");

/** Shares of PEAK_RATE at the end of each stage; the last two are the recovery. */
const RAMP = [0.125, 0.25, 0.5, 1, 1, 0.125, 0.125];

const ttft = new Trend("pellucid_ttft_ms");
const itl = new Trend("pellucid_itl_ms");
const queue = new Trend("pellucid_queue_ms");
const outputTokens = new Counter("pellucid_output_tokens");
const cachedTokens = new Counter("pellucid_cached_tokens");
const errors = new Rate("pellucid_errors");

/** @type {import("k6/options").Options} */
export const options = {
  scenarios: {
    staged_ramp: {
      executor: "ramping-arrival-rate",
      startRate: Math.max(1, Math.round(PEAK_RATE * 60 * RAMP[0])),
      timeUnit: "1m",
      preAllocatedVUs: 64,
      maxVUs: 512,
      stages: RAMP.map((share) => ({ duration: `${STAGE_S}s`, target: Math.round(PEAK_RATE * 60 * share) })),
      gracefulStop: "30s",
    },
  },
  thresholds: {
    checks: ["rate>0.99"],
    http_req_failed: ["rate<0.01"],
    pellucid_errors: ["rate<0.01"],
    pellucid_ttft_ms: ["p(95)<2000"],
    pellucid_itl_ms: ["p(95)<100"],
    // Naming the stages makes k6 report them one by one, so the knee can be read off.
    ...Object.fromEntries(RAMP.map((_, stage) => [`pellucid_ttft_ms{stage:${stage}}`, ["p(95)<10000"]])),
  },
  summaryTrendStats: ["count", "min", "avg", "med", "p(90)", "p(95)", "p(99)", "max"],
};

/** @returns {Record<string, string>} */
function headers() {
  const key = __ENV.API_KEY;
  return { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

/**
 * Ask for the model once, and fail before the ramp when the server isn't ready.
 *
 * @returns {{ model: string }}
 */
export function setup() {
  const ready = http.get(`${BASE_URL}/ready`);
  if (ready.status !== 200) {
    throw new Error(`${BASE_URL}/ready answered ${ready.status}`);
  }
  const models = /** @type {{ data: { id: string }[] }} */ (
    /** @type {unknown} */ (http.get(`${BASE_URL}/v1/models`, { headers: headers() }).json())
  );
  return { model: __ENV.MODEL || models.data[0].id };
}

/** @param {{ model: string }} data */
export default function run(data) {
  const stage = stageNow();
  const body = {
    model: data.model,
    messages: [{ role: "user", content: prompt() }],
    max_tokens: MAX_TOKENS,
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
    timings: true,
  };
  const response = http.post(`${BASE_URL}/v1/chat/completions`, JSON.stringify(body), {
    headers: headers(),
    tags: { stage },
    timeout: "120s",
  });
  const answer = response.status === 200 ? readStream(String(response.body)) : null;
  const passed = check(
    response,
    {
      "status is 200": () => response.status === 200,
      "stream is whole": () => answer !== null && answer.done && answer.finishReason !== "",
      "no error in the stream": () => answer !== null && answer.error === "",
      "server timings are there": () => answer !== null && answer.ttftMs !== null,
    },
    { stage },
  );
  errors.add(!passed, { stage });
  if (!passed || answer === null || answer.ttftMs === null) {
    return;
  }
  ttft.add(answer.ttftMs, { stage });
  if (answer.itlMs !== null) {
    itl.add(answer.itlMs, { stage });
  }
  if (answer.queueMs !== null) {
    queue.add(answer.queueMs, { stage });
  }
  outputTokens.add(answer.outputTokens, { stage });
  cachedTokens.add(answer.cachedTokens, { stage });
}

/**
 * The number of the ramp's stage that runs now.
 *
 * @returns {string}
 */
function stageNow() {
  const elapsed = (Date.now() - exec.scenario.startTime) / 1000;
  return String(Math.min(RAMP.length - 1, Math.max(0, Math.floor(elapsed / STAGE_S))));
}

/**
 * A sentence that no other iteration has, so that no answer comes from the prefix cache.
 *
 * @returns {string}
 */
function prompt() {
  const place = exec.scenario.iterationInTest;
  const words = Array.from({ length: 24 }, (_, n) => WORDS[(place * 7 + n * n + n) % WORDS.length]);
  return `Number ${place}: tell a story about ${words.join(", ")}.`;
}

/**
 * @typedef {object} Answer
 * @property {boolean} done whether `[DONE]` came
 * @property {string} finishReason
 * @property {string} error of an error event
 * @property {number} outputTokens as the server counted them
 * @property {number} cachedTokens
 * @property {number | null} ttftMs
 * @property {number | null} itlMs
 * @property {number | null} queueMs
 */

/**
 * Read a whole event stream.
 *
 * @param {string} text
 * @returns {Answer}
 */
export function readStream(text) {
  /** @type {Answer} */
  const answer = {
    done: false, finishReason: "", error: "", outputTokens: 0, cachedTokens: 0, ttftMs: null, itlMs: null, queueMs: null,
  };
  for (const line of text.split(/\r\n|\n|\r/)) {
    if (!line.startsWith("data:")) {
      continue;
    }
    const payload = line.slice(5).trim();
    if (payload === "[DONE]") {
      answer.done = true;
      continue;
    }
    let chunk;
    try {
      chunk = JSON.parse(payload);
    } catch {
      answer.error = "an event is no JSON";
      continue;
    }
    if (chunk.error) {
      answer.error = String(chunk.error.message || chunk.error);
    }
    for (const choice of chunk.choices || []) {
      answer.finishReason = choice.finish_reason || answer.finishReason;
    }
    if (chunk.usage) {
      answer.outputTokens = chunk.usage.completion_tokens;
      answer.cachedTokens = (chunk.usage.prompt_tokens_details || {}).cached_tokens || 0;
    }
    if (chunk.metrics) {
      answer.ttftMs = numberOrNull(chunk.metrics.time_to_first_token_ms);
      answer.itlMs = numberOrNull(chunk.metrics.mean_itl_ms);
      answer.queueMs = numberOrNull(chunk.metrics.queue_time_ms);
    }
  }
  return answer;
}

/**
 * @param {unknown} value
 * @returns {number | null}
 */
function numberOrNull(value) {
  return typeof value === "number" ? value : null;
}

/**
 * @param {{ metrics: Record<string, { values: Record<string, number>, thresholds?: Record<string, { ok: boolean }> }> }} data
 * @returns {Record<string, string>}
 */
export function handleSummary(data) {
  const lines = [];
  for (const [name, metric] of Object.entries(data.metrics).sort()) {
    if (/^(pellucid_|checks|http_req_failed|http_req_duration|dropped_iterations|iterations)/.test(name)) {
      const values = Object.entries(metric.values).map(([key, value]) => `${key}=${Number(value.toFixed(3))}`);
      const missed = Object.entries(metric.thresholds || {}).filter(([, threshold]) => !threshold.ok);
      lines.push(`${name}: ${values.join(" ")}${missed.map(([rule]) => `  MISSED ${rule}`).join("")}`);
    }
  }
  /** @type {Record<string, string>} */
  const output = { stdout: `${lines.join("\n")}\n` };
  if (__ENV.SUMMARY_FILE) {
    output[__ENV.SUMMARY_FILE] = JSON.stringify(data, null, 2);
  }
  return output;
}
