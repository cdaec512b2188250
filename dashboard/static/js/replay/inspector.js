/** What is known about the event at the cursor and about what is selected: why, and every field. */

import { el } from "../dom.js";
import { blockSentence } from "./block_pointer.js";
import { onceAFrame } from "./once_a_frame.js";
import { computedTokens, placeOf } from "./state.js";
import { timeText } from "./ticks.js";
import { shortName } from "./timeline.js";
import { milliseconds, whyOf } from "./why.js";

const MAX_TEXT = 400;
const SHOWN_APART = ["type", "seq", "t", "step"];

export class Inspector {
  /**
   * @param {HTMLElement} event where the event is told
   * @param {HTMLElement} selected where the selected sequence or block is told
   */
  constructor(event, selected) {
    this._event = event;
    this._selected = selected;
    this._session = null;
    this._due = onceAFrame(() => this._draw());
  }

  show(session) {
    this._session = session;
    for (const name of ["cursor", "grown"]) session.addEventListener(name, () => this._session === session && this._due());
    this._due();
  }

  _draw() {
    const session = this._session;
    const { trace, cursor, selection } = session;
    if (!trace.length) {
      this._event.replaceChildren(el("p", { class: "note" }, "The trace has no events yet."));
      return;
    }
    const event = trace.detail(cursor);
    const head = el("div", { class: "head" }, el("h4", {}, words(event.type)), el("span", { class: "note" }, `seq ${event.seq} · step ${event.step} · ${timeText(event.t - trace.t[0])}`));
    const why = el("div", { class: "why" }, ...whyOf(session, cursor).map((line) => el("p", { dir: "auto" }, cut(line))));
    this._event.replaceChildren(head, why, this._links(cursor), fields(event, SHOWN_APART));
    this._selected.replaceChildren(...this._selection(selection));
  }

  /** Buttons that select what the event names. */
  _links(i) {
    const { trace } = this._session;
    const links = [];
    if (trace.choice[i] >= 0) links.push(this._link(`Sequence ${shortName(trace, trace.choice[i])}`, { choice: trace.choice[i] }));
    if (trace.block[i] >= 0) links.push(this._link(`Block ${trace.block[i]}`, { block: trace.block[i] }));
    return el("div", { class: "links" }, ...links);
  }

  _link(text, selection) {
    return el("button", { type: "button", class: "quiet", dir: "auto", onclick: () => this._session.select(selection) }, text);
  }

  _seekLink(text, i) {
    return el("button", { type: "button", class: "quiet", onclick: () => this._session.seek(i) }, text);
  }

  _selection(selection) {
    if (selection?.choice !== undefined) return this._choice(selection.choice);
    if (selection?.block !== undefined) return this._block(selection.block);
    return [el("p", { class: "note" }, "Click a lane or a block to keep an eye on it.")];
  }

  _choice(choice) {
    const { trace, state, lanes } = this._session;
    const { request } = trace.choices[choice];
    const own = state.choices[choice];
    const whole = state.requests[request];
    const blocks = heldBlocks(state, choice);
    const rows = [
      ["request", trace.requestId(request)],
      ["state", whole?.end || own?.status || (whole?.queued ? "waiting" : "not there yet")],
      ["prompt", whole ? `${whole.prompt} tokens, ${whole.cached} cached` : "–"],
      ["computed", own ? `${computedTokens(own, whole)} tokens` : "–"],
      ["output", own ? `${own.output} tokens` : "–"],
      ["preempted", own ? `${own.preemptions}×` : "–"],
      ["block table", blocks.length ? blocks.join(" ") : "empty"],
    ];
    const lane = lanes.byChoice[choice];
    const links = lane ? [this._seekLink("First event", lane.first), this._seekLink("Last event", lane.last)] : [];
    return [el("h4", { dir: "auto" }, `Sequence ${shortName(trace, choice)}`), el("div", { class: "links" }, ...links), list(rows)];
  }

  _block(id) {
    const { trace, state } = this._session;
    const block = state.blocks[id];
    const links = [];
    if (block.last >= 0) links.push(this._seekLink("Its last event", block.last));
    for (let k = 0; k < Math.min(block.holders.length, 8); k += 2) links.push(this._link(shortName(trace, block.holders[k]), { choice: block.holders[k] }));
    const owners = [];
    for (let k = 0; k < block.holders.length; k += 2) owners.push(`${shortName(trace, block.holders[k])} [${block.holders[k + 1]}]`);
    const rows = [
      ["state", placeOf(block)],
      ["ref count", String(owners.length)],
      ["owners", owners.join(", ") || "none"],
      ["prefix tree", block.published ? (block.parent < 0 ? "a root" : `below block ${block.parent}`) : "not in it"],
    ];
    return [el("h4", {}, `Block ${id}`), el("p", { class: "visually-hidden" }, blockSentence(this._session, id)), el("div", { class: "links" }, ...links), list(rows)];
  }
}

/** Blocks of a sequence's table, in order. */
export function heldBlocks(state, choice) {
  const table = [];
  state.blocks.forEach((block, id) => {
    for (let k = 0; k < block.holders.length; k += 2) if (block.holders[k] === choice) table.push([block.holders[k + 1], id]);
  });
  return table.sort((x, y) => x[0] - y[0]).map(([, id]) => id);
}

function fields(event, without) {
  return list(Object.entries(event).filter(([name]) => !without.includes(name)).map(([name, value]) => [name, valueText(name, value)]));
}

function valueText(name, value) {
  if (typeof value === "number" && name.endsWith("_s")) return milliseconds(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

function list(rows) {
  return el("dl", {}, ...rows.flatMap(([name, value]) => [el("dt", {}, cut(name)), el("dd", { dir: "auto" }, cut(value) || "–")]));
}

const words = (type) => cut(String(type)).replaceAll("_", " ");

function cut(text) {
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}
