/** What the kernel laboratory found, arranged for reading. No DOM. */

/** Timings of one kernel on one shape, fastest first, each as a multiple of the fastest. */
export function timingGroups(timings) {
  const groups = new Map();
  for (const timing of timings) {
    const key = `${timing.kernel}|${timing.phase}|${timing.shape}`;
    if (!groups.has(key)) groups.set(key, { kernel: timing.kernel, phase: timing.phase, shape: timing.shape, rows: [] });
    groups.get(key).rows.push(timing);
  }
  return [...groups.values()].map((group) => {
    const rows = [...group.rows].sort((a, b) => a.median_us - b.median_us);
    return { ...group, rows: rows.map((timing) => ({ ...timing, times: timing.median_us / rows[0].median_us, share: timing.median_us / rows.at(-1).median_us })) };
  });
}

/** Checks of one kernel and backend together: how many passed, and the worst of them against its tolerance. */
export function checkRows(checks) {
  const rows = new Map();
  for (const check of checks) {
    const key = `${check.kernel}|${check.backend}`;
    const row = rows.get(key) ?? { kernel: check.kernel, backend: check.backend, n: 0, passed: 0, worst: check };
    row.n++;
    row.passed += Number(check.passed);
    if (badness(check) > badness(row.worst)) row.worst = check;
    rows.set(key, row);
  }
  return [...rows.values()];
}

function badness({ max_rel_error: error, tolerance }) {
  return error === null ? Infinity : error / tolerance;
}

/** @param {number} us @returns {string} */
export function microseconds(us) {
  if (us >= 1000) return `${(us / 1000).toFixed(us >= 10_000 ? 1 : 2)} ms`;
  return `${us.toFixed(us >= 100 ? 0 : us >= 10 ? 1 : 2)} µs`;
}
