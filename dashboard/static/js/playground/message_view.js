/** One turn of the conversation on the page: text, branch arrows, actions, numbers. */

import { el, setText } from "../dom.js";
import { durationText } from "../format.js";
import { answerNumbers } from "./answer_numbers.js";
import { MarkdownView } from "./markdown_view.js";
import { TokenView } from "./token_view.js";

/**
 * @typedef {object} Actions
 * @property {(turn: object, by: number) => void} move to another branch
 * @property {(turn: object) => void} regenerate
 * @property {(turn: object) => void} proceed go on with an answer that was cut off
 * @property {(turn: object, content: string) => void} edit
 * @property {(turn: object, call: object, content: string) => void} answerCall
 */

export class MessageView {
  /**
   * @param {object} turn of the MessageTree; its `state` is "done", "streaming", "stopped" or "failed"
   * @param {Actions} actions
   */
  constructor(turn, actions) {
    this.turn = turn;
    this._actions = actions;
    this._shows = "rendered";
    this._isEdited = false;
    this._text = el("div", { class: turn.role === "assistant" ? "text markdown" : "text", dir: "auto" });
    this._markdown = turn.role === "assistant" ? new MarkdownView(this._text) : null;
    this._body = el("div", { class: "body" }, this._text);
    this._foot = el("div", { class: "foot" });
    this._end = el("div", { class: "end" });
    this._branches = el("span", { class: "branches" });
    const head = el("div", { class: "message-head" }, el("h3", {}, turn.name), this._branches);
    this.node = el("li", { class: `message ${turn.role}` }, head, this._body, this._end, this._foot);
    this._key = "";
  }

  /** Bring the page up to the turn's state; the text alone while it streams. */
  refresh(place, { busy, canProceed }) {
    const { turn } = this;
    if (!this._isEdited) this._showText();
    if (turn.state === "streaming") this._showProgress();
    const key = JSON.stringify([turn.state, place, busy, canProceed, this._shows, this._isEdited]);
    if (key === this._key) return;
    this._key = key;
    this._showBranches(place, busy);
    if (turn.state !== "streaming") this._end.replaceChildren(...this._ending());
    this._foot.replaceChildren(...(turn.state === "streaming" || this._isEdited ? [] : this._buttons({ busy, canProceed })));
  }

  _showText() {
    const { content, reasoning } = this.turn;
    if (!this._markdown) return setText(this._text, content);
    if (reasoning) {
      this._thoughts ??= this._body.insertBefore(el("details", { class: "reasoning" }, el("summary", {}, "Reasoning"), el("p", { dir: "auto" })), this._text);
      setText(this._thoughts.lastChild, reasoning);
    }
    if (this._shows === "rendered") this._markdown.set(content);
    return undefined;
  }

  _showProgress() {
    const { numPieces, startedMs } = this.turn;
    if (!this._live) this._end.replaceChildren((this._live = el("p", { class: "note" })));
    const waited = durationText(performance.now() - startedMs);
    setText(this._live, numPieces ? `${numPieces} chunks · ${waited}` : "waiting for the first token…");
  }

  _showBranches({ index, count }, busy) {
    if (count < 2) return this._branches.replaceChildren();
    const arrow = (by, sign, label) => el("button", { type: "button", class: "quiet", "aria-label": label, disabled: busy || index + by < 0 || index + by >= count, onclick: () => this._actions.move(this.turn, by) }, sign);
    const held = this._branches.contains(document.activeElement) ? [...this._branches.children].indexOf(document.activeElement) : -1;
    this._branches.replaceChildren(arrow(-1, "‹", "Previous branch"), el("span", {}, `${index + 1} / ${count}`), arrow(1, "›", "Next branch"));
    if (held >= 0) this._branches.children[held].focus();
    return undefined;
  }

  _ending() {
    const { turn } = this;
    const parts = (turn.toolCalls ?? []).map((call) => this._toolCall(call));
    if (turn.state === "stopped") parts.push(el("p", { class: "note" }, "Stopped. The server was told to give up this request."));
    if (turn.state === "failed") {
      const detail = turn.failure.detail ? [el("span", { class: "detail" }, turn.failure.detail)] : [];
      parts.push(el("p", { class: "failure", role: "alert" }, turn.failure.message, ...detail));
    }
    if (turn.result) {
      const items = answerNumbers(turn.result, turn.finishReason).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
      parts.push(el("dl", { class: "metrics" }, ...items));
    }
    if (turn.links?.length) {
      const links = turn.links.map(({ href, label }) => el("a", { href }, label));
      parts.push(el("p", { class: "note links" }, ...links));
    }
    return parts;
  }

  _toolCall(call) {
    const answer = el("textarea", { rows: 1, "aria-label": `Result of ${call.function.name}`, placeholder: "What the tool returns" });
    const send = el("button", { type: "button", onclick: () => answer.value.trim() && this._actions.answerCall(this.turn, call, answer.value) }, "Send result");
    return el("div", { class: "tool-call" }, el("p", {}, "calls ", el("code", {}, call.function.name)), el("pre", { tabindex: "0" }, call.function.arguments), el("div", { class: "tool-answer" }, answer, send));
  }

  _buttons({ busy, canProceed }) {
    const { turn } = this;
    const button = (label, onclick, props = {}) => el("button", { type: "button", class: "quiet", onclick, ...props }, label);
    const copy = button("Copy", async () => {
      await navigator.clipboard.writeText(turn.content);
      setText(copy, "Copied");
    });
    if (turn.role === "user") return [copy, button("Edit", () => this._edit(), { disabled: busy })];
    if (turn.role === "tool") return [copy];
    const buttons = [copy, button("Regenerate", () => this._actions.regenerate(turn), { disabled: busy })];
    if (canProceed && turn.finishReason === "length" && turn.content) buttons.push(button("Continue", () => this._actions.proceed(turn), { disabled: busy }));
    buttons.push(this._viewButton("source", "Source"));
    if (turn.tokens?.length) buttons.push(this._viewButton("tokens", "Tokens"));
    return buttons;
  }

  _viewButton(view, label) {
    return el("button", { type: "button", class: "quiet", "aria-pressed": String(this._shows === view), "data-view": view, onclick: () => this._switch(this._shows === view ? "rendered" : view) }, label);
  }

  _switch(view) {
    this._shows = view;
    const { turn } = this;
    if (view === "tokens") this._body.replaceChildren(new TokenView(turn.tokens).node);
    else if (view === "source") this._body.replaceChildren(el("pre", { class: "source", tabindex: "0", dir: "auto" }, turn.content));
    else this._body.replaceChildren(...(this._thoughts ? [this._thoughts] : []), this._text);
    for (const button of this._foot.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", String(button.dataset.view === view));
  }

  _edit() {
    const input = el("textarea", { rows: 3, "aria-label": "Edit the message" });
    input.value = this.turn.content;
    const close = () => {
      this._isEdited = false;
      this._key = "";
      this._body.replaceChildren(this._text);
      this.node.querySelector(".foot").replaceChildren(...this._buttons({ busy: false, canProceed: false }));
    };
    const send = () => {
      if (!input.value.trim()) return;
      close();
      this._actions.edit(this.turn, input.value.trim());
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    });
    const buttons = [el("button", { type: "button", class: "quiet", onclick: close }, "Cancel"), el("button", { type: "button", class: "primary", onclick: send }, "Send as new branch")];
    this._isEdited = true;
    this._body.replaceChildren(el("div", { class: "editor" }, input, el("div", { class: "actions" }, ...buttons)));
    this._foot.replaceChildren();
    input.focus();
  }
}
