/** `<name> ms: n=... p50=... p90=... p99=... max=...`: nearest-rank, and only where there are enough values. */
export function seriesLine(name, values) {
  const sorted = [...values].sort((left, right) => left - right);
  const show = (value) => (value === undefined ? "-" : value.toFixed(3));
  const percentile = (percent, least) =>
    show(sorted.length < least ? undefined : sorted[Math.ceil((sorted.length * percent) / 100) - 1]);
  return (
    `${name} ms: n=${sorted.length} p50=${percentile(50, 1)} p90=${percentile(90, 10)} ` +
    `p99=${percentile(99, 100)} max=${show(sorted.at(-1))}\n`
  );
}
