/**
 * An answer token by token: shaded by probability, the alternatives of the one under the pointer or the focus below.
 * One stop for the Tab key; arrows, Home and End move among the tokens.
 */

import { el } from "../dom.js";
import { alternatives, confidence, percentText, probability, visible } from "./token_texts.js";

const MAX_TOKENS = 4000;

export class TokenView {
  /** @param {import("./chat.js").TokenEntry[]} entries */
  constructor(entries) {
    this._entries = entries.slice(0, MAX_TOKENS);
    this._tokens = this._entries.map((entry, i) => this._token(entry, i));
    this._list = el("div", { class: "tokens", role: "listbox", "aria-label": "Tokens of this answer", tabindex: "-1" }, ...this._tokens);
    this._detail = el("div", { class: "alternatives", "aria-live": "polite" });
    const cut = entries.length > MAX_TOKENS ? [el("p", { class: "note" }, `the first ${MAX_TOKENS.toLocaleString("en-US")} of ${entries.length.toLocaleString("en-US")} tokens`)] : [];
    this.node = el("div", { class: "token-view" }, legend(), this._list, this._detail, ...cut);
    this._at = 0;
    this._listen();
    this._show(0, { focus: false });
  }

  _token(entry, i) {
    const text = visible(entry.token);
    const token = el("span", { class: `token ${confidence(entry)}`, role: "option", tabindex: i === 0 ? "0" : "-1", "data-index": i, "aria-selected": "false", dir: "auto" }, text);
    token.setAttribute("aria-label", `${text}, ${percentText(probability(entry))}`);
    return token;
  }

  _listen() {
    const indexOf = (event) => {
      const token = event.target.closest?.(".token");
      return token ? Number(token.dataset.index) : -1;
    };
    for (const name of ["pointerover", "focusin"]) {
      this._list.addEventListener(name, (event) => {
        const i = indexOf(event);
        if (i >= 0) this._show(i, { focus: false });
      });
    }
    this._list.addEventListener("keydown", (event) => {
      const last = this._tokens.length - 1;
      const moves = { ArrowLeft: this._at - 1, ArrowRight: this._at + 1, ArrowUp: this._at - 10, ArrowDown: this._at + 10, Home: 0, End: last };
      if (!(event.key in moves)) return;
      event.preventDefault();
      this._show(Math.min(last, Math.max(0, moves[event.key])), { focus: true });
    });
  }

  _show(i, { focus }) {
    const entry = this._entries[i];
    if (!entry) return;
    const before = this._tokens[this._at];
    before.tabIndex = -1;
    before.setAttribute("aria-selected", "false");
    this._at = i;
    const token = this._tokens[i];
    token.tabIndex = 0;
    token.setAttribute("aria-selected", "true");
    if (focus) token.focus();
    const rows = alternatives(entry).map(({ text, p, chosen }) => {
      const bar = el("span", { class: "probability", "aria-hidden": "true" });
      bar.style.setProperty("--share", String(p));
      return el("li", chosen ? { class: "chosen" } : {}, el("code", { dir: "auto" }, text), bar, el("span", { class: "share" }, percentText(p)), chosen ? el("span", { class: "visually-hidden" }, "chosen") : "");
    });
    this._detail.replaceChildren(el("p", { class: "note" }, `token ${i + 1} of ${this._entries.length}`), el("ol", {}, ...rows));
  }
}

function legend() {
  const names = [["sure", "≥ 90 %"], ["likely", "≥ 50 %"], ["open", "≥ 20 %"], ["unlikely", "≥ 5 %"], ["rare", "below"]];
  return el("ul", { class: "token-legend", "aria-label": "Shades" }, ...names.map(([name, label]) => el("li", {}, el("span", { class: `token ${name}`, "aria-hidden": "true" }, "a"), label)));
}
