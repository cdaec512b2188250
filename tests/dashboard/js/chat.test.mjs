import assert from "node:assert/strict";
import { test } from "node:test";

import { toCurl } from "../../../dashboard/static/js/curl.js";
import { answerNumbers } from "../../../dashboard/static/js/playground/answer_numbers.js";
import { ChatError, streamChat } from "../../../dashboard/static/js/playground/chat.js";

const data = (payload) => `data: ${typeof payload === "string" ? payload : JSON.stringify(payload)}\n\n`;
const delta = (fields, finish = null, more = {}) => data({ choices: [{ index: 0, delta: fields, finish_reason: finish, ...more }] });
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
    [1500, data({ choices: [], usage: USAGE, metrics: { queue_time_ms: 3 } }) + data("[DONE]")],
  ]);
  const result = await streamChat("u", { stream: true }, { ...script, onChoice: (index, choice) => said.push([index, choice.text]) });
  assert.deepEqual(said.map(([, text]) => text), ["", "two tokens", "two tokens more", "two tokens more!", "two tokens more!"]);
  assert.equal(result.choices[0].text, "two tokens more!");
  assert.equal(result.ttftMs, 500);
  assert.equal(result.tokensPerSecond, 10);
  assert.equal(result.choices[0].finishReason, "stop");
  assert.deepEqual([result.requestId, result.traceId], ["r-1", "t-1"]);
  const numbers = answerNumbers(result, "stop").map(([, value]) => value);
  assert.deepEqual(numbers, ["500 ms", "10 tok/s", "5", "21", "16", "stop", "1.5 s", "3 ms"]);
});

test("chat_of_a_server_that_reports_nothing_shows_dashes_and_no_times_of_its_own", async () => {
  const result = await streamChat("u", {}, scripted([[5, delta({ content: "a" }, "stop")]]));
  assert.deepEqual(answerNumbers(result, "stop").map(([, value]) => value), ["5 ms", "–", "–", "–", "–", "stop", "5 ms"]);
});

test("chat_choices_are_kept_apart_and_each_must_finish", async () => {
  const piece = (index, text, finish = null) => data({ choices: [{ index, delta: { content: text }, finish_reason: finish }] });
  const parts = [[1, piece(0, "a") + piece(1, "x")], [2, piece(1, "y", "stop")], [3, piece(0, "b", "length")]];
  const { choices } = await streamChat("u", {}, scripted(parts));
  assert.deepEqual(choices.map(({ text, finishReason }) => [text, finishReason]), [["ab", "length"], ["xy", "stop"]]);
  await assert.rejects(streamChat("u", {}, scripted(parts.slice(0, 2))), /ended before/);
});

test("chat_log_probabilities_reasoning_and_tool_calls_are_gathered_over_chunks", async () => {
  const entry = (token) => ({ token, logprob: -1, bytes: [], top_logprobs: [] });
  const call = (fields) => delta({ tool_calls: [{ index: 0, ...fields }] });
  const script = scripted([
    [1, delta({ content: "", reasoning_content: "hm" })],
    [2, delta({ content: "a" }, null, { logprobs: { content: [entry("a")] } })],
    [3, delta({ content: "b" }, null, { logprobs: { content: [entry("b"), entry("")] } })],
    [4, call({ id: "c-1", type: "function", function: { name: "now", arguments: "" } })],
    [5, call({ function: { arguments: '{"zone":' } }) + call({ function: { arguments: '"UTC"}' } }) + delta({}, "tool_calls")],
  ]);
  const { choices } = await streamChat("u", {}, script);
  assert.equal(choices[0].reasoning, "hm");
  assert.deepEqual(choices[0].tokens.map(({ token }) => token), ["a", "b", ""]);
  assert.deepEqual(choices[0].toolCalls, [{ id: "c-1", type: "function", function: { name: "now", arguments: '{"zone":"UTC"}' } }]);
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
  await assert.rejects(streamChat("u", {}, { ...script, onChoice: (_, { text }) => said.push(text) }), /engine died/);
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

test("curl_line_survives_quotes_and_shows_no_key", () => {
  const line = toCurl("http://h/v1", { text: "it's $HOME `x`" }, { keyVariable: "PELLUCID_API_KEY", indent: 0 });
  assert.ok(line.includes(`'{"text":"it'\\''s $HOME \`x\`"}'`));
  assert.ok(line.includes('"authorization: Bearer $PELLUCID_API_KEY"'));
});
