/** A file is no trace, or a damaged one; the message is the one line that the page shows. */
export class TraceError extends Error {
  constructor(message) {
    super(message);
    this.name = "TraceError";
  }
}
