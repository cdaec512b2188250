/** `<name> ms: n=... p50=... p90=... p99=... max=...`: nearest-rank, and only where there are enough values. */
export function seriesLine(name, values) {
  return (
    `${name} ms: n=${values.length} p50=${percentile(values, 50)} p90=${percentile(values, 90, 10)} ` +
    `p99=${percentile(values, 99, 100)} max=${percentile(values, 100)}\n`
  );
}

/** The smallest value that `percent` of the values don't exceed; "-" when there are fewer than `least`. */
export function percentile(values, percent, least = 1) {
  if (values.length < least) return "-";
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.ceil((sorted.length * percent) / 100) - 1].toFixed(3);
}
