/** What the page's address says about the replay: `#replay?seq=812&axis=steps`, `#replay?trace_id=...`. */

const AXES = ["seconds", "steps"];
const ID = /^[\w.:-]{1,200}$/;

/**
 * @param {URLSearchParams} params
 * @returns {{seq: number|null, life: string, axis: string, traceId: string, requestId: string}} what makes no sense is
 *   left out
 */
export function readPlace(params) {
  const seq = Number(params.get("seq") ?? NaN);
  const id = (name) => (ID.test(params.get(name) ?? "") ? params.get(name) : "");
  return {
    seq: Number.isSafeInteger(seq) && seq > 0 ? seq : null,
    life: id("life"),
    axis: AXES.includes(params.get("axis")) ? params.get("axis") : "",
    traceId: id("trace_id"),
    requestId: id("request_id"),
  };
}

/** @returns {URLSearchParams} what leads back to where a session is */
export function placeIn(session) {
  const params = new URLSearchParams({ seq: String(session.seq) });
  if (session.trace.header.life) params.set("life", session.trace.header.life);
  if (session.axis.name !== "seconds") params.set("axis", session.axis.name);
  return params;
}
