/** Opens traces in a worker, one at a time; a newer one takes the place of an older that isn't done. */

import { Trace } from "./trace.js";
import { TraceError } from "./trace_error.js";

export class Loader {
  constructor() {
    this._worker = null;
    this._waiting = new Map();
    this._lastId = 0;
  }

  /**
   * @param {{blob?: Blob, url?: string}} source a file, gzipped or not, or where to fetch one
   * @param {(numEvents: number) => void} [onProgress]
   * @returns {Promise<Trace>}
   * @throws {TraceError} in the words that the page shows
   */
  load(source, onProgress = () => {}) {
    const worker = (this._worker ??= this._start());
    const id = ++this._lastId;
    return new Promise((resolve, reject) => {
      this._waiting.set(id, { resolve, reject, onProgress });
      const url = source.url ? new URL(source.url, document.baseURI).href : undefined;
      worker.postMessage({ id, blob: source.blob, url });
    });
  }

  _start() {
    const worker = new Worker(new URL("./parse_worker.js", import.meta.url), { type: "module" });
    worker.addEventListener("message", ({ data }) => this._take(data));
    worker.addEventListener("error", (event) => {
      event.preventDefault();
      this._worker = null;
      worker.terminate();
      for (const { reject } of this._waiting.values()) reject(new TraceError("the trace can't be opened: it needs more memory than there is"));
      this._waiting.clear();
    });
    return worker;
  }

  _take({ id, parts, error, numEvents }) {
    const waiting = this._waiting.get(id);
    if (!waiting) return;
    if (numEvents !== undefined) {
      waiting.onProgress(numEvents);
      return;
    }
    this._waiting.delete(id);
    if (error !== undefined) waiting.reject(new TraceError(error));
    else waiting.resolve(Trace.fromParts(parts));
  }
}
