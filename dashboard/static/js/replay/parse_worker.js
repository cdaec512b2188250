/** Reads and parses a trace away from the page: {id, blob} or {id, url} in, {id, parts} or {id, error} out. */

import { TraceParser } from "./parse.js";
import { TraceError } from "./trace_error.js";

const GZIP = [0x1f, 0x8b];

addEventListener("message", async ({ data }) => {
  const { id } = data;
  try {
    const parts = await parse(data.blob ? data.blob.stream() : await fetched(data.url), (numEvents) => postMessage({ id, numEvents }));
    const buffers = [...Object.values(parts.columns), parts.bytes, parts.starts].map((array) => array.buffer);
    postMessage({ id, parts }, buffers);
  } catch (error) {
    const isKnown = error instanceof TraceError;
    postMessage({ id, error: isKnown ? error.message : `the trace can't be read (${error.message})` });
  }
});

async function fetched(url) {
  const response = await fetch(url);
  if (response.ok) return response.body;
  const body = await response.json().catch(() => null);
  throw new TraceError(body?.error?.message ?? `the server answered ${response.status}`);
}

async function parse(stream, onProgress) {
  const parser = new TraceParser();
  const reader = (await unpacked(stream)).getReader();
  let told = 0;
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (!parser.numEvents) throw new TraceError(`the file breaks off or isn't gzip (${error.message})`);
      parser.isCut = true; // its writer was stopped: what was written is shown
      break;
    }
    if (piece.done) break;
    try {
      parser.feed(piece.value);
    } catch (error) {
      reader.cancel().catch(() => {});
      throw error;
    }
    if (parser.numEvents - told >= 50_000) onProgress((told = parser.numEvents));
  }
  return parser.parts();
}

/** The bytes themselves, or unpacked when they begin as gzip does. */
async function unpacked(stream) {
  const reader = stream.getReader();
  let { value: first = new Uint8Array(), done } = await reader.read();
  while (!done && first.length < GZIP.length) {
    const next = await reader.read();
    done = next.done;
    if (next.value) first = new Uint8Array([...first, ...next.value]);
  }
  const rest = new ReadableStream({
    start: (controller) => first.length && controller.enqueue(first),
    async pull(controller) {
      const piece = await reader.read();
      if (piece.done) controller.close();
      else controller.enqueue(piece.value);
    },
    cancel: (reason) => reader.cancel(reason),
  });
  const isGzip = GZIP.every((byte, i) => first[i] === byte);
  return isGzip ? rest.pipeThrough(new DecompressionStream("gzip")) : rest;
}
