/** A typed array that doubles when it is full. `values.subarray(0, length)` is what is in it. */
export class Growing {
  /** @param {new (n: number) => Int32Array|Float64Array|Uint8Array|Uint32Array} kind */
  constructor(kind, capacity = 1024) {
    this.values = new kind(capacity);
    this.length = 0;
  }

  push(value) {
    if (this.length === this.values.length) this._grow(this.length + 1);
    this.values[this.length++] = value;
  }

  /** Append all of `more`, a typed array of the same kind. */
  append(more) {
    if (this.length + more.length > this.values.length) this._grow(this.length + more.length);
    this.values.set(more, this.length);
    this.length += more.length;
  }

  /** Index of the first value >= `wanted`; the values must ascend. */
  lowerBound(wanted) {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.values[middle] < wanted) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** A copy of just what is in it. */
  trimmed() {
    return this.values.slice(0, this.length);
  }

  static of(values) {
    const growing = new Growing(values.constructor, 0);
    growing.values = values;
    growing.length = values.length;
    return growing;
  }

  _grow(needed) {
    const larger = new this.values.constructor(Math.max(16, needed, this.values.length * 2));
    larger.set(this.values.subarray(0, this.length));
    this.values = larger;
  }
}
