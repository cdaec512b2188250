/** The recorded answers as `fetch` would give them, their bodies in the pieces that a test asks for. */
import { readdirSync, readFileSync } from "node:fs";

const TESTDATA = new URL("../../../clients/testdata/", import.meta.url);
const NOT_HTTP = ["not_http", "bad_chunk_size"]; // fetch itself refuses them

export const TRACE_ID = "0123456789abcdef0123456789abcdef";
export const EXPECTED = JSON.parse(readFileSync(new URL("expected.json", TESTDATA), "utf8"));
export const NAMES = readdirSync(TESTDATA)
  .filter((name) => name.endsWith(".http"))
  .map((name) => name.slice(0, -".http".length))
  .filter((name) => !NOT_HTTP.includes(name));

/** @returns {{status: number, headers: [string, string][], body: Buffer, isWhole: boolean}} */
export function readRecording(name) {
  const bytes = readFileSync(new URL(`${name}.http`, TESTDATA));
  const end = bytes.indexOf("\r\n\r\n");
  const [statusLine, ...lines] = bytes.subarray(0, end).toString("latin1").split("\r\n");
  const headers = lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]);
  const rest = bytes.subarray(end + 4);
  const isChunked = headers.some(([name]) => name.toLowerCase() === "transfer-encoding");
  const { body, isWhole } = isChunked ? joinChunks(rest) : { body: rest, isWhole: true };
  return { status: Number(statusLine.slice(9, 12)), headers, body, isWhole };
}

function joinChunks(bytes) {
  const chunks = [];
  for (let at = 0; at < bytes.length; ) {
    const end = bytes.indexOf("\r\n", at);
    const size = parseInt(bytes.subarray(at, end).toString("latin1"), 16);
    if (size === 0) return { body: Buffer.concat(chunks), isWhole: true };
    chunks.push(bytes.subarray(end + 2, end + 2 + size));
    at = end + 2 + size + 2;
  }
  return { body: Buffer.concat(chunks), isWhole: false };
}

/** A `fetch` that answers with a recording, its body in these pieces. */
export function fetchOf({ status, headers, isWhole }, pieces) {
  return async () => {
    const body = new ReadableStream({
      start(controller) {
        for (const piece of pieces) controller.enqueue(new Uint8Array(piece));
        if (isWhole) controller.close();
      },
      pull(controller) {
        if (!isWhole) controller.error(new TypeError("terminated"));
      },
    }, { highWaterMark: 0 });
    return new Response(body, { status, headers });
  };
}
