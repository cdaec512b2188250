/** What went wrong, in the words and the exit codes of CONTRACT.md. */
export const REFUSED = 1;
export const USAGE = 2;
export const NO_CONNECTION = 3;
export const BROKEN = 4;
export const SILENT = 5;

const MESSAGE_BYTES = 800;

export class Failure extends Error {
  /**
   * @param {number} exitCode
   * @param {string} message control characters in it become spaces
   */
  constructor(exitCode, message) {
    super(withoutControls(message));
    this.exitCode = exitCode;
    /** The trace to look at; "" without a connection. */
    this.traceId = "";
  }
}

export function withoutControls(text) {
  return text.replace(/[\x00-\x1f\x7f]/g, " ");
}

/** Cut a text to `limit` bytes of UTF-8 without breaking a character. */
export function clip(text, limit = MESSAGE_BYTES) {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= limit) return text;
  let end = limit;
  while (end > 0 && (bytes[end] & 0xc0) === 0x80) end--;
  return new TextDecoder().decode(bytes.subarray(0, end));
}

export function unreadable(what) {
  return new Failure(BROKEN, `the answer can't be read: ${what}`);
}
