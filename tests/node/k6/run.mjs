// Runs a k6 script as far as one process without k6 can: setup, iterations one after the other, summary, thresholds.
//
//   node run.mjs SCRIPT ITERATIONS [NAME=VALUE ...]      99 is k6's exit code for missed thresholds

import { writeFileSync } from "node:fs";
import { register } from "node:module";
import { pathToFileURL } from "node:url";

register("./hooks.mjs", import.meta.url);

const [script, iterations, ...settings] = process.argv.slice(2);
globalThis.__ENV = Object.fromEntries(settings.map((each) => each.split(/=(.*)/s).slice(0, 2)));

const { scenario } = await import("./execution.mjs");
const { judge, registry } = await import("./metrics.mjs");
const module = await import(pathToFileURL(script).href);

const data = module.setup ? module.setup() : undefined;
scenario.startTime = Date.now();
for (let number = 0; number < Number(iterations); number += 1) {
  scenario.iterationInTest = number;
  module.default(data);
}
module.teardown?.(data);

const thresholds = judge(module.options.thresholds);
const metrics = {};
for (const [name, metric] of registry) {
  metrics[name] = { values: metric.values(), ...(thresholds[name] ? { thresholds: thresholds[name] } : {}) };
}
for (const [name, content] of Object.entries(module.handleSummary({ metrics }))) {
  if (name === "stdout") {
    process.stdout.write(content);
  } else {
    writeFileSync(name, content);
  }
}
const missed = Object.values(thresholds).some((rules) => Object.values(rules).some((rule) => !rule.ok));
process.exit(missed ? 99 : 0);
