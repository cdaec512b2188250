import assert from "node:assert/strict";
import { test } from "node:test";

import { parseInline, safeHref } from "../../../dashboard/static/js/playground/inline.js";
import { parseBlocks } from "../../../dashboard/static/js/playground/markdown.js";

const strong = (...children) => ({ type: "strong", children });
const em = (...children) => ({ type: "em", children });
const link = (href, ...children) => ({ type: "link", href, children });
const code = (text) => ({ type: "code", text });
const bare = (blocks) => blocks.map(({ source, ...block }) => block);

test("inline_marks_nest_and_unclosed_ones_are_text", () => {
  const cases = [
    ["plain", ["plain"]],
    ["**bold** and *soft* and ~~gone~~", [strong("bold"), " and ", em("soft"), " and ", { type: "del", children: ["gone"] }]],
    ["**bold *both* bold**", [strong("bold ", em("both"), " bold")]],
    ["***both***", [strong(em("both"))]],
    ["*a **b** c*", [em("a ", strong("b"), " c")]],
    ["**never closed", ["**never closed"]],
    ["2 * 3 * 4", ["2 * 3 * 4"]],
    ["snake_case_name", ["snake_case_name"]],
    ["__init__ and _x_", [strong("init"), " and ", em("x")]],
    ["*a **b* c**", [em("a **b"), " c**"]],
    ["\\*not\\* \\q", ["*not* \\q"]],
    ["a  \nb\nc", ["a", { type: "br" }, "b\nc"]],
  ];
  for (const [text, tree] of cases) assert.deepEqual(parseInline(text), tree, text);
});

test("inline_code_keeps_everything_as_it_is", () => {
  assert.deepEqual(parseInline("`a*b*` `` `tick` `` `open"), [code("a*b*"), " ", code("`tick`"), " `open"]);
  assert.deepEqual(parseInline("*`*`*"), [em(code("*"))]);
});

test("inline_links_lead_to_pages_and_letters_only_and_images_are_links", () => {
  assert.deepEqual(parseInline("[a **b**](https://x.org/y)"), [link("https://x.org/y", "a ", strong("b"))]);
  assert.deepEqual(parseInline("see https://x.org/a_b, ok"), ["see ", link("https://x.org/a_b", "https://x.org/a_b"), ", ok"]);
  assert.deepEqual(parseInline("![shot](https://x.org/i.png)"), ["!", link("https://x.org/i.png", "shot")]);
  for (const text of ["[x](javascript:alert(1))", "[x](JaVaScRiPt:alert`1`)", "[x](data:text/html,hi)", "[x](vbscript:x)", "[x](file:///etc/passwd)"]) {
    assert.equal(JSON.stringify(parseInline(text)).includes('"link"'), false, text);
  }
  for (const url of ["java\nscript:alert(1)", " javascript:alert(1)", "//evil", "/path", ""]) assert.equal(safeHref(url), "", url);
});

test("inline_html_is_text", () => {
  assert.deepEqual(parseInline('<img src=x onerror="alert(1)">'), ['<img src=x onerror="alert(1)">']);
  assert.deepEqual(parseInline("<b>&amp;</b>"), ["<b>&amp;</b>"]);
});

test("inline_time_grows_with_the_text_and_not_with_its_square", () => {
  for (const piece of ["*", "**a", "[", "[](", "`", "`a``", "_a ", "~~", "https://", "\\", "a*b_"]) {
    const times = [20_000, 80_000].map((size) => {
      const text = piece.repeat(size / piece.length);
      const started = performance.now();
      parseInline(text);
      return performance.now() - started;
    });
    assert.ok(times[1] < 2000, `${piece}: ${times.map(Math.round)} ms`);
  }
});

