import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

import { Player } from "../../../../dashboard/static/js/replay/player.js";
import { Session } from "../../../../dashboard/static/js/replay/session.js";
import { event, traceOf } from "./made_traces.mjs";

const FRAME_MS = 20;
const NUM_FRAMES = 100;

let now = 0;
let frames = [];

mock.method(performance, "now", () => now);
globalThis.requestAnimationFrame = (paint) => frames.push(paint);

beforeEach(() => {
  now = 1_000;
  frames = [];
});

/** Play two seconds, frame by frame; return the places that the cursor came to. */
function played(isCalm) {
  const trace = traceOf(Array.from({ length: 4_000 }, (_, i) => event("step_started", i + 1, { num_running: 0, num_waiting: 0 })));
  const session = new Session(trace);
  const player = new Player({ isCalm: () => isCalm });
  const places = [];
  player.show(session);
  session.addEventListener("cursor", () => places.push(session.cursor));
  player.play();
  for (let frame = 0; frame < NUM_FRAMES; frame++) {
    now += FRAME_MS;
    for (const paint of frames.splice(0)) paint();
  }
  assert.equal(player.isPlaying, true);
  return places;
}

test("playing_moves_the_cursor_with_every_frame", () => {
  const places = played(false);
  assert.equal(places.length, NUM_FRAMES);
  assert.ok(Math.abs(places.at(-1) - 2_000) <= 1, `${places.at(-1)}`);
});

test("playing_without_motion_jumps_four_times_a_second_and_comes_as_far", () => {
  const places = played(true);
  assert.ok(places.length <= 8, `${places.length} moves in two seconds`);
  assert.ok(places.at(-1) > 1_700 && places.at(-1) <= 2_000, `${places.at(-1)}`);
});
