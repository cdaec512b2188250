/** The Playground tab: a branching conversation with a server, and the race of one prompt. */

import { toCurl } from "../curl.js";
import { setText } from "../dom.js";
import { count } from "../format.js";
import { targetPath, TargetPicker } from "../targets.js";
import { ChatError, streamChat } from "./chat.js";
import { ConversationView } from "./conversation_view.js";
import { buildRequest } from "./fields.js";
import { RaceView } from "./race_view.js";
import { SettingsForm } from "./settings_form.js";
import { MessageTree } from "./tree.js";

export function create(panel, page) {
  return new Playground(panel, page);
}

class Playground {
  constructor(root, page) {
    const find = (selector) => root.querySelector(selector);
    this._root = root;
    this._page = page;
    this._prompt = find("#prompt");
    this._send = find("#send");
    this._stop = find("#stop-answer");
    this._clear = find("#clear");
    this._hint = find("#conversation-hint");
    this._list = find("#conversation");
    this._status = find("#chat-status");
    this._curl = find("#chat-curl");
    this._copy = find("#copy-chat-curl");
    this._system = find("#system");
    this._wantsTokens = find("#want-tokens");
    this._sent = null;
    this._abort = null;
    this._tree = new MessageTree();
    this._view = new ConversationView(this._list, this._tree, this._actions());
    this._settings = new SettingsForm(find("#fields"));
    this._picker = new TargetPicker(find("#playground-target"), find("#playground-model"));
    this._race = new RaceView(find("#race"), () => ({ target: this._picker.target.name, request: this._request([]), valid: this._isValid() }));
    this._settings.show(this._picker.takes);
    this._listen(find);
    this._showCurl();
  }

  /** The dashboard's own service has (again) a model. */
  model() {
    if (this._picker.isOwn) this._picker.refresh();
  }

  _actions() {
    return {
      move: (turn, by) => {
        this._tree.move(turn, by);
        this._refresh();
      },
      regenerate: (turn) => this._answer(turn.parent),
      proceed: (turn) => this._proceed(turn),
      edit: (turn, content) => this._answer(this._tree.addBeside(turn, { role: "user", name: "You", content, state: "done" })),
      answerCall: (turn, call, content) => this._answerCall(turn, call, content),
    };
  }

