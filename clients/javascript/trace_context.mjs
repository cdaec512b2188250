/** W3C trace context: ids, and the header that carries them. */
export function isTraceId(text) {
  return /^[0-9a-f]{32}$/.test(text) && !/^0+$/.test(text);
}

export function newTraceId() {
  return randomHex(16);
}

export function newTraceparent(traceId) {
  return `00-${traceId}-${randomHex(8)}-01`;
}

function randomHex(numBytes) {
  const bytes = crypto.getRandomValues(new Uint8Array(numBytes));
  bytes[0] |= 1; // never all 0
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
