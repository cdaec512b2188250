// k6's blocking HTTP calls: a worker does the request while this thread waits for it.

import { Worker, receiveMessageOnPort, MessageChannel } from "node:worker_threads";

import { Rate, Trend } from "./metrics.mjs";

const failed = new Rate("http_req_failed");
const duration = new Trend("http_req_duration");

const flag = new Int32Array(new SharedArrayBuffer(4));
const { port1, port2 } = new MessageChannel();
const worker = new Worker(new URL("./http_worker.mjs", import.meta.url), {
  workerData: { flag, port: port2 },
  transferList: [port2],
});
worker.unref();
port1.unref();

function request(method, url, body, params = {}) {
  const started = performance.now();
  Atomics.store(flag, 0, 0);
  port1.postMessage({ method, url, body, headers: params.headers });
  if (Atomics.wait(flag, 0, 0, 30_000) === "timed-out") {
    throw new Error(`${url} did not answer within 30 s`);
  }
  const { status, text } = receiveMessageOnPort(port1).message;
  failed.add(status === 0 || status >= 400, params.tags);
  duration.add(performance.now() - started, params.tags);
  return { status, body: text, json: () => JSON.parse(text) };
}

export default {
  get: (url, params) => request("GET", url, undefined, params),
  post: (url, body, params) => request("POST", url, body, params),
};
