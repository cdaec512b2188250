/** A sweep as a picture: output tokens per second over the number of streams, the knee marked. */

const NS = "http://www.w3.org/2000/svg";
const WIDTH = 640;
const HEIGHT = 220;
const LEFT = 64;
const RIGHT = 24;
const TOP = 20;
const BOTTOM = 40;

/**
 * @param {object[]} stages of the sweep
 * @param {number|null} knee
 * @param {(value: number) => string} format
 * @returns {SVGElement}
 */
export function sweepChart(stages, knee, format) {
  const points = stages.map(({ concurrency, rates }) => [concurrency, rates.output_tokens]);
  const most = Math.max(...points.map(([level]) => level));
  const top = Math.max(1e-9, ...points.map(([, rate]) => rate)) * 1.1;
  const x = (level) => LEFT + (level / most) * (WIDTH - LEFT - RIGHT);
  const y = (rate) => HEIGHT - BOTTOM - (rate / top) * (HEIGHT - TOP - BOTTOM);
  const said = points.map(([level, rate]) => `${level} streams ${format(rate)}`).join(", ");
  const svg = node("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "sweep", role: "img", "aria-label": `Output tokens per second by streams: ${said}` });
  svg.append(
    node("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(0), y2: y(0), class: "axis" }),
    node("polyline", { points: points.map(([level, rate]) => `${x(level)},${y(rate)}`).join(" "), class: "curve" }),
    label(LEFT - 10, y(0) + 4, "0", "end"),
    label(LEFT - 10, y(top / 1.1) + 4, format(top / 1.1), "end"),
    label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, "streams", "middle"),
    label(LEFT - 10, 12, "tok/s", "end"),
  );
  let free = -Infinity;
  for (const [level, rate] of points) {
    svg.append(node("circle", { cx: x(level), cy: y(rate), r: level === knee ? 7 : 4, class: level === knee ? "point knee" : "point" }));
    if (level === knee) svg.append(label(x(level), y(rate) - 12, "knee", "middle"));
    if (x(level) < free) continue;
    svg.append(label(x(level), HEIGHT - BOTTOM + 17, String(level), "middle"));
    free = x(level) + 26;
  }
  return svg;
}

function label(x, y, text, anchor) {
  const made = node("text", { x, y, "text-anchor": anchor });
  made.textContent = text;
  return made;
}

function node(name, attributes) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  return made;
}
