/** Round places on the time axis, and what they are called. */

/** @returns {{at: number, text: string}[]} about `target` of them between start and end */
export function axisTicks(axisName, start, end, target) {
  const step = roundStep((end - start) / Math.max(1, target), axisName === "steps" ? 1 : 0);
  const ticks = [];
  for (let k = Math.max(0, Math.ceil(start / step)); k * step <= end; k++) {
    const at = k * step;
    ticks.push({ at, text: axisName === "steps" ? String(at) : secondsText(at, step) });
  }
  return ticks;
}

function roundStep(raw, least) {
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw * 0.999);
  return Math.max(step, least);
}

/** Seconds after the start, in a unit that suits the distance between ticks. */
export function secondsText(seconds, step) {
  if (step >= 1) return `${trimmed(seconds, 0)} s`;
  if (step >= 1e-3) return seconds < 10 ? `${trimmed(seconds * 1e3, 0)} ms` : `${seconds.toFixed(3)} s`;
  return `${trimmed(seconds * 1e3, 3)} ms`;
}

/** A time after the start to the microsecond, as lists show it. */
export function timeText(seconds) {
  return seconds < 10 ? `${(seconds * 1e3).toFixed(3)} ms` : `${seconds.toFixed(6)} s`;
}

function trimmed(value, digits) {
  return value.toFixed(digits).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}