  _listen(find) {
    find("#composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this._abort) this._ask();
    });
    this._prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        find("#composer").requestSubmit();
      }
    });
    this._root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this._abort?.abort();
    });
    find("#settings").addEventListener("submit", (event) => event.preventDefault());
    for (const source of [this._prompt, this._system, this._wantsTokens]) source.addEventListener("input", () => this._showCurl());
    this._settings.addEventListener("change", () => this._showCurl());
    this._picker.addEventListener("change", () => this._targetChanged());
    this._stop.addEventListener("click", () => this._abort?.abort());
    this._clear.addEventListener("click", () => this._forget());
    for (const button of this._root.querySelectorAll("[data-prompt]")) {
      button.addEventListener("click", () => {
        this._prompt.value = button.dataset.prompt;
        this._showCurl();
        this._prompt.focus();
      });
    }
    for (const button of this._root.querySelectorAll("[data-mode]")) button.addEventListener("click", () => this._switch(button.dataset.mode));
    this._copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(this._curl.textContent);
      setText(this._copy, "Copied");
      setTimeout(() => setText(this._copy, "Copy"), 1500);
    });
  }

  _targetChanged() {
    this._settings.show(this._picker.takes);
    this._wantsTokens.closest(".field").hidden = !this._picker.takes.has("logprobs");
    this._refresh();
    this._showCurl();
  }

  _switch(mode) {
    for (const button of this._root.querySelectorAll("[data-mode]")) button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
    this._root.querySelector("#chat").hidden = mode !== "chat";
    this._root.querySelector("#race").hidden = mode !== "race";
  }

  async _ask() {
    const content = this._prompt.value.trim();
    if (!content || !this._isValid()) return;
    this._prompt.value = "";
    await this._answer(this._tree.add(this._tree.leaf(), { role: "user", name: "You", content, state: "done" }));
  }

  async _answerCall(turn, call, content) {
    const tool = this._tree.add(turn, { role: "tool", name: call.function.name, content, toolCallId: call.id, state: "done" });
    await this._answer(tool);
  }

  /** Ask for the answer to `question`: one new branch below it, or `n` of them. */
  async _answer(question) {
    if (this._abort || !this._isValid()) return;
    const request = this._request(this._tree.messagesUpTo(question));
    const turns = Array.from({ length: request.n ?? 1 }, () => this._newAnswer(question, ""));
    question.chosen -= turns.length - 1; // the first of them is shown
    await this._run(request, turns);
  }

  /** Go on with an answer that was cut off, in a branch beside it. */
  async _proceed(turn) {
    if (this._abort || !this._isValid()) return;
    const request = { ...this._request(this._tree.messagesUpTo(turn)), continue_final_message: true, add_generation_prompt: false };
    delete request.n;
    await this._run(request, [this._newAnswer(turn.parent, turn.content)]);
  }

  _newAnswer(question, begun) {
    const name = this._picker.model || "Model";
    return this._tree.add(question, { role: "assistant", name, content: begun, begun, state: "streaming", numPieces: 0, startedMs: performance.now() });
  }

  async _run(request, turns) {
    this._sent = request;
    this._abort = new AbortController();
    this._busy(true);
    this._showCurl();
    this._refresh();
    this._view.scrollToEnd();
    try {
      const result = await streamChat(targetPath(this._picker.target.name, "/v1/chat/completions"), request, {
        signal: this._abort.signal,
        onOpen: (ids) => turns.forEach((turn) => (turn.links = this._links(ids))),
        onChoice: (index, choice) => this._take(turns[index], choice),
      });
      for (const turn of turns) Object.assign(turn, { state: "done", result });
      setText(this._status, `Answer complete, ${count(result.usage?.completion_tokens)} tokens.`);
    } catch (error) {
      for (const turn of turns) this._fail(turn, error);
    } finally {
      this._abort = null;
      this._busy(false);
      this._refresh();
      this._showCurl();
    }
  }

  _take(turn, choice) {
    if (!turn) return;
    const { reasoning, tokens, toolCalls, finishReason } = choice;
    Object.assign(turn, { content: turn.begun + choice.text, reasoning, tokens, toolCalls, finishReason, numPieces: turn.numPieces + 1 });
    this._view.refreshSoon();
  }

  /** What was written stays where it is. */
  _fail(turn, error) {
    if (turn.finishReason) turn.state = "done";
    else if (error.name === "AbortError") {
      turn.state = "stopped";
      setText(this._status, "Stopped.");
    } else {
      const known = error instanceof ChatError;
      turn.state = "failed";
      turn.failure = {
        message: known ? error.message : "The connection to the dashboard was lost.",
        detail: known ? [error.type, error.param && `param ${error.param}`].filter(Boolean).join(" · ") : "",
      };
    }
  }

  /** Where the page shows more of this request, as far as it has such tabs. */
  _links({ traceId }) {
    if (!traceId || !this._picker.isOwn) return [];
    const tabs = [["requests", "why it took so long"], ["replay", "replay"]];
    return tabs
      .filter(([name]) => this._page.tabs.includes(name))
      .map(([name, label]) => ({ label, href: `#${name}?trace_id=${encodeURIComponent(traceId)}` }));
  }

  _isValid() {
    return this._settings.reportValidity();
  }

  _request(messages) {
    return buildRequest(this._picker.model, messages, {
      system: this._system.value,
      values: this._settings.values(),
      tokens: this._wantsTokens.checked,
      takes: this._picker.takes,
    });
  }

  /** What the draft would send; without a draft, what was sent last. */
  _showCurl() {
    const content = this._prompt.value.trim();
    const leaf = this._tree.leaf();
    const before = leaf ? this._tree.messagesUpTo(leaf) : [];
    const request = content ? this._request([...before, { role: "user", content }]) : this._sent;
    this._copy.disabled = request === null;
    if (request === null) return setText(this._curl, "Write a message: its request appears here.");
    const { url, keyVariable } = this._picker.target;
    return setText(this._curl, toCurl(`${url}/v1/chat/completions`, request, { keyVariable }));
  }

  _refresh() {
    this._hint.hidden = !this._tree.isEmpty;
    this._clear.disabled = this._tree.isEmpty || this._abort !== null;
    this._view.refresh({ busy: this._abort !== null, canProceed: this._picker.takes.has("continue_final_message") });
  }

  _busy(busy) {
    this._list.setAttribute("aria-busy", String(busy));
    this._send.hidden = busy;
    this._stop.hidden = !busy;
    if (!busy) this._prompt.focus({ preventScroll: true });
  }

  _forget() {
    this._tree = new MessageTree();
    this._view.forget(this._tree);
    this._sent = null;
    this._refresh();
    this._showCurl();
    this._prompt.focus();
  }
}
