// Sends the imports of k6's modules to the shim beside this file.

const SHIMS = new Map([
  ["k6", "./k6.mjs"],
  ["k6/execution", "./execution.mjs"],
  ["k6/http", "./http.mjs"],
  ["k6/metrics", "./metrics.mjs"],
]);

export function resolve(specifier, context, next) {
  const shim = SHIMS.get(specifier);
  return shim ? { url: new URL(shim, import.meta.url).href, shortCircuit: true } : next(specifier, context);
}
