/** The figures of load results as rows and columns of text. What had too few samples is a dash, never a guess. */

import { count, durationText, MISSING, number, percent } from "../format.js";

/** @returns {{title: string, subtitle: string, stage: object, part: object}[]} one column per stage of every part of the records */
export function columnsOf(records) {
  return records.flatMap((record) =>
    record.parts.flatMap((part) =>
      part.result.stages.map((stage) => ({
        title: record.label || record.id,
        subtitle: [record.sides[part.side].target, record.rounds > 1 && `round ${part.round + 1}`, stage.label].filter(Boolean).join(" · "),
        stage,
        part,
      })),
    ),
  );
}

const perSecond = (pick) => (stage) => withUnit(number(pick(stage)), "/s");
const tail = (metric, q) => (stage) => durationText(stage.metrics[metric]?.[q]);
const samples = (metric) => (stage) => count(stage.metrics[metric]?.count);

/** Sections of [row name, cell text of a stage, hint]. */
export const SECTIONS = [
  {
    title: "Requests",
    rows: [
      ["answered", (stage) => count(stage.counts.ok), "complete answers in the window"],
      ["errors", errorsText, "refused (429, 503) + failed; cut off by the end"],
      ["window", (stage) => durationText(stage.window_s * 1000), "time of sending, without the warm-up"],
      ["asked", perSecond(({ rates }) => rates.requests_planned), "that fell due; in a closed loop those that were begun"],
      ["sent", perSecond(({ rates }) => rates.requests_sent), "that got their connection"],
      ["done", perSecond(({ rates }) => rates.requests_done), ""],
    ],
  },
  {
    title: "Throughput and goodput",
    rows: [
      ["output", (stage) => `${number(stage.rates.output_tokens)} tok/s`, "tokens when they came, as the server counted"],
      ["prompt", (stage) => `${number(stage.rates.prompt_tokens)} tok/s`, "with the first token of their answer"],
      ["goodput", perSecond(({ rates }) => rates.goodput), "requests that met every SLO"],
      ["attainment", attainmentText, "good of all that fell due, failures included, with Wilson’s 95 % interval"],
    ],
  },
  {
    title: "Time to first token",
    rows: [
      ["p50", tail("time_to_first_token", "p50"), "from the moment it should have been sent"],
      ["p90", tail("time_to_first_token", "p90"), ""],
      ["p95", tail("time_to_first_token", "p95"), ""],
      ["p99", tail("time_to_first_token", "p99"), ""],
      ["n", samples("time_to_first_token"), "a tail without enough samples is left blank"],
    ],
  },
  {
    title: "Between tokens",
    rows: [
      ["p50", tail("inter_token_latency", "p50"), "each request’s mean gap"],
      ["p95", tail("inter_token_latency", "p95"), ""],
      ["p99", tail("inter_token_latency", "p99"), ""],
      ["longest gap, p95", tail("longest_gap", "p95"), "the worst stutter of a request"],
      ["n", samples("inter_token_latency"), ""],
    ],
  },
  {
    title: "Whole request",
    rows: [
      ["p50", tail("request_latency", "p50"), "from the moment it should have been sent to its end"],
      ["p95", tail("request_latency", "p95"), ""],
      ["p99", tail("request_latency", "p99"), ""],
      ["prompt tokens", (stage) => number(stage.metrics.input_sequence_length?.avg), "mean, as the server counted"],
      ["cached of them", (stage) => number(stage.metrics.cached_prompt_tokens?.avg), "mean"],
      ["output tokens", (stage) => number(stage.metrics.output_sequence_length?.avg), "mean"],
      ["fluidity", (stage) => withUnit(percent(stage.metrics.fluidity?.avg), "%"), "share of pieces that met their deadlines; needs TTFT and ITL bounds"],
    ],
  },
  {
    title: "The generator itself",
    rows: [
      ["late, worst", tail("request_dispatch_delay", "max"), "large: the generator was the bottleneck"],
      ["waited for a connection, worst", tail("connection_wait", "max"), "large: `max connections` was"],
    ],
  },
];

function errorsText(stage) {
  const { rejected, failed, cut } = stage.counts;
  return `${count(rejected)} + ${count(failed)}${cut ? `, ${count(cut)} cut` : ""}`;
}

export function attainmentText({ attainment }) {
  if (attainment.ratio === null) return MISSING;
  return `${percent(attainment.ratio)} % (${percent(attainment.low)}–${percent(attainment.high)}), ${attainment.good} of ${attainment.total}`;
}

/** A missing number has no unit. */
export function withUnit(text, unit) {
  return text === MISSING ? text : `${text} ${unit}`;
}

const DUELS = [
  ["output tok/s", (stage) => stage.rates.output_tokens, number, 1],
  ["goodput /s", (stage) => stage.rates.goodput, number, 1],
  ["TTFT p50", (stage) => stage.metrics.time_to_first_token?.p50, durationText, -1],
  ["between tokens p50", (stage) => stage.metrics.inter_token_latency?.p50, durationText, -1],
];

/**
 * Two servers that took turns: each figure of every round, and who was better in all of them.
 * @returns {{name: string, values: string[][], verdict: string}[]} values[side][round]; empty when there is nothing to compare
 */
export function duel(record) {
  if (record.sides.length < 2) return [];
  const stageOf = (part) => part.result.stages.at(-1);
  const turns = [0, 1].map((side) => record.parts.filter((part) => part.side === side && part.result.stages.length));
  const rounds = Math.min(turns[0].length, turns[1].length);
  if (!rounds) return [];
  return DUELS.map(([name, pick, text, better]) => {
    const values = turns.map((parts) => parts.slice(0, rounds).map((part) => pick(stageOf(part)) ?? null));
    return { name, values: values.map((side) => side.map(text)), verdict: verdict(values, better, rounds) };
  });
}

const SAME = 1.02; // a smaller factor is nothing to tell

/** A difference is only called one when every round agrees; how often chance alone would make them agree is said too. */
function verdict([a, b], better, rounds) {
  if ([...a, ...b].includes(null)) return "too few samples";
  const signs = a.map((value, round) => Math.sign(value - b[round]) * better);
  const middle = (values) => [...values].sort((x, y) => x - y)[Math.floor((values.length - 1) / 2)];
  const [low, high] = [middle(a), middle(b)].sort((x, y) => x - y);
  const factor = high / Math.max(1e-12, low);
  if (!signs[0] || signs.some((sign) => sign !== signs[0]) || factor < SAME) return "no clear difference";
  const winner = signs[0] > 0 ? "A" : "B";
  const chance = `chance alone: ${percent(2 ** (1 - rounds))} %`;
  return `${winner} better in ${rounds === 1 ? "the one round" : `all ${rounds} rounds`}, ${number(factor)} × (${chance})`;
}
