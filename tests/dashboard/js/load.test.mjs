import assert from "node:assert/strict";
import { test } from "node:test";

import { attainmentText, columnsOf, duel, SECTIONS } from "../../../dashboard/static/js/load/figures.js";
import { lineOf } from "../../../dashboard/static/js/load/live_view.js";
import { arrivalWords, buildOrder } from "../../../dashboard/static/js/load/order.js";

const FORM = {
  kind: "closed", concurrency: "8", levels: "1, 2 4", rate: "2.5", burstiness: "0.25", start_rate: "1", end_rate: "10", over_s: "30",
  spacing: "poisson", time_scale: "", duration_s: "10", num_requests: "", warm_up_s: "", prompt_kind: "fixed", prompt_a: "128",
  prompt_b: "64", output_kind: "uniform", output_a: "8", output_b: "64", shared_share: "50", shared_groups: "2", slo_ttft: "1000",
  slo_itl: "", slo_e2e: "", temperature: "0", seed: "", max_connections: "", drain_s: "", rounds: "3", label: "", ignore_eos: true,
  stop_when_saturated: true,
};
const SIDE = { target: "service", model: "m" };
const order = (change = {}, sides = [SIDE]) => buildOrder({ ...FORM, ...change }, { sides, trace: "{}", seed: 42 });

test("order_holds_what_the_form_says_and_leaves_the_rest_to_the_library", () => {
  assert.deepEqual(order(), {
    sides: [SIDE],
    label: "",
    plan: {
      arrivals: { kind: "closed", concurrency: 8 },
      duration_s: 10,
      num_requests: 0,
      warm_up_s: 0,
      seed: 42,
      ignore_eos: true,
      stop_when_saturated: false,
      slos: { ttft_ms: 1000 },
      temperature: 0,
      prompt_tokens: { kind: "fixed", tokens: 128 },
      output_tokens: { kind: "uniform", min: 8, max: 64 },
      shared_prefix: { share: 0.5, groups: 2 },
    },
  });
});

test("order_has_the_arrivals_of_each_kind_and_nothing_of_the_others", () => {
  const cases = {
    sweep: { kind: "sweep", levels: [1, 2, 4] },
    constant: { kind: "constant", rate: 2.5 },
    poisson: { kind: "poisson", rate: 2.5 },
    gamma: { kind: "gamma", rate: 2.5, burstiness: 0.25 },
    ramp: { kind: "ramp", start_rate: 1, end_rate: 10, over_s: 30, spacing: "poisson" },
    replay: { kind: "replay", time_scale: 1 },
  };
  for (const [kind, arrivals] of Object.entries(cases)) {
    const made = order({ kind });
    assert.deepEqual(made.plan.arrivals, arrivals);
    assert.equal("trace" in made, kind === "replay");
    assert.equal("prompt_tokens" in made.plan, kind !== "replay");
    assert.equal(made.plan.duration_s, kind === "replay" ? 0 : 10);
    assert.equal(made.plan.stop_when_saturated, kind !== "sweep");
    assert.equal(typeof arrivalWords(made.plan), "string");
  }
});

test("order_of_two_servers_has_rounds", () => {
  assert.equal("rounds" in order(), false);
  assert.equal(order({}, [SIDE, { target: "other", model: "" }]).rounds, 3);
});

const distribution = (fields) => ({ unit: "ms", p50: null, p90: null, p95: null, p99: null, max: null, avg: null, count: 0, ...fields });

function stage({ output = 100, ttft = 50, count = 12 } = {}) {
  return {
    label: "8 streams",
    window_s: 10,
    counts: { ok: count, rejected: 1, failed: 2, cut: 0, warm_up: 3 },
    rates: { requests_planned: 2, requests_sent: 1.9, requests_done: 1.5, goodput: 1.2, output_tokens: output, prompt_tokens: 300 },
    attainment: { good: 12, total: 15, ratio: 0.8, low: 0.55, high: 0.93 },
    metrics: { time_to_first_token: distribution({ p50: ttft, count }), inter_token_latency: distribution({ p50: 7, count }) },
    errors: {},
  };
}

