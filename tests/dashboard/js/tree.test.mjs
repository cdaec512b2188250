import assert from "node:assert/strict";
import { test } from "node:test";

import { MessageTree } from "../../../dashboard/static/js/playground/tree.js";

const user = (content) => ({ role: "user", content });
const model = (content, more = {}) => ({ role: "assistant", content, ...more });
const shown = (tree) => tree.path().map(({ content }) => content);

test("tree_goes_on_below_the_shown_leaf", () => {
  const tree = new MessageTree();
  assert.equal(tree.leaf(), null);
  assert.equal(tree.isEmpty, true);
  const question = tree.add(null, user("q"));
  tree.add(question, model("a"));
  tree.add(tree.leaf(), user("q2"));
  assert.deepEqual(shown(tree), ["q", "a", "q2"]);
});

test("tree_regenerated_answer_is_a_sibling_and_the_old_branch_keeps_what_followed_it", () => {
  const tree = new MessageTree();
  const question = tree.add(null, user("q"));
  const first = tree.add(question, model("one"));
  tree.add(first, user("follow-up"));
  const second = tree.add(question, model("two"));
  assert.deepEqual(shown(tree), ["q", "two"]);
  assert.deepEqual(tree.place(second), { index: 1, count: 2 });
  tree.move(second, -1);
  assert.deepEqual(shown(tree), ["q", "one", "follow-up"]);
  tree.move(first, -1);
  assert.deepEqual(shown(tree), ["q", "one", "follow-up"], "the ends don't wrap");
});

test("tree_edited_first_message_branches_at_the_beginning", () => {
  const tree = new MessageTree();
  const question = tree.add(null, user("q"));
  tree.add(question, model("a"));
  const edited = tree.addBeside(question, user("better q"));
  assert.deepEqual(shown(tree), ["better q"]);
  assert.deepEqual(tree.messagesUpTo(edited), [user("better q")]);
  tree.move(edited, -1);
  assert.deepEqual(shown(tree), ["q", "a"]);
});

test("tree_messages_leave_out_turns_without_an_answer_together_with_their_question", () => {
  const tree = new MessageTree();
  const first = tree.add(null, user("answered"));
  const answer = tree.add(first, model("yes"));
  const lost = tree.add(answer, user("unanswered"));
  const empty = tree.add(lost, model(""));
  const next = tree.add(empty, user("next"));
  assert.deepEqual(tree.messagesUpTo(next), [user("answered"), model("yes"), user("next")]);
  assert.deepEqual(tree.messagesUpTo(lost).at(-1), user("unanswered"), "regenerating asks it again");
});

test("tree_messages_carry_tool_calls_and_their_results", () => {
  const tree = new MessageTree();
  const call = { id: "c-1", type: "function", function: { name: "now", arguments: "{}" } };
  const asked = tree.add(tree.add(null, user("q")), model("", { toolCalls: [call] }));
  const result = tree.add(asked, { role: "tool", content: "12:00", toolCallId: "c-1" });
  assert.deepEqual(tree.messagesUpTo(result).slice(1), [
    { role: "assistant", content: null, tool_calls: [call] },
    { role: "tool", content: "12:00", tool_call_id: "c-1" },
  ]);
});
