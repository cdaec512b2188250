/** The side panel: one request, where its time went, and why the cache held no more of it. */

import { copyOnClick } from "../copy.js";
import { el } from "../dom.js";
import { clock, count, durationText, MISSING } from "../format.js";
import { sharesOf } from "./causes.js";
import { spansOf } from "./spans.js";
import { stateText } from "./table.js";

const ms = (seconds) => durationText(seconds === null || seconds === undefined ? null : seconds * 1000);

/**
 * @param {object} detail body of GET /telemetry/requests/{id}
 * @param {{steps: object|null, rank: object|null, hasReplay: boolean, onCancel: () => void}} known
 * @returns {Node[]}
 */
export function panelOf(detail, { steps, rank, hasReplay, onCancel }) {
  return [
    badges(detail, rank),
    links(detail, { hasReplay, onCancel }),
    detail.message ? el("p", { class: "failure" }, detail.message) : "",
    section("Where its time went", attributionBar(detail.attribution)),
    section("Waterfall", waterfall(spansOf(detail, steps), detail.attribution.wall_s)),
    section("Prefix cache", ...cache(detail.cache)),
    section("Numbers", facts(detail)),
  ].filter((part) => part !== "");
}

function section(title, ...content) {
  return el("section", {}, el("h3", {}, title), ...content);
}

function badges(detail, rank) {
  const told = [el("span", { class: "badge" }, stateText(detail))];
  if (detail.ttft_s !== null) {
    const place = rank ? ` is p${rank.percentile} of the last ${count(rank.n)}` : "";
    const slow = rank && rank.percentile >= 90 ? "badge slow" : "badge";
    told.push(el("span", { class: slow, "data-badge": "ttft" }, `TTFT ${ms(detail.ttft_s)}${place}`));
  }
  told.push(el("span", { class: "badge" }, `arrived ${clock(detail.arrival)}`));
  return el("p", { class: "badges" }, ...told);
}

function links(detail, { hasReplay, onCancel }) {
  const parts = [];
  if (detail.phase !== "ended" && detail.phase !== "send") {
    parts.push(el("button", { type: "button", class: "danger", onclick: onCancel }, "Cancel request"));
  }
  parts.push(copyButton("Copy request id", detail.request_id));
  if (detail.trace_id) {
    parts.push(copyButton("Copy trace id", detail.trace_id));
    if (hasReplay) parts.push(el("a", { href: `#replay?trace_id=${encodeURIComponent(detail.trace_id)}` }, "Replay from its first step"));
    parts.push(el("a", { href: `api/telemetry/traces/${detail.trace_id}`, target: "_blank", rel: "noopener" }, "Spans (JSON)"));
  }
  parts.push(el("a", { href: `api/telemetry/requests/${detail.request_id}`, target: "_blank", rel: "noopener" }, "All of it (JSON)"));
  return el("p", { class: "links" }, ...parts);
}

function copyButton(label, text) {
  const button = el("button", { type: "button", class: "quiet", title: text }, label);
  copyOnClick(button, () => text);
  return button;
}

function attributionBar({ wall_s: wall, is_complete: isComplete, causes, beside }) {
  const parts = sharesOf(causes);
  const total = parts.reduce((sum, { seconds }) => sum + seconds, 0);
  if (!parts.length) return el("p", { class: "note" }, "Nothing yet.");
  const bar = el("div", { class: "attribution", "aria-hidden": "true" });
  const body = el("tbody");
  for (const { cause, seconds, percent } of parts) {
    const piece = el("span", { title: `${cause.label}: ${percent.toFixed(1)} %` });
    piece.style.flexGrow = String((100 * seconds) / total); // factors that add up to less than 1 leave a gap
    piece.style.background = `var(${cause.color})`;
    bar.append(piece);
    const swatch = el("span", { class: "swatch block", "aria-hidden": "true" });
    swatch.style.background = `var(${cause.color})`;
    body.append(
      el("tr", { title: cause.says }, el("th", { scope: "row" }, swatch, cause.label), el("td", {}, ms(seconds)), el("td", {}, `${percent.toFixed(1)} %`)),
    );
  }
  const sum = el("tr", { class: "sum" }, el("th", { scope: "row" }, isComplete ? "wall time" : "so far"), el("td", {}, ms(wall)), el("td", {}, "100.0 %"));
  const note = `Beside that, at no cost to it: ${ms(beside.detokenize_s)} of detokenizing, ${ms(beside.send_blocked_s)} of writes that waited for the reader.`;
  const table = el("table", { class: "causes" }, el("caption", { class: "visually-hidden" }, "Causes"), body, el("tfoot", {}, sum));
  return el("div", {}, bar, table, el("p", { class: "note" }, note));
}

