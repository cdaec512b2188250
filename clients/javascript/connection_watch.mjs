/**
 * Node only: when a request of fetch is on its connection, and whether that served another one before; fetch itself tells
 * neither. Node's fetch announces it on a diagnostics channel; the request is known by its traceparent.
 */
import { subscribe } from "node:diagnostics_channel";

const waiting = new Map();
const used = new WeakSet();

subscribe("undici:client:sendHeaders", ({ headers, socket }) => {
  const found = /^traceparent: ([0-9a-f-]+)/im.exec(String(headers));
  waiting.get(found?.[1])?.(used.has(socket));
  waiting.delete(found?.[1]);
  used.add(socket);
});

/**
 * @param {string} traceparent
 * @returns {{sent: Promise<void>, isOnKept: boolean}} isOnKept is known once it is sent
 */
export function watchConnection(traceparent) {
  const watched = { isOnKept: false };
  watched.sent = new Promise((resolve) => {
    waiting.set(traceparent, (isOnKept) => {
      watched.isOnKept = isOnKept;
      resolve();
    });
  });
  return watched;
}
