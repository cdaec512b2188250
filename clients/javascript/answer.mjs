import { BROKEN, clip, Failure, REFUSED, withoutControls } from "./failure.mjs";
import { decodeUtf8, isObject, parseJson } from "./json.mjs";

const FINISH_BYTES = 63;
const DONE = "[DONE]";

/** What the events of one chat stream add up to. */
export class Answer {
  /** @param {(text: string) => void} onText gets each piece of text as it comes */
  constructor(onText) {
    this._onText = onText;
    this.isDone = false;
    this.finish = "";
    /** @type {{prompt: number, cached: number, completion: number} | null} */
    this.usage = null;
    /** Milliseconds of performance.now() of each event with text, and of the one with the finish reason. */
    this.textTimes = [];
    this.finishedAt = 0;
  }

  /** Take the data of one event. @throws {Failure} */
  take(data) {
    if (data.length === DONE.length && decodeUtf8(data) === DONE) {
      this.isDone = true;
      return;
    }
    const chunk = parseJson(data);
    if (!isObject(chunk)) throw new Failure(BROKEN, "the answer can't be read: JSON");
    if (chunk.error !== undefined && chunk.error !== null) {
      throw new Failure(REFUSED, `the server failed: ${errorMessage(chunk) ?? "unknown error"}`);
    }
    if (Array.isArray(chunk.choices)) for (const choice of chunk.choices) this._takeChoice(choice);
    this.usage = readUsage(chunk) ?? this.usage;
  }

  /** The stream is over. @throws {Failure} when something is missing */
  end() {
    if (!this.isDone) throw new Failure(BROKEN, "the stream ended before [DONE]");
    if (!this.finish) throw new Failure(BROKEN, "the stream ended without a finish reason");
  }

  _takeChoice(choice) {
    if (!isObject(choice) || (choice.index ?? 0) !== 0 || choice.index === null) return;
    const text = isObject(choice.delta) ? choice.delta.content : undefined;
    if (typeof text === "string" && text) {
      this.textTimes.push(performance.now());
      this._onText(text);
    }
    if (typeof choice.finish_reason === "string" && choice.finish_reason) {
      this.finish = readFinish(choice.finish_reason);
      this.finishedAt = performance.now();
    }
  }
}

export function readFinish(reason) {
  return clip(withoutControls(reason), FINISH_BYTES);
}

/** `error.message` of a body, clipped; undefined when it has none. */
export function errorMessage(body) {
  const message = isObject(body) && isObject(body.error) ? body.error.message : undefined;
  return typeof message === "string" ? clip(message) : undefined;
}

/** The usage of a chunk or body; null when it has none. */
export function readUsage(body) {
  const usage = isObject(body) ? body.usage : null;
  if (!isObject(usage)) return null;
  const details = isObject(usage.prompt_tokens_details) ? usage.prompt_tokens_details : {};
  return {
    prompt: count(usage.prompt_tokens),
    cached: count(details.cached_tokens),
    completion: count(usage.completion_tokens),
  };
}

function count(value) {
  return Number.isSafeInteger(value) && value > 0 ? value : 0;
}
