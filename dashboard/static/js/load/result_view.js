/** Results side by side: a column per stage, a row per figure; the knee of a sweep; two servers' duel. */

import { el } from "../dom.js";
import { number } from "../format.js";
import { columnsOf, duel, SECTIONS } from "./figures.js";
import { sweepChart } from "./sweep_chart.js";

const MAX_OPEN = 4;

/** @param {HTMLElement} root emptied and filled @param {object[]} records those to compare, in order */
export function showResults(root, records) {
  const columns = columnsOf(records);
  const parts = [];
  if (columns.length) parts.push(...records.flatMap(duelNodes), ...records.flatMap(sweepNodes), table(columns));
  parts.push(...cautionNodes(records));
  root.replaceChildren(...parts);
}

function table(columns) {
  const head = columns.map(({ title, subtitle }) => el("th", { scope: "col" }, title, el("span", { class: "sub" }, subtitle)));
  const bodies = SECTIONS.map(({ title, rows }) => {
    const lines = rows.map(([name, cell, hint]) => el("tr", {}, el("th", { scope: "row", title: hint || null }, name), ...columns.map(({ stage }) => el("td", {}, cell(stage)))));
    return el("tbody", {}, el("tr", { class: "section" }, el("th", { scope: "rowgroup", colspan: columns.length + 1 }, title)), ...lines);
  });
  const node = el("table", { class: "figures" }, el("thead", {}, el("tr", {}, el("td"), ...head)), ...bodies);
  return el("div", { class: "table-scroll", tabindex: "0", role: "group", "aria-label": "Figures" }, node);
}

function duelNodes(record) {
  const rows = duel(record);
  if (!rows.length) return [];
  const names = record.sides.map(({ target }, i) => `${"AB"[i]}: ${target}`);
  const lines = rows.map(({ name, values, verdict }) => el("tr", {}, el("th", { scope: "row" }, name), ...values.map((side) => el("td", {}, side.join(", "))), el("td", { class: "verdict" }, verdict)));
  const head = el("tr", {}, el("td"), ...names.map((name) => el("th", { scope: "col" }, name)), el("th", { scope: "col" }, "verdict"));
  return [
    el("h3", {}, `${record.label || record.id}: in turns, round by round`),
    el("div", { class: "table-scroll", tabindex: "0", role: "group", "aria-label": "Two servers in turns" }, el("table", { class: "figures" }, el("thead", {}, head), el("tbody", {}, ...lines))),
  ];
}

function sweepNodes(record) {
  return record.parts.filter(({ result }) => result.knee && result.stages.length > 1).flatMap(({ result, side, round }) => {
    const { concurrency, best_within_slos: best, why } = result.knee;
    const said = concurrency === null ? "No knee" : `Knee at ${concurrency} streams`;
    const within = best === null ? "" : ` Up to ${best} streams at least 95 % of the requests met the SLOs.`;
    return [
      el("h3", {}, `${record.label || record.id}, ${record.sides[side].target}${record.rounds > 1 ? `, round ${round + 1}` : ""}: ${said}`),
      el("p", { class: "note" }, `${why}.${within}`),
      sweepChart(result.stages, concurrency, number),
    ];
  });
}

function cautionNodes(records) {
  const nodes = records.flatMap((record) => {
    const texts = record.parts.flatMap(({ cautions, side, round }) => cautions.map((text) => `${record.sides[side].target}${record.rounds > 1 ? `, round ${round + 1}` : ""}: ${text}`));
    const errors = record.parts.flatMap(({ result }) => result.stages.flatMap(({ errors: found }) => Object.entries(found).map(([text, times]) => `${times} × ${text}`)));
    const failure = record.error ? [el("p", { class: "failure" }, `${record.label || record.id}: ${record.error}`)] : [];
    return [...failure, ...texts.map((text) => el("p", { class: "caution" }, text)), ...errors.map((text) => el("p", { class: "failure" }, text))];
  });
  if (nodes.length <= MAX_OPEN) return nodes;
  return [...nodes.slice(0, MAX_OPEN), el("details", {}, el("summary", {}, `${nodes.length - MAX_OPEN} more remarks`), ...nodes.slice(MAX_OPEN))];
}
