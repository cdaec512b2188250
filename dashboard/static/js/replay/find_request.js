/** Which request a trace id means: the way from a dot in Grafana to a place in the replay. */

/**
 * @param {string} traceId
 * @param {{fetch?: typeof fetch}} [options]
 * @returns {Promise<string>} our id of its first request, "" if the server has forgotten it
 */
export async function requestOfTrace(traceId, { fetch = (...args) => globalThis.fetch(...args) } = {}) {
  const detail = await json(fetch, `api/telemetry/traces/${encodeURIComponent(traceId)}`);
  const found = detail?.trace?.request_ids?.[0] ?? detail?.in_flight?.[0];
  if (found) return found;
  const table = await json(fetch, "api/telemetry/requests?recent=1000");
  const rows = [...(table?.in_flight ?? []), ...(table?.recent ?? [])];
  return rows.find((row) => row.trace_id === traceId)?.request_id ?? "";
}

async function json(fetch, url) {
  const response = await fetch(url);
  return response.ok ? response.json() : null;
}
