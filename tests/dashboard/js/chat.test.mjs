import assert from "node:assert/strict";
import { test } from "node:test";

import { ChatError, streamChat } from "../../../dashboard/static/js/playground/chat.js";
import { toCurl } from "../../../dashboard/static/js/curl.js";
import { answerMetrics, buildRequest } from "../../../dashboard/static/js/playground/tab.js";

const data = (payload) => `data: ${typeof payload === "string" ? payload : JSON.stringify(payload)}\n\n`;
const delta = (fields, finish = null) => data({ choices: [{ index: 0, delta: fields, finish_reason: finish }] });
const USAGE = { prompt_tokens: 21, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 16 } };

/** A fetch that answers with [milliseconds, text] parts, and the clock that goes with it. */
function scripted(parts, { status = 200 } = {}) {
  let now = 0;
  const calls = [];
  const fetch = async (url, options) => {
    calls.push({ url, ...options, body: JSON.parse(options.body) });
    const queue = [...parts];
    const body = new ReadableStream(
      {
        pull(controller) {
          if (!queue.length) return controller.close();
          const [at, text] = queue.shift();
          now = at;
          controller.enqueue(new TextEncoder().encode(text));
        },
      },
      { highWaterMark: 0 },
    );
    return new Response(body, { status, headers: { "x-request-id": "r-1", "x-trace-id": "t-1" } });
  };
  return { fetch, now: () => now, calls };
}

test("chat_numbers_come_from_the_first_text_and_the_servers_usage", async () => {
  const said = [];
  const script = scripted([
    [10, delta({ role: "assistant", content: "" })],
    [50, ": keep-alive\n\n"],
    [500, delta({ content: "two tokens" })],
    [700, delta({ content: " more" })],
    [900, delta({ content: "!" }) + delta({}, "stop")],
    [1500, data({ choices: [], usage: USAGE }) + data("[DONE]")],
  ]);
  const result = await streamChat("u", { stream: true }, { ...script, onText: (text) => said.push(text) });
  assert.deepEqual(said, ["two tokens", " more", "!"]);
  assert.equal(result.text, "two tokens more!");
  assert.equal(result.ttftMs, 500);
  assert.equal(result.tokensPerSecond, 10);
  assert.equal(result.finishReason, "stop");
  assert.deepEqual([result.requestId, result.traceId], ["r-1", "t-1"]);
  assert.deepEqual(answerMetrics(result).map(([, value]) => value), ["500 ms", "10 tok/s", "5", "21", "16", "stop", "1.5 s"]);
});

test("chat_refused_before_the_stream_names_type_and_parameter", async () => {
  const error = { message: "`max_tokens` must be at least 1", type: "invalid_request_error", param: "max_tokens" };
  const script = scripted([[1, JSON.stringify({ error })]], { status: 400 });
  await assert.rejects(streamChat("u", {}, script), (thrown) => {
    assert.ok(thrown instanceof ChatError);
    assert.deepEqual([thrown.message, thrown.type, thrown.param, thrown.status], [error.message, error.type, "max_tokens", 400]);
    return true;
  });
});

test("chat_refused_without_json_says_the_status", async () => {
  await assert.rejects(streamChat("u", {}, scripted([[1, "<html>"]], { status: 502 })), /answered 502/);
});

test("chat_error_frame_in_the_stream_is_an_error_and_keeps_the_text", async () => {
  const said = [];
  const script = scripted([[1, delta({ content: "half" })], [2, data({ error: { message: "engine died", type: "internal_error" } })]]);
  await assert.rejects(streamChat("u", {}, { ...script, onText: (text) => said.push(text) }), /engine died/);
  assert.deepEqual(said, ["half"]);
});

test("chat_stream_that_ends_without_a_finish_is_an_error_even_after_done", async () => {
  await assert.rejects(streamChat("u", {}, scripted([[1, delta({ content: "half" })]])), /ended before/);
  await assert.rejects(streamChat("u", {}, scripted([[1, data("[DONE]")]])), /ended before/);
});

test("chat_event_that_is_not_json_is_an_error", async () => {
  await assert.rejects(streamChat("u", {}, scripted([[1, data("{broken")]])), /not JSON/);
});

test("chat_one_token_answer_has_no_speed", async () => {
  const usage = { completion_tokens: 1 };
  const script = scripted([[5, delta({ content: "a" }, "length")], [6, data({ choices: [], usage })]]);
  assert.equal((await streamChat("u", {}, script)).tokensPerSecond, null);
});

test("request_leaves_out_empty_fields_and_puts_the_system_prompt_first", () => {
  const messages = [{ role: "user", content: "hi" }];
  const fields = { system: " be brief ", temperature: "0", top_p: "", max_tokens: "64", seed: "" };
  assert.deepEqual(buildRequest("m", messages, fields), {
    model: "m",
    messages: [{ role: "system", content: "be brief" }, { role: "user", content: "hi" }],
    stream: true,
    stream_options: { include_usage: true },
    temperature: 0,
    max_tokens: 64,
  });
  assert.equal(messages.length, 1);
});

test("curl_line_survives_quotes_and_shows_no_key", () => {
  const line = toCurl("http://h/v1", { text: "it's $HOME `x`" }, { needsKey: true, indent: 0 });
  assert.ok(line.includes(`'{"text":"it'\\''s $HOME \`x\`"}'`));
  assert.ok(line.includes('"authorization: Bearer $PELLUCID_API_KEY"'));
});