test("blocks_are_told_apart", () => {
  const text = "# Title #\npara one\nstill one\n\n- a\n- b\n  1. deep\n\n3. three\n4. four\n\n> quoted\n> **more**\n\n---\n```js x\nlet a = `<b>`;\n\n# no heading\n```\nend";
  assert.deepEqual(bare(parseBlocks(text)).map(({ type }) => type), [
    "heading", "paragraph", "list", "list", "quote", "rule", "code", "paragraph",
  ]);
  const [heading, , list, ordered, quote, , fence] = parseBlocks(text);
  assert.deepEqual([heading.level, heading.text], [1, "Title"]);
  assert.deepEqual(list.items.map((item) => item.map(({ type }) => type)), [["paragraph"], ["paragraph", "list"]]);
  assert.deepEqual([ordered.ordered, ordered.start, ordered.items.length], [true, 3, 2]);
  assert.equal(quote.blocks[0].text, "quoted\n**more**");
  assert.deepEqual([fence.language, fence.text], ["js", "let a = `<b>`;\n\n# no heading"]);
});

test("blocks_fence_that_is_still_open_takes_the_rest", () => {
  const [block] = parseBlocks("~~~\nhalf\n``` not the end");
  assert.deepEqual([block.type, block.text], ["code", "half\n``` not the end"]);
});

test("blocks_table_has_as_many_cells_in_every_row_as_its_head", () => {
  const [table, after] = parseBlocks("| a | b \\| c |\n|:--|--:|\n| 1 |\n| 1 | 2 | 3 |\n\nend");
  assert.deepEqual(table.head, ["a", "b | c"]);
  assert.deepEqual(table.align, ["left", "right"]);
  assert.deepEqual(table.rows, [["1", ""], ["1", "2"]]);
  assert.equal(after.type, "paragraph");
  assert.equal(parseBlocks("a | b\nno rule")[0].type, "paragraph");
});

test("blocks_of_a_growing_text_stay_equal_but_for_the_last", () => {
  const text = "# A\n\npara\n\n- one\n- two\n\n```\ncode\n```\n\nlast words";
  let before = [];
  for (let end = 1; end <= text.length; end++) {
    const blocks = parseBlocks(text.slice(0, end)).map(({ source }) => source);
    assert.deepEqual(blocks.slice(0, Math.max(0, before.length - 1)), before.slice(0, -1), `at ${end}`);
    before = blocks;
  }
});

test("blocks_of_hostile_text_come_back_soon_and_not_too_deep", () => {
  const hostile = [">".repeat(50_000), "- ".repeat(20_000), "x".repeat(100_000), "|".repeat(50_000), `a|b\n${"-|".repeat(20_000)}`, "\n".repeat(50_000), `${"  ".repeat(3000)}- a\n`.repeat(5), "* * ".repeat(9000), "# ".repeat(20_000)];
  for (const text of hostile) {
    const started = performance.now();
    const blocks = parseBlocks(text);
    assert.ok(performance.now() - started < 2000, text.slice(0, 10));
    assert.ok(JSON.stringify(blocks).length > 1);
  }
});

test("blocks_and_inlines_of_random_text_lose_no_letter", () => {
  const alphabet = ["a", "b", " ", "\n", "*", "_", "`", "[", "]", "(", ")", "#", ">", "-", "1.", "|", "~", "\\", "<", "    "];
  let seed = 7;
  const next = () => (seed = (seed * 48271) % 2147483647);
  const letters = (tree) => JSON.stringify(tree, (key, value) => (["source", "type", "language"].includes(key) ? undefined : value)).replace(/[^ab]/g, "");
  for (let round = 0; round < 3000; round++) {
    const text = Array.from({ length: next() % 40 }, () => alphabet[next() % alphabet.length]).join("");
    const inlines = parseInline(text);
    const told = (items) => items.map((item) => (typeof item === "string" ? item : item.text ?? told(item.children ?? []))).join("");
    assert.equal(told(inlines).replace(/[^ab]/g, ""), text.replace(/[^ab]/g, ""), JSON.stringify(text));
    assert.doesNotThrow(() => letters(parseBlocks(text)), JSON.stringify(text));
  }
});
