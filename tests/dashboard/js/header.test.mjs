import assert from "node:assert/strict";
import { test } from "node:test";

import { serviceState } from "../../../dashboard/static/js/header.js";
import { ServedModel } from "../../../dashboard/static/js/served_model.js";

const frame = ({ status = 200, engine = "ready", service } = {}) => ({
  connected: true,
  ready: { status, body: null },
  stats: { engine: { state: engine, model: "m", restarts: 0 }, service: service && { engine_state: service }, t: 100, uptime_s: 10 },
});

test("service_state_follows_ready_and_else_what_the_service_says_of_the_engine", () => {
  assert.equal(serviceState({ connected: false }), "unreachable");
  assert.equal(serviceState(frame()), "ready");
  assert.equal(serviceState(frame({ status: 503, service: "draining" })), "draining");
  assert.equal(serviceState(frame({ status: 503, service: "restarting" })), "restarting");
  assert.equal(serviceState(frame({ status: 503, engine: "loading" })), "loading");
  assert.equal(serviceState(frame({ status: 503, service: "ready" })), "down");
  assert.equal(serviceState(frame({ status: 503, service: "a state of tomorrow" })), "down");
});

test("served_model_is_asked_for_once_per_engine_life_and_again_after_a_failure", async () => {
  const answers = [Promise.reject(new Error("refused")), Promise.resolve("a"), Promise.resolve("b")];
  let asked = 0;
  const fetch = async () => {
    const id = await answers[asked++];
    return { json: async () => ({ data: [{ id }] }) };
  };
  const model = new ServedModel({ fetch });
  const settled = () => new Promise((resolve) => setImmediate(resolve));
  const names = [];
  model.addEventListener("change", () => names.push(model.name));

  model.frame(frame({ engine: "loading" }));
  assert.equal(asked, 0);
  for (let i = 0; i < 4; i++) {
    model.frame(frame());
    await settled();
  }
  assert.deepEqual([asked, names], [2, ["a"]]);
  const restarted = frame();
  restarted.stats.engine.restarts = 1;
  model.frame(restarted);
  await settled();
  assert.deepEqual([asked, names], [3, ["a", "b"]]);
});
