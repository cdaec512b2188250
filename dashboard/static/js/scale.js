/** Round axis values. */

/**
 * @returns {number[]} about `target` values from 0 to at least `max`, at steps of 1, 2, 2.5 or 5 times a power of ten;
 *   [0] when there is nothing above 0
 */
export function valueTicks(max, target = 4) {
  if (!(max > 0)) return [0];
  const raw = max / target;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw * 0.999);
  const ticks = [];
  for (let i = 0; ; i++) {
    ticks.push(Number((i * step).toPrecision(12)));
    if (ticks[i] >= max * 0.999) return ticks;
  }
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];

/** @returns {number[]} epoch seconds between start and end at a round distance, at most about `target` of them */
export function timeTicks(start, end, target) {
  const step = TIME_STEPS.find((candidate) => (end - start) / candidate <= target) ?? 7200;
  const ticks = [];
  for (let t = Math.ceil(start / step) * step; t <= end; t += step) ticks.push(t);
  return ticks;
}
