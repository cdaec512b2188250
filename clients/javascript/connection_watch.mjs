/**
 * Node only: when a request of fetch is on its connection, which fetch itself doesn't tell. Node's fetch announces it on a
 * diagnostics channel; the request is known by its traceparent.
 */
import { subscribe } from "node:diagnostics_channel";

const waiting = new Map();

subscribe("undici:client:sendHeaders", ({ headers }) => {
  const found = /^traceparent: ([0-9a-f-]+)/im.exec(String(headers));
  waiting.get(found?.[1])?.();
  waiting.delete(found?.[1]);
});

/** @param {string} traceparent */
export function watchConnection(traceparent) {
  return { sent: new Promise((resolve) => waiting.set(traceparent, resolve)) };
}
