/** The request fields that the form offers: what each is called, which values it takes, how its text becomes JSON. */

/**
 * @typedef {object} Field
 * @property {string} name as in the request
 * @property {string} label
 * @property {"number"|"integer"|"flag"|"strings"|"integers"|"json"|"text"} kind
 * @property {string} [hint]
 * @property {number} [min]
 * @property {number} [max]
 * @property {string} [value] what the form begins with
 * @property {string} [placeholder] the server's default
 * @property {boolean} [on] flags: the server's default
 */

/** @type {{title: string, open: boolean, fields: Field[]}[]} */
export const GROUPS = [
  {
    title: "Sampling",
    open: true,
    fields: [
      { name: "temperature", label: "Temperature", kind: "number", min: 0, max: 2, value: "0.7" },
      { name: "max_tokens", label: "Max tokens", kind: "integer", min: 1, value: "256" },
      { name: "top_p", label: "Top p", kind: "number", min: 0.001, max: 1, placeholder: "1" },
      { name: "top_k", label: "Top k", kind: "integer", min: -1, placeholder: "all" },
      { name: "min_p", label: "Min p", kind: "number", min: 0, max: 1, placeholder: "0" },
      { name: "seed", label: "Seed", kind: "integer", placeholder: "random" },
    ],
  },
  {
    title: "Penalties and bias",
    open: false,
    fields: [
      { name: "presence_penalty", label: "Presence", kind: "number", min: -2, max: 2, placeholder: "0" },
      { name: "frequency_penalty", label: "Frequency", kind: "number", min: -2, max: 2, placeholder: "0" },
      { name: "repetition_penalty", label: "Repetition", kind: "number", min: 0.01, placeholder: "1" },
      { name: "logit_bias", label: "Logit bias", kind: "json", hint: 'token id → bias, as JSON: {"198": -100}' },
      { name: "allowed_token_ids", label: "Allowed token ids", kind: "integers", hint: "only these, comma-separated" },
      { name: "bad_words", label: "Bad words", kind: "strings", hint: "never written; one a line" },
    ],
  },
  {
    title: "Stopping",
    open: false,
    fields: [
      { name: "stop", label: "Stop strings", kind: "strings", hint: "one a line" },
      { name: "stop_token_ids", label: "Stop token ids", kind: "integers", hint: "comma-separated" },
      { name: "min_tokens", label: "Min tokens", kind: "integer", min: 0, placeholder: "0" },
      { name: "ignore_eos", label: "Go on after end-of-text", kind: "flag", on: false },
      { name: "include_stop_str_in_output", label: "Keep the stop string", kind: "flag", on: false },
    ],
  },
  {
    title: "Answer",
    open: false,
    fields: [
      { name: "n", label: "Answers (n)", kind: "integer", min: 1, max: 16, placeholder: "1", hint: "more than one become branches" },
      { name: "skip_special_tokens", label: "Leave special tokens out", kind: "flag", on: true },
      { name: "response_format", label: "Response format", kind: "json", hint: '{"type": "json_schema", "json_schema": {…}}' },
      { name: "tools", label: "Tools", kind: "json", hint: "a list of function declarations" },
      { name: "tool_choice", label: "Tool choice", kind: "text", placeholder: "auto" },
    ],
  },
  {
    title: "Scheduling and template",
    open: false,
    fields: [
      { name: "priority", label: "Priority", kind: "integer", placeholder: "0", hint: "lower runs first" },
      { name: "cache_salt", label: "Cache salt", kind: "text", placeholder: "none", hint: "shares prefixes with the same salt only" },
      { name: "chat_template_kwargs", label: "Template variables", kind: "json", hint: "a JSON object" },
    ],
  },
];

export const FIELDS = GROUPS.flatMap((group) => group.fields);

/** What every server of this API can be expected to take, for those that don't say. */
export const OPENAI_FIELDS = [
  "temperature", "max_tokens", "top_p", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "stop", "n",
  "logprobs", "top_logprobs", "response_format", "tools", "tool_choice",
];

/**
 * The value of a field as it goes into the request.
 * @param {Field} field
 * @param {string|boolean} input the form's text or tick
 * @returns {unknown} undefined: not sent, the server's default holds
 * @throws {Error} a sentence that says what is wrong
 */
export function fieldValue(field, input) {
  if (field.kind === "flag") return Boolean(input) === field.on ? undefined : Boolean(input);
  if (field.kind === "strings") return listOrNothing(input.split("\n").filter((line) => line !== ""));
  const text = input.trim();
  if (text === "") return undefined;
  if (field.kind === "text") return text;
  if (field.kind === "json") return parsed(text, field);
  if (field.kind === "integers") return listOrNothing(text.split(/[\s,]+/).filter(Boolean).map((item) => numeric(item, field)));
  return numeric(text, field);
}

function parsed(text, field) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${field.label} must be JSON.`);
  }
}

function numeric(text, field) {
  const value = Number(text);
  const whole = field.kind !== "number";
  if (!Number.isFinite(value) || (whole && !Number.isSafeInteger(value))) {
    throw new Error(`${field.label} must be ${whole ? "a whole number" : "a number"}.`);
  }
  if (field.min !== undefined && value < field.min) throw new Error(`${field.label} must be at least ${field.min}.`);
  if (field.max !== undefined && value > field.max) throw new Error(`${field.label} must be at most ${field.max}.`);
  return value;
}

const listOrNothing = (list) => (list.length ? list : undefined);

/**
 * @param {string} model
 * @param {object[]} messages
 * @param {{system: string, values: Record<string, unknown>, tokens: boolean, takes: Set<string>}} settings
 *   values: name → value, without those that are left to the server; tokens: ask for log probabilities; takes: the
 *   fields that the server knows
 */
export function buildRequest(model, messages, { system, values, tokens, takes }) {
  const request = { model, messages: [...messages], stream: true, stream_options: { include_usage: true } };
  if (system.trim()) request.messages.unshift({ role: "system", content: system.trim() });
  for (const { name } of FIELDS) if (takes.has(name) && values[name] !== undefined) request[name] = values[name];
  if (tokens && takes.has("logprobs")) Object.assign(request, { logprobs: true, top_logprobs: 5 });
  if (takes.has("timings")) request.timings = true;
  return request;
}
