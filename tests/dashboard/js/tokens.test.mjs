import assert from "node:assert/strict";
import { test } from "node:test";

import { alternatives, confidence, percentText, probability, visible } from "../../../dashboard/static/js/playground/token_texts.js";

const entry = (token, p, top = []) => ({ token, logprob: Math.log(p), bytes: null, top_logprobs: top });

test("token_probability_is_the_exponential_and_never_above_one", () => {
  assert.ok(Math.abs(probability(entry("a", 0.25)) - 0.25) < 1e-12);
  assert.equal(probability({ logprob: 1e-9 }), 1);
  assert.equal(percentText(probability({ logprob: -9999 })), "0 %");
});

test("token_shades_have_five_steps", () => {
  assert.deepEqual([0.95, 0.5, 0.2, 0.05, 0.049].map((p) => confidence(entry("a", p + 1e-9))), ["sure", "likely", "open", "unlikely", "unlikely"].slice(0, 4).concat("rare"));
});

test("token_text_shows_what_is_invisible_and_cuts_what_is_huge", () => {
  assert.deepEqual(["\n", " ", "  ", " a", "\t", "", "\u202e", "\u200b"].map(visible), ["↵", "␣", "␣␣", " a", "⇥", "∅", "‹U+202E›", "‹U+200B›"]);
  assert.ok(visible("x".repeat(100_000)).length < 240);
  assert.ok(visible("x".repeat(100_000)).endsWith("(100,000 characters)"));
});

test("token_alternatives_are_ranked_and_hold_the_chosen_one_once", () => {
  const chosen = entry("c", 0.1);
  const without = alternatives({ ...chosen, top_logprobs: [entry("a", 0.6), entry("b", 0.3)] });
  assert.deepEqual(without.map(({ text, chosen: is }) => [text, is]), [["a", false], ["b", false], ["c", true]]);
  const within = alternatives({ ...chosen, top_logprobs: [entry("a", 0.6), entry("c", 0.1), entry("c", 0.1)] });
  assert.equal(within.filter(({ chosen: is }) => is).length, 1);
  assert.equal(within.length, 3);
});

test("token_percentages_keep_what_is_small", () => {
  assert.deepEqual([1, 0.9996, 0.4213, 0.0312, 0.00004].map(percentText), ["100 %", "100 %", "42.1 %", "3.1 %", "< 0.01 %"]);
});
