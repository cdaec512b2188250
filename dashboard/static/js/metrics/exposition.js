/** The text that Prometheus scrapes, read into families. No DOM. */

/**
 * @typedef {object} Family
 * @property {string} name
 * @property {string} type counter | gauge | histogram | info | unknown
 * @property {string} help
 * @property {{name: string, labels: [string, string][], value: number}[]} samples
 */

const SUFFIXES = ["_bucket", "_sum", "_count", "_created", "_total", "_info"];
const SAMPLE = /^([a-zA-Z_:][\w:]*)(\{.*\})?\s+(\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** @returns {Family[]} in the order of the text; lines that can't be read are left out */
export function parseExposition(text) {
  const families = new Map();
  const family = (name) => {
    if (!families.has(name)) families.set(name, { name, type: "unknown", help: "", samples: [] });
    return families.get(name);
  };
  for (const line of text.split("\n")) {
    const [, kind, name, rest] = /^# (HELP|TYPE) (\S+) ?(.*)$/.exec(line) ?? [];
    if (kind === "HELP") family(name).help = rest.replaceAll("\\n", "\n").replaceAll("\\\\", "\\");
    else if (kind === "TYPE") family(name).type = rest;
    else if (line && !line.startsWith("#")) addSample(line, family, families);
  }
  return [...families.values()].filter((each) => !each.name.endsWith("_created"));
}

function addSample(line, family, families) {
  const [, name, labels = "", value] = SAMPLE.exec(line) ?? [];
  if (name === undefined) return;
  const read = [...labels.matchAll(LABEL)].map(([, label, text]) => [label, unescaped(text)]);
  family(ownerOf(name, families)).samples.push({ name, labels: read, value: numberOf(value) });
}

function ownerOf(name, families) {
  if (families.has(name)) return name;
  const suffix = SUFFIXES.find((each) => name.endsWith(each) && families.has(name.slice(0, -each.length)));
  return suffix ? name.slice(0, -suffix.length) : name;
}

function unescaped(text) {
  return text.replace(/\\(.)/g, (_, character) => (character === "n" ? "\n" : character));
}

function numberOf(text) {
  if (text === "+Inf") return Infinity;
  if (text === "-Inf") return -Infinity;
  return Number(text);
}

/** One number for a family: the sum of a counter or gauge, how often a histogram observed. */
export function totalOf(family) {
  const counted = family.type === "histogram" ? family.samples.filter((each) => each.name.endsWith("_count")) : family.samples;
  return counted.reduce((sum, each) => sum + each.value, 0);
}

/**
 * A percentile out of a histogram's buckets, all labels together, straight between two bounds as PromQL has it.
 * @returns {number|null} null without observations, or in the bucket without an upper bound
 */
export function quantileOf(family, q) {
  const buckets = new Map();
  for (const { name, labels, value } of family.samples) {
    if (!name.endsWith("_bucket")) continue;
    const le = numberOf(labels.find(([label]) => label === "le")[1]);
    buckets.set(le, (buckets.get(le) ?? 0) + value);
  }
  const bounds = [...buckets].sort((a, b) => a[0] - b[0]);
  const n = bounds.at(-1)?.[1] ?? 0;
  if (!n) return null;
  let [below, counted] = [0, 0];
  for (const [le, value] of bounds) {
    if (value >= q * n) return le === Infinity ? null : below + ((le - below) * (q * n - counted)) / (value - counted || 1);
    [below, counted] = [le, value];
  }
  return null;
}

/** Sum of a histogram's observations / their number; null without any. */
export function meanOf(family) {
  const sum = family.samples.filter((each) => each.name.endsWith("_sum")).reduce((all, each) => all + each.value, 0);
  const n = totalOf(family);
  return n ? sum / n : null;
}

/** @returns {Family[]} those whose name, help or type hold every word */
export function matching(families, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return families.filter((each) => {
    const text = `${each.name} ${each.help} ${each.type}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
}
