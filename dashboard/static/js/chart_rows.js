/** The rows of a chart's view, read once from the columns into plain arrays. */

const MAX_GAP_S = 2.5; // rows further apart are not joined: nobody looked in between

/**
 * The mean of a column over so many rows up to row `i`; NaN where none of them has a value.
 *
 * @param {import("./columns.js").Columns} columns
 */
export function meanAt(columns, key, i, numRows) {
  const first = Math.max(0, i - numRows + 1);
  return runningMean(columns.slice(key, first, i + 1), numRows).at(-1);
}

export class ChartRows {
  /**
   * @param {import("./columns.js").Columns} columns
   * @param {string[]} keys of the columns to read
   * @param {{start: number, end: number}} view epoch seconds; one row before it is read too, so that a line enters
   * @param {number} smooth each value is the mean of so many rows up to it
   */
  constructor(columns, keys, { start, end }, smooth) {
    const first = Math.max(0, columns.lowerBound(start) - 1);
    const last = Math.max(first, Math.min(columns.length, columns.lowerBound(end + 0.5)));
    const lead = Math.max(0, first - smooth + 1);
    this.times = columns.slice("t", first, last);
    this.values = keys.map((key) => runningMean(columns.slice(key, lead, last), smooth).subarray(first - lead));
  }

  /** The highest value, or the highest sum of a row's values; 0 without rows. */
  max(stacked) {
    let max = 0;
    for (const values of stacked ? this.stacks().slice(-1) : this.values) {
      for (const value of values) if (value > max) max = value;
    }
    return max;
  }

  /** The sums of the values from the first key up to each one; a missing value counts as 0. */
  stacks() {
    let below = new Float64Array(this.times.length);
    return this.values.map((values) => (below = below.map((sum, i) => sum + (values[i] || 0))));
  }

  /** Where a line is whole: pairs of first row and row after the last. */
  runs(values) {
    const { times } = this;
    const runs = [];
    let from = -1;
    for (let i = 0; i < times.length; i++) {
      const isGap = from >= 0 && times[i] - times[i - 1] > MAX_GAP_S;
      if (from >= 0 && (isGap || Number.isNaN(values[i]))) {
        runs.push([from, i]);
        from = -1;
      }
      if (from < 0 && !Number.isNaN(values[i])) from = i;
    }
    if (from >= 0) runs.push([from, times.length]);
    return runs;
  }
}

function runningMean(values, numRows) {
  if (numRows === 1) return values;
  return values.map((_, i) => {
    let sum = 0;
    let n = 0;
    for (let k = Math.max(0, i - numRows + 1); k <= i; k++) {
      if (Number.isNaN(values[k])) continue;
      sum += values[k];
      n++;
    }
    return n ? sum / n : NaN;
  });
}