function waterfall(spans, wall) {
  const total = Math.max(wall, 1e-9);
  const rows = spans.map((span) => {
    const bar = el("span", { class: `span ${span.kind}` });
    place(bar, span.start / total, span.end / total);
    const track = el("span", { class: "track", "aria-hidden": "true" }, bar);
    for (const mark of span.marks) {
      const stripe = el("span", { class: "span interference" });
      place(stripe, mark.start / total, mark.end / total);
      track.append(stripe);
    }
    const said = `${span.label} at ${ms(span.start)} for ${ms(span.end - span.start)}${span.detail ? `: ${span.detail}` : ""}`;
    return el("li", { title: said }, el("span", { class: "name" }, span.label), track, el("span", { class: "took" }, ms(span.end - span.start)), el("span", { class: "visually-hidden" }, `at ${ms(span.start)} ${span.detail}`));
  });
  const axis = el("p", { class: "axis", "aria-hidden": "true" }, el("span", {}, "0"), el("span", {}, ms(total / 2)), el("span", {}, ms(total)));
  const marked = spans.some((span) => span.marks.length);
  const note = marked ? el("p", { class: "note" }, "Stripes on decode: steps that others’ prefill made longer.") : "";
  return el("div", { class: "waterfall" }, axis, el("ol", {}, ...rows), note);
}

function place(node, from, to) {
  node.style.left = `${100 * from}%`;
  node.style.width = `${100 * Math.max(0, to - from)}%`;
}

function cache(explanation) {
  if (!explanation) return [el("p", { class: "note" }, "Not looked up yet.")];
  const { num_prompt_tokens: prompt, num_matched_tokens: matched, why, explanation: sentence, divergence } = explanation;
  const found = `${count(matched)} of ${count(prompt)} prompt tokens found. ${sentence}`;
  const parts = [el("p", {}, why ? el("span", { class: "badge" }, why) : "", ` ${found}`)];
  if (!divergence) return parts;
  const { position, block_number: number, expected_token: expected, actual_token: actual, text } = divergence;
  parts.push(el("p", { class: "note" }, `At position ${count(position)}, in block ${number < 0 ? MISSING : count(number)} of the prompt: the cache has token ${expected}, this prompt has ${actual}.`));
  if (text) {
    const cached = el("del", { title: `token ${expected}, in the cache` }, text.expected || "∅");
    const here = el("ins", { title: `token ${actual}, in this prompt` }, text.actual || "∅");
    parts.push(el("pre", { class: "divergence", dir: "auto", tabindex: "0", "aria-label": "Prompt around the divergence" }, text.before, cached, here, text.after));
  } else parts.push(el("p", { class: "note" }, "The text around it is shown when the server runs with --log-content."));
  return parts;
}

function facts(detail) {
  const known = [
    ["route", detail.route],
    ["model", detail.model],
    ["prompt", `${count(detail.num_prompt_tokens)} tokens, ${count(detail.num_cached_tokens)} cached`],
    ["computed", `${count(detail.num_computed_tokens)} tokens${detail.num_recomputed_tokens ? `, ${count(detail.num_recomputed_tokens)} more again` : ""}`],
    ["output", `${count(detail.num_output_tokens)} of at most ${count(detail.max_tokens)} tokens`],
    ["TTFT, engine side", ms(detail.ttft_engine_s)],
    ["time per output token", ms(detail.tpot_s)],
    ["largest stall", ms(detail.stall_s)],
    ["queue", `${ms(detail.queue_s)}, ${ms(detail.first_queue_s)} of it before the first step`],
    ["preemptions", count(detail.num_preemptions)],
    ["choices", count(detail.choices.length)],
    ["request id", detail.request_id],
    ["trace id", detail.trace_id || MISSING],
  ];
  return el("dl", { class: "facts" }, ...known.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}
