import assert from "node:assert/strict";
import { test } from "node:test";

import { buildRequest, FIELDS, fieldValue, OPENAI_FIELDS } from "../../../dashboard/static/js/playground/fields.js";

const field = (name) => FIELDS.find((each) => each.name === name);
const settings = (more) => ({ system: "", values: {}, tokens: false, takes: new Set(FIELDS.map(({ name }) => name)), ...more });

test("field_values_become_the_json_that_the_api_takes", () => {
  const cases = [
    ["temperature", " 0 ", 0],
    ["top_k", "-1", -1],
    ["seed", "-7", -7],
    ["stop", "END\n\n two words\n", ["END", " two words"]],
    ["stop_token_ids", "1, 2 3", [1, 2, 3]],
    ["logit_bias", '{"5": -100}', { 5: -100 }],
    ["ignore_eos", true, true],
    ["skip_special_tokens", false, false],
    ["cache_salt", " team ", "team"],
  ];
  for (const [name, input, value] of cases) assert.deepEqual(fieldValue(field(name), input), value, name);
});

test("field_left_empty_or_at_the_servers_default_is_not_sent", () => {
  for (const { name, kind, on } of FIELDS) assert.equal(fieldValue(field(name), kind === "flag" ? on : "  ".trim()), undefined, name);
});

test("field_that_is_wrong_says_why", () => {
  const cases = [
    ["temperature", "warm", /must be a number/],
    ["temperature", "2.5", /at most 2/],
    ["max_tokens", "1.5", /whole number/],
    ["max_tokens", "0", /at least 1/],
    ["seed", "1e300", /whole number/],
    ["allowed_token_ids", "1, x", /whole number/],
    ["tools", "[", /must be JSON/],
  ];
  for (const [name, input, said] of cases) assert.throws(() => fieldValue(field(name), input), said, `${name} ${input}`);
});

test("request_holds_the_system_prompt_first_and_only_fields_that_the_server_takes", () => {
  const messages = [{ role: "user", content: "hi" }];
  const values = { temperature: 0, max_tokens: 64, min_p: 0.1 };
  const request = buildRequest("m", messages, settings({ system: " be brief ", values, tokens: true, takes: new Set(OPENAI_FIELDS) }));
  assert.deepEqual(request, {
    model: "m",
    messages: [{ role: "system", content: "be brief" }, { role: "user", content: "hi" }],
    stream: true,
    stream_options: { include_usage: true },
    temperature: 0,
    max_tokens: 64,
    logprobs: true,
    top_logprobs: 5,
  });
  assert.equal(messages.length, 1);
});

test("request_asks_for_timings_and_log_probabilities_only_where_they_are_known", () => {
  const request = buildRequest("m", [], settings({ tokens: true, takes: new Set(["timings"]) }));
  assert.equal(request.timings, true);
  assert.equal("logprobs" in request, false);
});
