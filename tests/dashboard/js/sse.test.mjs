import assert from "node:assert/strict";
import { test } from "node:test";

import { SseParser } from "../../../dashboard/static/js/sse.js";

const STREAM = [
  ": ping\n\n",
  'data: {"text":"caf\u00e9 \u{1F642}"}\n\n',
  "data:no space\n\n",
  "event: named\r\nid: 7\r\ndata: first\r\ndata: second\r\n\r\n",
  "data: cr only\r\r",
  "data\n\n",
  "ignored: field\ndata: after\n\n",
  "data: [DONE]\n\n",
].join("");

const EXPECTED = [
  { event: "message", data: '{"text":"caf\u00e9 \u{1F642}"}', id: "" },
  { event: "message", data: "no space", id: "" },
  { event: "named", data: "first\nsecond", id: "7" },
  { event: "message", data: "cr only", id: "" },
  { event: "message", data: "", id: "" },
  { event: "message", data: "after", id: "" },
  { event: "message", data: "[DONE]", id: "" },
];

const bytes = new TextEncoder().encode(STREAM);

function parse(...parts) {
  const parser = new SseParser();
  return parts.flatMap((part) => parser.feed(part));
}

test("sse_stream_in_one_piece_gives_all_events", () => {
  assert.deepEqual(parse(bytes), EXPECTED);
});

test("sse_stream_cut_at_every_byte_gives_the_same_events", () => {
  for (let cut = 0; cut <= bytes.length; cut++) {
    assert.deepEqual(parse(bytes.slice(0, cut), bytes.slice(cut)), EXPECTED, `cut at ${cut}`);
  }
});

test("sse_stream_byte_by_byte_gives_the_same_events", () => {
  assert.deepEqual(parse(...Array.from(bytes, (byte) => Uint8Array.of(byte))), EXPECTED);
});

test("sse_event_is_given_as_soon_as_its_blank_line_is_there", () => {
  const parser = new SseParser();
  const feed = (text) => parser.feed(new TextEncoder().encode(text));
  assert.deepEqual(feed("data: a\r\n\r"), [{ event: "message", data: "a", id: "" }]);
  assert.deepEqual(feed("\ndata: b\n"), []);
  assert.deepEqual(feed("\n"), [{ event: "message", data: "b", id: "" }]);
});

test("sse_byte_order_mark_is_skipped", () => {
  assert.deepEqual(parse(new TextEncoder().encode("\ufeffdata: a\n\n")), [{ event: "message", data: "a", id: "" }]);
});

test("sse_event_that_never_ends_is_refused", () => {
  const parser = new SseParser(100);
  assert.throws(() => {
    for (let i = 0; i < 20; i++) parser.feed(new TextEncoder().encode("data: 0123456789\n"));
  }, /too large/);
  assert.throws(() => new SseParser(100).feed(new TextEncoder().encode("x".repeat(200))), /too large/);
});
