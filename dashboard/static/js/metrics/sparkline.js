/** The last few values of something as a small line. */

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 96;
const HEIGHT = 20;
const CAPACITY = 60;

export class Sparkline {
  constructor() {
    this._values = [];
    this.node = document.createElementNS(SVG, "svg");
    this.node.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.node.setAttribute("class", "sparkline");
    this.node.setAttribute("aria-hidden", "true");
    this._line = document.createElementNS(SVG, "polyline");
    this.node.append(this._line);
  }

  add(value) {
    this._values.push(value);
    if (this._values.length > CAPACITY) this._values.shift();
    this._line.setAttribute("points", points(this._values, WIDTH, HEIGHT));
  }
}

/** @returns {string} for a polyline; one value, or values that are all the same, lie on the floor or in the middle */
export function points(values, width, height) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const y = (value) => (high > low ? height - 2 - ((value - low) / (high - low)) * (height - 4) : high ? height / 2 : height - 2);
  const step = width / Math.max(1, values.length - 1);
  return values.map((value, i) => `${(i * step).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
}
