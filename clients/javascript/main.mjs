/** The command line: `node main.mjs PROGRAM [FLAGS]`. */
import { webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";

import { Client } from "./client.mjs";
import { watchConnection } from "./connection_watch.mjs";
import { Failure } from "./failure.mjs";
import { readOptions } from "./options.mjs";
import { programs } from "./programs.mjs";

const output = { out: (text) => process.stdout.write(text), err: (text) => process.stderr.write(text) };

async function main() {
  let options;
  try {
    options = readOptions(process.argv.slice(2), process.env);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    output.err(`error: ${error.message}\n`);
    return error.exitCode;
  }
  if (options.wantsHelp) {
    output.out(readFileSync(new URL("../testdata/help.txt", import.meta.url), "utf8"));
    return 0;
  }
  const onRetry = (status, seconds) => output.err(`retry: the server answered ${status}, waiting ${seconds} s\n`);
  const client = new Client({ ...options, watch: watchConnection, onRetry });
  return programs[options.program](client, options, output);
}

globalThis.crypto ??= webcrypto; // not a global before Node 20
const code = await main();
// A connection that is still being made would keep the process; what was written must be out first.
process.stdout.write("", () => process.stderr.write("", () => process.exit(code)));
