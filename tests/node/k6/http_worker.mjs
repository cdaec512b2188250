// Does one request at a time and hands over the whole body, as k6 does.

import { workerData } from "node:worker_threads";

const { flag, port } = workerData;

port.on("message", async ({ method, url, body, headers }) => {
  let answer;
  try {
    const response = await fetch(url, { method, body, headers });
    answer = { status: response.status, text: await response.text() };
  } catch (error) {
    answer = { status: 0, text: String(error) };
  }
  port.postMessage(answer);
  Atomics.store(flag, 0, 1);
  Atomics.notify(flag, 0);
});
