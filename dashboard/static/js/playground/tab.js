/** The Playground tab: a conversation with the served model. */

import { ChatError, streamChat } from "./chat.js";
import { toCurl } from "../curl.js";
import { el, setText } from "../dom.js";
import { count, durationText, number } from "../format.js";

const NEAR_BOTTOM_PX = 80;

/** Turn the form's fields into a request; empty fields are left to the server. */
export function buildRequest(model, messages, fields) {
  const request = { model, messages: [...messages], stream: true, stream_options: { include_usage: true } };
  if (fields.system.trim()) request.messages.unshift({ role: "system", content: fields.system.trim() });
  for (const name of ["temperature", "top_p", "max_tokens", "seed"]) {
    if (fields[name].trim() !== "") request[name] = Number(fields[name]);
  }
  return request;
}

/** @returns {[string, string][]} name and value of each number worth showing */
export function answerMetrics(result) {
  const usage = result.usage;
  return [
    ["TTFT", durationText(result.ttftMs)],
    ["speed", result.tokensPerSecond === null ? "–" : `${number(result.tokensPerSecond)} tok/s`],
    ["tokens", count(usage?.completion_tokens)],
    ["prompt", count(usage?.prompt_tokens)],
    ["cached", count(usage?.prompt_tokens_details?.cached_tokens)],
    ["finish", result.finishReason],
    ["total", durationText(result.totalMs)],
  ];
}

export function create(panel) {
  return new Playground(panel);
}

class Playground {
  constructor(root) {
    this._form = root.querySelector("#composer");
    this._settings = root.querySelector("#settings");
    this._prompt = root.querySelector("#prompt");
    this._send = root.querySelector("#send");
    this._stop = root.querySelector("#stop");
    this._clear = root.querySelector("#clear");
    this._log = root.querySelector("#conversation");
    this._hint = root.querySelector("#conversation-hint");
    this._status = root.querySelector("#chat-status");
    this._curl = root.querySelector("#chat-curl");
    this._copy = root.querySelector("#copy-chat-curl");
    this._messages = [];
    this._sent = null;
    this._model = "";
    this._abort = null;
    this._listen(root);
    this._showCurl();
  }

  /** @param {string} name what requests ask for */
  model(name) {
    this._model = name;
    this._showCurl();
  }

  _listen(root) {
    this._form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this._abort) this._ask();
    });
    this._prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this._form.requestSubmit();
      }
      if (event.key === "Escape") this._abort?.abort();
    });
    this._prompt.addEventListener("input", () => this._showCurl());
    this._settings.addEventListener("input", () => this._showCurl());
    this._stop.addEventListener("click", () => this._abort?.abort());
    this._clear.addEventListener("click", () => this._forget());
    for (const button of root.querySelectorAll("[data-prompt]")) {
      button.addEventListener("click", () => {
        this._prompt.value = button.dataset.prompt;
        this._showCurl();
        this._prompt.focus();
      });
    }
    const copy = this._copy;
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(this._curl.textContent);
      setText(copy, "Copied");
      setTimeout(() => setText(copy, "Copy"), 1500);
    });
  }

  async _ask() {
    const content = this._prompt.value.trim();
    if (!content || !this._settings.reportValidity()) return;
    this._messages.push({ role: "user", content });
    this._add("user", "You").text.append(content);
    this._prompt.value = "";
    const request = this._request();
    this._sent = request;
    this._showCurl();
    await this._answer(request);
  }

  async _answer(request) {
    const message = this._add("assistant", this._model || "Model");
    const written = document.createTextNode("");
    message.text.append(written);
    this._abort = new AbortController();
    this._busy(true);
    const started = performance.now();
    let numDeltas = 0;
    try {
      const result = await streamChat("api/v1/chat/completions", request, {
        signal: this._abort.signal,
        onText: (text) => {
          numDeltas++;
          this._keepAtBottom(() => written.appendData(text));
          setText(message.live, `${numDeltas} chunks · ${durationText(performance.now() - started)}`);
        },
      });
      this._messages.push({ role: "assistant", content: result.text });
      this._showMetrics(message, result);
      setText(this._status, `Answer complete, ${count(result.usage?.completion_tokens)} tokens.`);
    } catch (error) {
      this._showFailure(message, written.data, error);
    } finally {
      this._abort = null;
      this._busy(false);
      this._showCurl();
    }
  }

  _showMetrics(message, result) {
    const items = answerMetrics(result).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
    const ids = [result.requestId && `request ${result.requestId}`, result.traceId && `trace ${result.traceId}`];
    this._keepAtBottom(() => {
      message.live.replaceWith(el("dl", { class: "metrics", title: ids.filter(Boolean).join(" · ") }, ...items));
    });
  }

  /** What was written stays; a turn without an answer is taken back so that the next request is well-formed. */
  _showFailure(message, written, error) {
    if (written) this._messages.push({ role: "assistant", content: written });
    else this._messages.pop();
    if (error.name === "AbortError") {
      message.live.replaceWith(el("p", { class: "note" }, "Stopped. The server was told to give up this request."));
      setText(this._status, "Stopped.");
      return;
    }
    const known = error instanceof ChatError;
    const details = known ? [error.type, error.param && `param ${error.param}`].filter(Boolean).join(" · ") : "";
    const text = known ? error.message : "The connection to the dashboard was lost.";
    const note = details ? [el("span", { class: "detail" }, details)] : [];
    this._keepAtBottom(() => message.live.replaceWith(el("p", { class: "failure", role: "alert" }, text, ...note)));
  }

  _request(...draft) {
    const fields = Object.fromEntries(new FormData(this._settings));
    return buildRequest(this._model, [...this._messages, ...draft], fields);
  }

  /** What the draft would send; without a draft, what was sent last. */
  _showCurl() {
    const content = this._prompt.value.trim();
    const request = content ? this._request({ role: "user", content }) : this._sent;
    this._copy.disabled = request === null;
    if (request === null) return setText(this._curl, "Write a message: its request appears here.");
    const { serviceUrl, needsKey } = document.body.dataset;
    return setText(this._curl, toCurl(`${serviceUrl}/v1/chat/completions`, request, { needsKey: needsKey === "true" }));
  }

  _add(role, name) {
    const text = el("div", { class: "text", dir: "auto" });
    const live = el("p", { class: "note" }, role === "assistant" ? "waiting for the first token…" : "");
    const item = el("li", { class: `message ${role}` }, el("h3", {}, name), text, ...(role === "assistant" ? [live] : []));
    this._hint.hidden = true;
    this._clear.disabled = false;
    this._log.append(item);
    item.scrollIntoView({ block: "end" });
    return { item, text, live };
  }

  _keepAtBottom(change) {
    const box = this._log.parentElement;
    const follows = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_BOTTOM_PX;
    change();
    if (follows) box.scrollTop = box.scrollHeight;
  }

  _busy(busy) {
    this._log.setAttribute("aria-busy", String(busy));
    this._send.hidden = busy;
    this._stop.hidden = !busy;
    this._clear.disabled = busy;
    if (!busy) this._prompt.focus();
  }

  _forget() {
    this._messages = [];
    this._sent = null;
    this._log.replaceChildren();
    this._hint.hidden = false;
    this._clear.disabled = true;
    this._showCurl();
    this._prompt.focus();
  }
}
