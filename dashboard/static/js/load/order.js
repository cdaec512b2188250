/** From the form's texts to the order of a load, and the words for its arrivals. */

/**
 * @param {Record<string, string|boolean>} form names and values of the inputs
 * @param {{sides: {target: string, model: string}[], trace: string, seed: number}} more seed: used when the form has none
 * @returns {object} the body of POST api/load/runs
 */
export function buildOrder(form, { sides, trace, seed }) {
  const plan = {
    arrivals: arrivals(form),
    duration_s: form.kind === "replay" ? 0 : number(form.duration_s) ?? 0, // a trace ends by itself
    num_requests: number(form.num_requests) ?? 0,
    warm_up_s: number(form.warm_up_s) ?? 0,
    seed: number(form.seed) ?? seed,
    ignore_eos: Boolean(form.ignore_eos),
    stop_when_saturated: Boolean(form.stop_when_saturated) && !["closed", "sweep"].includes(form.kind),
    slos: present({ ttft_ms: number(form.slo_ttft), itl_ms: number(form.slo_itl), e2e_ms: number(form.slo_e2e) }),
    ...present({ temperature: number(form.temperature), drain_s: number(form.drain_s), max_connections: number(form.max_connections) }),
  };
  if (form.kind !== "replay") {
    plan.prompt_tokens = lengths(form.prompt_kind, form.prompt_a, form.prompt_b);
    plan.output_tokens = lengths(form.output_kind, form.output_a, form.output_b);
    plan.shared_prefix = { share: (number(form.shared_share) ?? 0) / 100, groups: number(form.shared_groups) ?? 1 };
  }
  const order = { sides, plan, label: form.label ?? "" };
  if (sides.length > 1) order.rounds = number(form.rounds) ?? 2;
  if (form.kind === "replay") order.trace = trace;
  return order;
}

function arrivals(form) {
  const rate = number(form.rate);
  switch (form.kind) {
    case "closed":
      return { kind: "closed", concurrency: number(form.concurrency) };
    case "sweep":
      return { kind: "sweep", levels: form.levels.split(/[\s,]+/).filter(Boolean).map(Number) };
    case "gamma":
      return { kind: "gamma", rate, burstiness: number(form.burstiness) };
    case "ramp":
      return { kind: "ramp", start_rate: number(form.start_rate), end_rate: number(form.end_rate), over_s: number(form.over_s), spacing: form.spacing };
    case "replay":
      return { kind: "replay", time_scale: number(form.time_scale) ?? 1 };
    default:
      return { kind: form.kind, rate };
  }
}

function lengths(kind, a, b) {
  if (kind === "fixed") return { kind, tokens: number(a) };
  if (kind === "uniform") return { kind, min: number(a), max: number(b) };
  return { kind, mean: number(a), std: number(b) };
}

function number(text) {
  const trimmed = String(text ?? "").trim();
  return trimmed === "" ? undefined : Number(trimmed);
}

const present = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));

/** @returns {string} the arrivals of a plan in words */
export function arrivalWords(plan) {
  const { kind, ...of } = plan.arrivals;
  switch (kind) {
    case "closed":
      return of.concurrency === 1 ? "1 stream" : `${of.concurrency} streams`;
    case "sweep":
      return `sweep over ${of.levels.join(", ")} streams`;
    case "gamma":
      return `gamma, ${of.rate}/s, burstiness ${of.burstiness}`;
    case "ramp":
      return `ramp, ${of.start_rate}/s to ${of.end_rate}/s in ${of.over_s} s`;
    case "replay":
      return of.time_scale === 1 ? "replay of a trace" : `replay of a trace, time × ${of.time_scale}`;
    default:
      return `${kind}, ${of.rate}/s`;
  }
}
