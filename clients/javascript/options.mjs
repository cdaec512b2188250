import { clip, Failure, USAGE } from "./failure.mjs";
import { isTraceId } from "./trace_context.mjs";

const MOST_CONCURRENCY = 256;
const MOST_RUNGS = 16;
const PROGRAMS = ["models", "chat", "chat-stream", "probe", "load"];
const TEXTS = {
  "--url": "url",
  "--dashboard": "dashboard",
  "--model": "model",
  "--prompt": "prompt",
  "--trace-id": "traceId",
};
const NUMBERS = {
  "--max-tokens": ["maxTokens", 1, 1000000],
  "--requests": ["requests", 1, 100000],
  "--concurrency": ["concurrency", 1, MOST_CONCURRENCY],
  "--retries": ["retries", 0, 10],
  "--connect-timeout-ms": ["connectTimeoutMs", 1, 600000],
  "--idle-timeout-ms": ["idleTimeoutMs", 1, 3600000],
};

/**
 * The command line and the environment, checked.
 * @param {string[]} args
 * @param {Record<string, string | undefined>} environment
 * @throws {Failure} on bad usage
 */
export function readOptions(args, environment) {
  const options = {
    program: "",
    wantsHelp: args.includes("--help"),
    url: environment.PELLUCID_URL || "http://127.0.0.1:8100",
    dashboard: environment.PELLUCID_DASHBOARD || "http://127.0.0.1:3100",
    model: environment.PELLUCID_MODEL || "",
    apiKey: environment.PELLUCID_API_KEY || "",
    prompt: "Name the three primary colors.",
    traceId: "",
    maxTokens: 64,
    requests: 10,
    concurrency: 4,
    ladder: [],
    retries: 3,
    connectTimeoutMs: 5000,
    idleTimeoutMs: 60000,
  };
  if (options.wantsHelp) return options;
  const [program, ...flags] = args;
  const programs = `one of ${PROGRAMS.join(", ")}`;
  if (program === undefined) throw new Failure(USAGE, `no program given; ${programs}`);
  if (!PROGRAMS.includes(program)) throw new Failure(USAGE, `unknown program ${clip(program)}; ${programs}`);
  options.program = program;
  for (let at = 0; at < flags.length; at += 2) readFlag(options, flags[at], flags[at + 1]);
  if (options.traceId && !isTraceId(options.traceId)) {
    const rule = "--trace-id must be 32 lower-case hexadecimal digits, not all 0";
    throw new Failure(USAGE, `${rule}, got ${clip(options.traceId)}`);
  }
  options.url = readUrl(options.url);
  return options;
}

function readFlag(options, name, value) {
  const isText = Object.hasOwn(TEXTS, name);
  const isLadder = name === "--ladder";
  if (!isText && !isLadder && !Object.hasOwn(NUMBERS, name)) throw new Failure(USAGE, `unknown flag ${clip(name)}`);
  if (value === undefined) throw new Failure(USAGE, `${name} needs a value`);
  if (isText) {
    options[TEXTS[name]] = value;
    return;
  }
  if (isLadder) {
    options.ladder = readLadder(value);
    return;
  }
  const [key, low, high] = NUMBERS[name];
  if (!isWhole(value, low, high)) {
    throw new Failure(USAGE, `${name} must be a whole number from ${low} to ${high}, got ${clip(value)}`);
  }
  options[key] = Number(value);
}

function isWhole(value, low, high) {
  return /^\d{1,9}$/.test(value) && Number(value) >= low && Number(value) <= high;
}

function readLadder(value) {
  const rungs = value.split(",");
  const isRising = rungs.every((rung, at) => isWhole(rung, at ? Number(rungs[at - 1]) + 1 : 1, MOST_CONCURRENCY));
  if (!isRising || rungs.length > MOST_RUNGS) {
    const rule = `at most ${MOST_RUNGS} rising whole numbers from 1 to ${MOST_CONCURRENCY} with commas between`;
    throw new Failure(USAGE, `--ladder must be ${rule}, got ${clip(value)}`);
  }
  return rungs.map(Number);
}

/** `http://HOST:PORT` without what may follow it. */
function readUrl(url) {
  const rest = url.replace(/\/$/, "").replace(/\/v1$/, "");
  const found = /^http:\/\/(\[[^\]]+\]|[^:[]+)(?::(\d{1,5}))?$/.exec(rest);
  const port = Number(found?.[2] ?? 80);
  if (!found || /[\x00-\x20\x7f/?#@%\\]/.test(found[1]) || found[1].length > 255 || port < 1 || port > 65535) {
    throw new Failure(USAGE, `--url must be http://HOST[:PORT], got ${clip(url)}`);
  }
  return `http://${found[1]}:${port}`;
}
