// `check` as k6 has it: every condition counts in the metric `checks`.

import { Rate } from "./metrics.mjs";

const checks = new Rate("checks");

export function check(value, conditions, tags = {}) {
  let all = true;
  for (const [name, condition] of Object.entries(conditions)) {
    const passed = Boolean(condition(value));
    checks.add(passed, { ...tags, check: name });
    all = all && passed;
  }
  return all;
}
