/** What the page's address says about the replay: `#replay?seq=812&axis=steps`, `#replay?trace_id=...`. */

const AXES = ["seconds", "steps"];
const ID = /^[\w.:-]{1,200}$/;

/** @returns {{seq: number|null, life: string, axis: string, traceId: string, requestId: string}} what makes no sense is left out */
export function readPlace(hash) {
  const [, query = ""] = hash.split("?", 2);
  const asked = new URLSearchParams(query);
  const seq = Number(asked.get("seq") ?? NaN);
  const id = (name) => (ID.test(asked.get(name) ?? "") ? asked.get(name) : "");
  return {
    seq: Number.isSafeInteger(seq) && seq > 0 ? seq : null,
    life: id("life"),
    axis: AXES.includes(asked.get("axis")) ? asked.get("axis") : "",
    traceId: id("trace_id"),
    requestId: id("request_id"),
  };
}

/** @returns {string} the hash that leads back to where a session is */
export function placeOf(session) {
  const place = new URLSearchParams({ seq: String(session.seq) });
  if (session.trace.header.life) place.set("life", session.trace.header.life);
  if (session.axis.name !== "seconds") place.set("axis", session.axis.name);
  return `#replay?${place}`;
}
