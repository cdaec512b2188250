import { Failure, REFUSED } from "./failure.mjs";
import { percentile, seriesLine } from "./series.mjs";

const ROW_WIDTHS = [11, 7, 7, 11, 8, 12, 12];
const KNEE_SHARE = 0.9;

/**
 * The five programs; each returns the exit code.
 * @typedef {{out: (text: string) => void, err: (text: string) => void}} Output
 */
export const programs = { models, chat, "chat-stream": chatStream, probe, load };

async function models(client, options, output) {
  return failing(options, output, async () => {
    for (const id of await client.models()) output.out(`model: ${id}\n`);
  });
}

async function chat(client, options, output) {
  return failing(options, output, async () => {
    const answer = await client.chat(options.prompt);
    output.out(`${answer.text}\n`);
    printEnd(answer, options, output);
  });
}

async function chatStream(client, options, output) {
  let hasText = false;
  const onText = (text) => {
    hasText = true;
    output.out(text);
  };
  return failing(
    options,
    output,
    async () => {
      const answer = await client.stream(options.prompt, onText);
      output.out("\n");
      printEnd(answer, options, output);
    },
    () => hasText && output.out("\n"),
  );
}

async function probe(client, options, output) {
  const measurement = new Measurement(output);
  for (let i = 0; i < options.requests; i++) await measurement.run(client, options.prompt, {});
  output.out(measurement.counts() + seriesLine("connect", []) + measurement.times());
  return measurement.numFailed ? REFUSED : 0;
}

async function load(client, options, output) {
  if (options.ladder.length) return climb(client, options, output);
  const measurement = new Measurement(output);
  await measurement.runMany(client, options, options.concurrency);
  const speed = `tokens/s: ${measurement.tokensPerSecond.toFixed(1)}\n`;
  output.out(`concurrency: ${options.concurrency}\n${measurement.counts()}${speed}${measurement.times()}`);
  return measurement.numFailed ? REFUSED : 0;
}

/** What a batch gives: the same load at rising concurrencies, and the first that has nine tenths of the best. */
async function climb(client, options, output) {
  const row = (...cells) => output.out(`${cells.map((cell, at) => String(cell).padStart(ROW_WIDTHS[at])).join(" ")}\n`);
  row("concurrency", "ok", "failed", "tokens/s", "speedup", "ttft p50 ms", "itl p50 ms");
  await new Measurement({ err: () => {} }).run(client, options.prompt, { keepsConnection: true }); // fills the server's cache
  const speeds = [];
  let numFailed = 0;
  for (const rung of options.ladder) {
    const measurement = new Measurement(output);
    await measurement.runMany(client, options, rung);
    const speed = measurement.tokensPerSecond;
    speeds.push(speed);
    numFailed += measurement.numFailed;
    const speedup = speeds[0] > 0 ? (speed / speeds[0]).toFixed(2) : "-";
    row(rung, measurement.numOk, measurement.numFailed, speed.toFixed(1), speedup, ...measurement.medians());
  }
  const best = Math.max(...speeds);
  const knee = speeds.findIndex((speed) => speed >= KNEE_SHARE * best);
  output.out(`knee: ${best > 0 ? options.ladder[knee] : "-"}\n`);
  return numFailed ? REFUSED : 0;
}

/** What many streams add up to. A failed stream is counted as one and goes into nothing else. */
class Measurement {
  constructor(output) {
    this._output = output;
    this.numOk = this.numFailed = this.numTokens = 0;
    this._ttft = [];
    this._itl = [];
    this._total = [];
  }

  async run(client, prompt, streamOptions) {
    let answer;
    try {
      answer = await client.stream(prompt, () => {}, streamOptions);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      this.numFailed++;
      this._output.err(`error: ${error.message}\n`);
      return;
    }
    this.numOk++;
    this.numTokens += answer.usage?.completion ?? 0;
    const times = answer.textTimes;
    if (times.length) this._ttft.push(times[0] - answer.startedAt);
    for (let i = 1; i < times.length; i++) this._itl.push(times[i] - times[i - 1]);
    this._total.push(answer.finishedAt - answer.startedAt);
  }

  /** `options.requests` streams from `concurrency` workers that keep their connections. */
  async runMany(client, { prompt, requests }, concurrency) {
    let numLeft = requests;
    const work = async () => {
      while (numLeft-- > 0) await this.run(client, prompt, { keepsConnection: true });
    };
    const started = performance.now();
    await Promise.all(Array.from({ length: concurrency }, work));
    this.tokensPerSecond = (this.numTokens / (performance.now() - started)) * 1e3;
  }

  /** Of the times to the first token and between tokens. */
  medians() {
    return [percentile(this._ttft, 50), percentile(this._itl, 50)];
  }

  counts() {
    return `requests: ${this.numOk} ok, ${this.numFailed} failed\ntokens: ${this.numTokens}\n`;
  }

  times() {
    return seriesLine("ttft", this._ttft) + seriesLine("itl", this._itl) + seriesLine("total", this._total);
  }
}

/** Run a program; a failure becomes its line, its trace and its exit code. */
async function failing(options, output, run, beforeTrace = () => {}) {
  try {
    await run();
    return 0;
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    beforeTrace();
    if (error.traceId && options.program !== "models") printTrace(error.traceId, options, output);
    output.err(`error: ${error.message}\n`);
    return error.exitCode;
  }
}

function printEnd({ finish, usage, traceId }, options, output) {
  output.out(`finish: ${finish}\n`);
  if (usage) output.out(`tokens: ${usage.prompt} prompt, ${usage.cached} cached, ${usage.completion} completion\n`);
  printTrace(traceId, options, output);
}

function printTrace(traceId, options, output) {
  output.out(`trace: ${traceId} ${options.dashboard}/#trace=${traceId}\n`);
}
