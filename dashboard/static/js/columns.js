/** A ring buffer of rows in columns: one Float64Array per name, the oldest row is overwritten. */
export class Columns {
  /**
   * @param {string[]} names of the columns; `t` must be among them and ascends
   * @param {number} capacity rows kept
   */
  constructor(names, capacity) {
    if (!names.includes("t")) throw new Error("columns need a `t`");
    this.capacity = capacity;
    this.length = 0;
    this._start = 0;
    this._columns = new Map(names.map((name) => [name, new Float64Array(capacity).fill(NaN)]));
  }

  /**
   * Append the rows of a history whose `t` is newer than the newest kept; null becomes NaN.
   * @param {Record<string, (number|null)[]>} history columns of equal length
   * @returns {number} how many rows were new
   */
  append(history) {
    const newest = this.lastTime();
    let added = 0;
    for (let row = 0; row < history.t.length; row++) {
      if (!(history.t[row] > newest)) continue;
      const at = this._slot(this.length);
      for (const [name, column] of this._columns) column[at] = history[name]?.[row] ?? NaN;
      if (this.length < this.capacity) this.length++;
      else this._start = (this._start + 1) % this.capacity;
      added++;
    }
    return added;
  }

  /** Forget all rows. */
  clear() {
    this.length = 0;
    this._start = 0;
  }

  /** Value of row `i`, 0 being the oldest. */
  at(name, i) {
    return this._columns.get(name)[this._slot(i)];
  }

  /** A copy of the values of rows `first` to before `last`. */
  slice(name, first, last) {
    const column = this._columns.get(name);
    const from = this._slot(first);
    const numToEnd = Math.min(last - first, this.capacity - from);
    const values = new Float64Array(last - first);
    values.set(column.subarray(from, from + numToEnd));
    values.set(column.subarray(0, last - first - numToEnd), numToEnd);
    return values;
  }

  /** Set the value of row `i`. */
  put(name, i, value) {
    this._columns.get(name)[this._slot(i)] = value;
  }

  lastTime() {
    return this.length ? this.at("t", this.length - 1) : -Infinity;
  }

  /** Index of the first row with t >= `time`; `length` if there is none. */
  lowerBound(time) {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.at("t", middle) < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Index of the row nearest to `time`, -1 without rows. */
  nearest(time) {
    if (!this.length) return -1;
    const after = Math.min(this.lowerBound(time), this.length - 1);
    const before = Math.max(0, after - 1);
    return time - this.at("t", before) < this.at("t", after) - time ? before : after;
  }

  _slot(i) {
    return (this._start + i) % this.capacity;
  }
}
