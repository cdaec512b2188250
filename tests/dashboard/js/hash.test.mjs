import assert from "node:assert/strict";
import { test } from "node:test";
import { formatHash, parseHash } from "../../../dashboard/static/js/hash.js";

test("hash_with_parameters_is_read_back_as_it_was_written", () => {
  const params = new URLSearchParams({ id: "a?b&c=#d", sort: "ttft" });
  const { name, params: read } = parseHash(formatHash("requests", params));
  assert.equal(name, "requests");
  assert.deepEqual([...read], [...params]);
});

test("hash_without_parameters_is_the_name_alone", () => {
  assert.equal(formatHash("live", new URLSearchParams()), "#live");
  assert.deepEqual(parseHash("#live").name, "live");
  assert.equal([...parseHash("#live").params].length, 0);
  assert.equal(parseHash("").name, "");
});
