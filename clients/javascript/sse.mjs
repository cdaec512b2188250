import { unreadable } from "./failure.mjs";

const EVENT_LIMIT = 1048576;
const LINE_LIMIT = EVENT_LIMIT + 6;
const CR = 13;
const LF = 10;

/** Server-sent events from bytes that are cut anywhere (WHATWG rules); gives the data of each event, as bytes. */
export class SseParser {
  constructor() {
    this._line = new Bytes(LINE_LIMIT);
    this._data = new Bytes(EVENT_LIMIT + 1); // the last LF doesn't count
    this._skipsLf = false;
    this._hasBegun = false;
  }

  /**
   * @param {Uint8Array} bytes
   * @returns {Generator<Uint8Array>} the data of the events that these bytes complete, valid until the next one
   */
  *feed(bytes) {
    for (let at = 0; at < bytes.length; ) {
      if (this._skipsLf) {
        this._skipsLf = false;
        if (bytes[at] === LF) {
          at++;
          continue;
        }
      }
      let end = at;
      while (end < bytes.length && bytes[end] !== LF && bytes[end] !== CR) end++;
      this._line.append(bytes.subarray(at, end));
      if (end === bytes.length) return;
      this._skipsLf = bytes[end] === CR;
      at = end + 1;
      const event = this._endOfLine();
      if (event) yield event;
    }
  }

  _endOfLine() {
    let line = this._line.take();
    if (!this._hasBegun && line[0] === 0xef && line[1] === 0xbb && line[2] === 0xbf) line = line.subarray(3);
    this._hasBegun = true;
    if (line.length === 0) {
      const data = this._data.take();
      return data.length ? data.subarray(0, data.length - 1) : null;
    }
    if (startsWith(line, DATA) && (line.length === 4 || line[4] === 58)) {
      this._data.append(line.subarray(line[5] === 32 ? 6 : 5));
      this._data.append(LINE_END);
    }
    return null;
  }
}

const DATA = new TextEncoder().encode("data");
const LINE_END = new Uint8Array([LF]);

function startsWith(line, word) {
  return word.every((byte, at) => line[at] === byte);
}

/** A growing run of bytes with a bound. */
class Bytes {
  constructor(limit) {
    this._limit = limit;
    this._bytes = new Uint8Array(256);
    this._length = 0;
  }

  append(bytes) {
    const length = this._length + bytes.length;
    if (length > this._limit) throw unreadable(`an event is longer than ${EVENT_LIMIT} bytes`);
    if (length > this._bytes.length) {
      const grown = new Uint8Array(Math.max(length, 2 * this._bytes.length));
      grown.set(this._bytes.subarray(0, this._length));
      this._bytes = grown;
    }
    this._bytes.set(bytes, this._length);
    this._length = length;
  }

  /** Return what is held, valid until the next append, and hold nothing. */
  take() {
    const held = this._bytes.subarray(0, this._length);
    this._length = 0;
    return held;
  }
}