const record = (turns, sides = 1) => ({
  id: "load-1",
  label: "",
  sides: ["service", "other"].slice(0, sides).map((target) => ({ target })),
  rounds: turns.length / sides,
  parts: turns.map((of, i) => ({ side: i % sides, round: Math.floor(i / sides), result: { stages: [stage(of)] } })),
});

test("figures_of_too_few_samples_are_dashes_and_n_is_there", () => {
  const cells = Object.fromEntries(SECTIONS.map(({ title, rows }) => [title, Object.fromEntries(rows.map(([name, cell]) => [name, cell(stage())]))]));
  assert.deepEqual([cells["Time to first token"].p50, cells["Time to first token"].p99, cells["Time to first token"].n], ["50 ms", "–", "12"]);
  assert.equal(cells["Whole request"].fluidity, "–");
  assert.deepEqual([cells.Requests.asked, cells.Requests.done, cells.Requests.errors], ["2 /s", "1.5 /s", "1 + 2"]);
  assert.equal(cells["Throughput and goodput"].attainment, "80 % (55–93), 12 of 15");
  assert.equal(attainmentText({ attainment: { ratio: null } }), "–");
});

test("figures_have_a_column_for_each_stage_of_each_turn", () => {
  const columns = columnsOf([record([{}, {}, {}, {}], 2), record([{}])]);
  assert.deepEqual(columns.map(({ subtitle }) => subtitle), [
    "service · round 1 · 8 streams", "other · round 1 · 8 streams", "service · round 2 · 8 streams", "other · round 2 · 8 streams", "service · 8 streams",
  ]);
});

test("duel_calls_a_difference_only_when_every_round_agrees_and_says_what_chance_would_do", () => {
  const turns = (pairs) => record(pairs.flatMap(([a, b]) => [{ output: a }, { output: b }]), 2);
  const said = (pairs) => duel(turns(pairs))[0].verdict;
  assert.equal(said([[200, 100], [220, 110], [210, 105]]), "A better in all 3 rounds, 2 × (chance alone: 25 %)");
  assert.equal(said([[100, 200], [220, 110]]), "no clear difference");
  assert.equal(said([[101, 100], [101, 100]]), "no clear difference");
  assert.equal(said([[100, 150]]), "B better in the one round, 1.5 × (chance alone: 100 %)");
  assert.deepEqual(duel(turns([[200, 100]]))[0].values, [["200"], ["100"]]);
  assert.deepEqual(duel(record([{}])), []);
});

test("duel_knows_that_less_waiting_is_better_and_that_few_samples_say_nothing", () => {
  const rows = duel(record([{ ttft: 10 }, { ttft: 30 }, { ttft: 11 }, { ttft: 33 }], 2));
  assert.match(rows.find(({ name }) => name === "TTFT p50").verdict, /^A better in all 2 rounds, 3 ×/);
  const few = duel(record([{ ttft: null }, { ttft: 30 }], 2));
  assert.equal(few.find(({ name }) => name === "TTFT p50").verdict, "too few samples");
});

test("duel_of_a_run_cut_in_a_round_compares_the_whole_rounds_only", () => {
  const cut = record([{ output: 200 }, { output: 100 }, { output: 1 }], 2);
  assert.deepEqual(duel(cut)[0].values, [["200"], ["100"]]);
});

test("line_of_a_running_load_says_what_is_asked_and_what_is_done", () => {
  const snapshot = {
    phase: "running", elapsed_s: 4.2, stage: 0, num_stages: 2, stage_label: "1 stream", in_flight: 3, num_done: 10, num_planned: null,
    num_failed: 1, num_rejected: 2, rate_done: 2, rate_asked: 4, output_tokens_per_s: 90,
  };
  assert.equal(lineOf(snapshot), "running, 4 s · 1 stream (1 of 2) · 3 in flight · 10 done · 3 failed · 2 /s of 4 asked · 90 tok/s");
});
