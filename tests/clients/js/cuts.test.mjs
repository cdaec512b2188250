/** The recorded bodies cut at every byte: each way gives the expected output. */
import assert from "node:assert/strict";
import test from "node:test";

import { Client } from "../../../clients/javascript/client.mjs";
import { readOptions } from "../../../clients/javascript/options.mjs";
import { programs } from "../../../clients/javascript/programs.mjs";
import { EXPECTED, fetchOf, NAMES, readRecording, TRACE_ID } from "./recordings.mjs";

const OPTIONS = readOptions(["chat-stream", "--trace-id", TRACE_ID], {});

async function chatStream(recording, pieces) {
  let stdout = "";
  let stderr = "";
  const decoder = new TextDecoder();
  const toBytes = new TextEncoder();
  const output = {
    out: (text) => (stdout += decoder.decode(toBytes.encode(text))), // as a terminal gets it
    err: (text) => (stderr += text),
  };
  const client = new Client({ ...OPTIONS, fetch: fetchOf(recording, pieces) });
  const exit = await programs["chat-stream"](client, OPTIONS, output);
  return { exit, stdout, stderr };
}

test("there are recordings", () => assert.ok(NAMES.length >= 20));

for (const name of NAMES) {
  test(`${name} in two pieces and in single bytes`, async () => {
    const recording = readRecording(name);
    const { body } = recording;
    for (let cut = 1; cut < body.length; cut++) {
      const seen = await chatStream(recording, [body.subarray(0, cut), body.subarray(cut)]);
      assert.deepEqual(seen, EXPECTED[name], `cut after ${cut} bytes`);
    }
    assert.deepEqual(await chatStream(recording, [...body].map((byte) => [byte])), EXPECTED[name]);
  });
}

test("a stream lost after any byte is no success before [DONE] has come", async () => {
  const recording = readRecording("usage_chunk");
  const done = recording.body.indexOf("[DONE]") + "[DONE]\n\n".length;
  for (let kept = 1; kept <= recording.body.length; kept++) {
    const seen = await chatStream({ ...recording, isWhole: false }, [recording.body.subarray(0, kept)]);
    assert.equal(seen.exit, kept < done ? 4 : 0, `${kept} bytes`);
  }
});
