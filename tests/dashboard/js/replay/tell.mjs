/** For the tests in Python: read a trace file and print what this page makes of it. node tell.mjs FILE SEQ,SEQ,... */

import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

import { TraceParser } from "../../../../dashboard/static/js/replay/parse.js";
import { perfettoOf } from "../../../../dashboard/static/js/replay/perfetto.js";
import { Replay } from "../../../../dashboard/static/js/replay/replay.js";
import { computedTokens, placeOf } from "../../../../dashboard/static/js/replay/state.js";
import { Trace } from "../../../../dashboard/static/js/replay/trace.js";

const [file, seqs] = process.argv.slice(2);
const bytes = readFileSync(file);
const parser = new TraceParser();
parser.feed(file.endsWith(".gz") ? gunzipSync(bytes) : bytes);
const trace = Trace.fromParts(parser.parts());
const replay = new Replay(trace);

/** The state after event `seq` in the form of observability/snapshot.py, as far as the page keeps it. */
function snapshot(seq) {
  const state = replay.stateAfter(seq - trace.firstSeq + 1);
  const blocks = state.blocks.flatMap((block, id) => {
    if (block.free) return [];
    const owners = [];
    for (let k = 0; k < block.holders.length; k += 2) {
      const { request, index } = trace.choices[block.holders[k]];
      owners.push({ request_id: trace.requestIds[request], index, position: block.holders[k + 1] });
    }
    owners.sort((x, y) => (x.request_id < y.request_id ? -1 : x.request_id > y.request_id ? 1 : x.index - y.index));
    const last = block.last < 0 ? {} : { last_event: trace.typeName(block.last), last_seq: trace.seqOf(block.last) };
    return [{ block_id: id, state: placeOf(block), ref_count: owners.length, owners, published: block.published, parent_block_id: block.parent, ...last }];
  });
  const requests = state.requests.flatMap((request, number) => {
    if (!request || request.end) return [];
    const choices = state.choices.flatMap((choice, k) => {
      if (!choice || trace.choices[k].request !== number) return [];
      const { output, preemptions, status } = choice;
      return [{ index: trace.choices[k].index, num_computed_tokens: computedTokens(choice, request), num_output_tokens: output, num_preemptions: preemptions, running: status === "running", finished: status === "finished" }];
    });
    choices.sort((x, y) => x.index - y.index);
    return [{ request_id: trace.requestIds[number], num_prompt_tokens: request.prompt, num_cached_tokens: request.cached, num_matched_tokens: request.matched, queued: request.queued, scheduled: request.scheduled, choices }];
  });
  return { seq, in_step: state.inStep, blocks, requests };
}

process.stdout.write(JSON.stringify({ num_events: trace.length, snapshots: seqs.split(",").map((seq) => snapshot(Number(seq))), perfetto: perfettoOf(trace) }));
