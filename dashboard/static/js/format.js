/** Numbers for people. A missing number is an en dash; it is never 0, NaN or null. */

export const MISSING = "–";

const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);

/** A rate or a count: 3 significant digits below 100, thousands grouped above. */
export function number(value) {
  if (isMissing(value)) return MISSING;
  if (value === 0) return "0";
  if (Math.abs(value) < 10) return trimmed(value, 2);
  if (Math.abs(value) < 100) return trimmed(value, 1);
  return GROUPED.format(Math.round(value));
}

/** A count that may grow large: 12,345 or 1.24 M. */
export function count(value) {
  if (isMissing(value)) return MISSING;
  if (value >= 1e9) return `${trimmed(value / 1e9, 2)} G`;
  if (value >= 1e6) return `${trimmed(value / 1e6, 2)} M`;
  return GROUPED.format(Math.round(value));
}

/** @returns {{value: string, unit: string}} milliseconds, or seconds from 1,000 ms on */
export function duration(ms) {
  if (isMissing(ms)) return { value: MISSING, unit: "" };
  if (ms >= 999.5) return { value: trimmed(ms / 1000, ms >= 10000 ? 1 : 2), unit: "s" };
  if (ms >= 100) return { value: String(Math.round(ms)), unit: "ms" };
  return { value: trimmed(ms, ms >= 10 ? 1 : 2), unit: "ms" };
}

export function durationText(ms) {
  const { value, unit } = duration(ms);
  return unit ? `${value} ${unit}` : value;
}

export function percent(ratio) {
  if (isMissing(ratio)) return MISSING;
  const value = ratio * 100;
  return value > 0 && value < 10 ? trimmed(value, 1) : String(Math.round(value));
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const GROUPED = new Intl.NumberFormat("en-US"); // made once: making one costs far more than using it

/** Local time of day of Unix epoch seconds. */
export function clock(seconds) {
  return CLOCK.format(seconds * 1000);
}

function trimmed(value, digits) {
  return value.toFixed(digits).replace(/\.?0+$/, "");
}
