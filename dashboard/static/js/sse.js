/**
 * Server-sent events from a byte stream that may be cut anywhere: inside a character, between CR and LF, in the middle
 * of a field. Follows the WHATWG parsing rules (LF, CRLF and CR end a line, a missing space after the colon is fine,
 * several `data` lines are joined, comments are skipped).
 */
export class SseParser {
  /** @param {number} [maxBuffered] characters of one unfinished event before it is refused */
  constructor(maxBuffered = 16 << 20) {
    this._decoder = new TextDecoder();
    this._maxBuffered = maxBuffered;
    this._buffer = "";
    this._skipLf = false;
    this._reset();
  }

  /**
   * @param {Uint8Array} bytes
   * @returns {{event: string, data: string, id: string}[]} the events completed by these bytes
   */
  feed(bytes) {
    this._buffer += this._decoder.decode(bytes, { stream: true });
    const events = [];
    let from = 0;
    for (;;) {
      if (this._skipLf && from < this._buffer.length) {
        if (this._buffer[from] === "\n") from++;
        this._skipLf = false;
      }
      const end = lineEnd(this._buffer, from);
      if (end < 0) break;
      const line = this._buffer.slice(from, end);
      this._skipLf = this._buffer[end] === "\r";
      from = end + 1;
      const event = this._line(line);
      if (event) events.push(event);
    }
    this._buffer = this._buffer.slice(from);
    if (this._buffer.length + this._size > this._maxBuffered) throw new Error("an event of the stream is too large");
    return events;
  }

  _line(line) {
    if (line === "") {
      const event = this._data.length ? { event: this._event, data: this._data.join("\n"), id: this._id } : null;
      this._reset();
      return event;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") {
      this._data.push(value);
      this._size += value.length;
    } else if (field === "event") this._event = value;
    else if (field === "id") this._id = value;
    return null;
  }

  _reset() {
    this._data = [];
    this._size = 0;
    this._event = "message";
    this._id = "";
  }
}

function lineEnd(text, from) {
  const lf = text.indexOf("\n", from);
  const cr = text.indexOf("\r", from);
  if (lf < 0) return cr;
  return cr < 0 ? lf : Math.min(lf, cr);
}
