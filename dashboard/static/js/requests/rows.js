/** The rows of the request table: which of them, in which order. No DOM. */

/** Known requests by id: those in flight, and the newest of those that ended. */
export class RequestRows {
  /** @param {number} capacity ended requests kept */
  constructor(capacity) {
    this._capacity = capacity;
    this._inFlight = [];
    this._ended = new Map(); // id -> row, oldest first
    this.t = 0;
  }

  /** @param {object} answer body of GET /telemetry/requests */
  take(answer) {
    this.t = answer.t;
    this._inFlight = answer.in_flight;
    for (const row of [...answer.recent].reverse()) this._ended.set(row.request_id, row);
    for (const id of this._ended.keys()) {
      if (this._ended.size <= this._capacity) break;
      this._ended.delete(id);
    }
  }

  get inFlight() {
    return this._inFlight;
  }

  /** Newest first. */
  get ended() {
    return [...this._ended.values()].reverse();
  }

  get all() {
    return [...this._inFlight, ...this.ended];
  }

  find(id) {
    return this._inFlight.find((row) => row.request_id === id) ?? this._ended.get(id) ?? null;
  }

  /** The newest request of a trace, null if none is known. */
  ofTrace(traceId) {
    return this.all.find((row) => row.trace_id !== "" && row.trace_id === traceId) ?? null;
  }
}

export const SHOWS = {
  all: () => true,
  in_flight: (row) => row.phase !== "ended",
  ended: (row) => row.phase === "ended",
  problems: (row) => ["failed", "aborted", "rejected"].includes(row.state),
  preempted: (row) => row.num_preemptions > 0,
};

/**
 * @param {object[]} rows
 * @param {{show: string, query: string, sort: string}} view `sort` is a field, `-field` for descending, "" for as it is
 */
export function visibleRows(rows, { show, query, sort }) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const kept = rows.filter((row) => SHOWS[show](row) && words.every((word) => textOf(row).includes(word)));
  if (!sort) return kept;
  const descending = sort.startsWith("-");
  const field = descending ? sort.slice(1) : sort;
  const order = descending ? -1 : 1;
  return kept.sort((a, b) => compare(valueOf(a, field), valueOf(b, field), order));
}

/** The value that a column is sorted by. */
export function valueOf(row, field) {
  if (field === "total_s") return row.e2e_s ?? (row.phase === "ended" ? null : row.age_s);
  return row[field];
}

/** Rows without a value come last, in either direction. */
function compare(a, b, order) {
  const [aMissing, bMissing] = [a === null || a === "", b === null || b === ""];
  if (aMissing || bMissing) return Number(aMissing) - Number(bMissing);
  if (a < b) return -order;
  return a > b ? order : 0;
}

function textOf(row) {
  return [row.request_id, row.trace_id, row.state, row.phase, row.waits_for, row.finish_reason, row.error_type, row.route, row.model]
    .join(" ")
    .toLowerCase();
}

const MIN_SAMPLES = 10;

/**
 * Where a value stands among others.
 * @param {(number|null)[]} values
 * @returns {{percentile: number, n: number}|null} share of values not above it, in whole percent; null below ten samples
 */
export function rank(value, values) {
  const known = values.filter((other) => other !== null);
  if (value === null || known.length < MIN_SAMPLES) return null;
  const notAbove = known.filter((other) => other <= value).length;
  return { percentile: Math.round((100 * notAbove) / known.length), n: known.length };
}
