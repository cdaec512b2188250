/** The answer of `GET /telemetry/config` as rows. No DOM. */

export const SOURCES = { flag: "command line", environment: "environment", default: "default" };

/**
 * @returns {{part: string, flag: string, variable: string, value: string, became: string, source: string, fallback: string, text: string}[]}
 *   `became`: what the engine made of it, "" when just that
 */
export function settingRows(answer) {
  return answer.flags.map(({ part, flag, variable, value, source, default: fallback, text, choices }) => {
    const name = flag.replace(/^--/, "").replaceAll("-", "_");
    const outcome = part === "engine" ? answer.running?.[name] : undefined;
    const became = outcome === undefined || String(outcome) === String(value) ? "" : String(outcome);
    const allowed = choices.length ? ` (${choices.join(", ")})` : "";
    return { part, flag, variable, value: written(value), became, source, fallback, text: `${text}${allowed}` };
  });
}

/** Settings that have no flag, as [path, value]: what OTEL_ variables set, and what the running engine found out. */
export function otherRows(answer) {
  const { otlp, sampling } = answer.service;
  return [
    ...flat("service.otlp", otlp ?? {}),
    ...flat("service.sampling", sampling ?? {}),
    ...["architecture", "num_parameters", "dtype", "vocab_size", "eos_token_ids", "load_s"]
      .filter((name) => answer.running?.[name] !== undefined)
      .map((name) => [`running.${name}`, written(answer.running[name])]),
  ];
}

function flat(path, value) {
  if (value?.hidden === "hidden") return [[path, `hidden, ${value.num_entries} of them`]];
  if (value === null || typeof value !== "object" || Array.isArray(value)) return [[path, written(value)]];
  return Object.entries(value).flatMap(([name, inner]) => flat(`${path}.${name}`, inner));
}

/** A value as one would type it; nothing is written as a dash. */
export function written(value) {
  if (value === true) return "on";
  if (value === false) return "off";
  if (Array.isArray(value)) return value.length ? value.join(", ") : "–";
  return value === "" || value === null || value === undefined ? "–" : String(value);
}
