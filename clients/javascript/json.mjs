import { unreadable } from "./failure.mjs";

const DEPTH_LIMIT = 100;

/**
 * Parse UTF-8 bytes as JSON.
 * @param {Uint8Array} bytes
 * @throws {Failure} when they are not UTF-8, not JSON, or nested too deep
 */
export function parseJson(bytes) {
  const text = decodeUtf8(bytes);
  if (depth(text) > DEPTH_LIMIT) throw unreadable("JSON");
  try {
    return JSON.parse(text);
  } catch {
    throw unreadable("JSON");
  }
}

export function decodeUtf8(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw unreadable("UTF-8");
  }
}

export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The deepest nesting of brackets outside strings. */
function depth(text) {
  let now = 0;
  let deepest = 0;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"?|[[\]{}]/gs)) {
    if (token === "[" || token === "{") deepest = Math.max(deepest, ++now);
    else if (token === "]" || token === "}") now--;
  }
  return deepest;
}
