/** What the token view says of a token: its text made visible, its probability, its place among the alternatives. */

const VISIBLE = { "\n": "↵", "\t": "⇥", "\r": "␍" };
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const MAX_SHOWN = 200;

/** @returns {number} 0..1 */
export function probability(entry) {
  return Math.min(1, Math.exp(entry.logprob));
}

/** A token's text with controls, bidirectional marks and a lone space made visible. */
export function visible(token) {
  if (token === "") return "∅";
  if (token.length > MAX_SHOWN) return `${visible(token.slice(0, MAX_SHOWN))}… (${token.length.toLocaleString("en-US")} characters)`;
  const shown = token.replace(INVISIBLE, (char) => VISIBLE[char] ?? `‹U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
  return shown.trim() === "" ? shown.replaceAll(" ", "␣") : shown;
}

/** @returns {"sure"|"likely"|"open"|"unlikely"|"rare"} from 90 %, 50 %, 20 %, 5 %, below */
export function confidence(entry) {
  const p = probability(entry);
  if (p >= 0.9) return "sure";
  if (p >= 0.5) return "likely";
  if (p >= 0.2) return "open";
  return p >= 0.05 ? "unlikely" : "rare";
}

/**
 * The chosen token among its alternatives, most probable first; the chosen one is there even if it is not in the top.
 * @returns {{text: string, p: number, chosen: boolean}[]}
 */
export function alternatives(entry) {
  const top = [...(entry.top_logprobs ?? [])];
  if (!top.some((other) => sameToken(other, entry))) top.push(entry);
  let found = false;
  return top
    .map((other) => {
      const chosen = !found && sameToken(other, entry);
      found ||= chosen;
      return { text: visible(other.token), p: probability(other), chosen };
    })
    .sort((one, other) => other.p - one.p);
}

const sameToken = (one, other) => one.token === other.token && String(one.bytes) === String(other.bytes);

/** "42 %", "0.3 %", "< 0.01 %" */
export function percentText(p) {
  const percent = p * 100;
  if (percent > 0 && percent < 0.01) return "< 0.01 %";
  return `${percent >= 99.95 || percent >= 10 ? Number(percent.toFixed(1)) : Number(percent.toPrecision(2))} %`;
}
