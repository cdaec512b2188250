/** Inline markdown as a tree of plain objects; one pass, linear in the text, HTML is text like any other. */

/**
 * @typedef {string | {type: "strong"|"em"|"del"|"link", children: Inline[], href?: string}
 *   | {type: "code", text: string} | {type: "br"}} Inline
 */

const MAX_URL = 2048;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const BARE_URL = /https?:\/\/[^\s<>"'`]{1,2000}/y;
const DELIMITERS = ["**", "__", "~~", "*", "_"];
const TYPES = { "**": "strong", __: "strong", "~~": "del", "*": "em", _: "em" };

/** Only addresses that a browser opens as a page or a letter; anything else stays text. */
export function safeHref(url) {
  try {
    const { protocol, href } = new URL(url);
    return ["http:", "https:", "mailto:"].includes(protocol) ? href : "";
  } catch {
    return "";
  }
}

/** @returns {Inline[]} */
export function parseInline(text) {
  return new InlineParser(text).parse();
}

class InlineParser {
  constructor(text) {
    this._text = text;
    this._at = 0;
    this._plain = "";
    this._out = []; // inlines, and marks: {mark, closed} for an opening delimiter or bracket
    this._open = new Map(); // mark -> indices into _out of those that may still be closed
    this._noRun = new Set(); // lengths of backtick runs that have no partner further on
  }

  parse() {
    while (this._at < this._text.length) this._step();
    this._flush();
    return this._settled(0);
  }

  _step() {
    const char = this._text[this._at];
    if (char === "\\") return this._escape();
    if (char === "\n") return this._lineBreak();
    if (char === "`") return this._code();
    if (char === "[") return this._openMark("[", 1);
    if (char === "]") return this._closeLink();
    if (char === "h" && this._bareUrl()) return undefined;
    if (char === "*" || char === "_" || char === "~") return this._delimiter();
    this._plain += char;
    this._at++;
    return undefined;
  }

  _escape() {
    const next = this._text[this._at + 1] ?? "";
    const escaped = ESCAPABLE.test(next);
    this._plain += escaped ? next : "\\";
    this._at += escaped ? 2 : 1;
  }

  _lineBreak() {
    const hard = /( {2,})$/.test(this._plain);
    this._plain = this._plain.trimEnd();
    this._at++;
    if (!hard) {
      this._plain += "\n";
      return;
    }
    this._push({ type: "br" });
  }

  _code() {
    let end = this._at;
    while (this._text[end] === "`") end++;
    const length = end - this._at;
    for (let from = end; !this._noRun.has(length); ) {
      const start = this._text.indexOf("`", from);
      if (start < 0) {
        this._noRun.add(length);
        break;
      }
      let stop = start;
      while (this._text[stop] === "`") stop++;
      if (stop - start === length) {
        const inner = this._text.slice(end, start).replaceAll("\n", " ");
        const padded = inner.length > 2 && inner.startsWith(" ") && inner.endsWith(" ");
        this._at = stop;
        this._push({ type: "code", text: padded ? inner.slice(1, -1) : inner });
        return;
      }
      from = stop;
    }
    this._plain += "`".repeat(length);
    this._at = end;
  }

  _bareUrl() {
    if (/\w/.test(this._text[this._at - 1] ?? "") || this._open.get("[")?.length) return false;
    BARE_URL.lastIndex = this._at;
    const found = BARE_URL.exec(this._text)?.[0].replace(/[.,:;!?)\]}*_~]+$/, "");
    const href = found ? safeHref(found) : "";
    if (!href) return false;
    this._at += found.length;
    this._push({ type: "link", href, children: [found] });
    return true;
  }

  _delimiter() {
    const mark = this._markHere();
    if (!mark) {
      this._plain += this._text[this._at++];
      return undefined;
    }
    const before = this._text[this._at - 1] ?? " ";
    const after = this._text[this._at + mark.length] ?? " ";
    const insideWord = mark[0] === "_" && /\w/.test(before) && /\w/.test(after);
    const stack = this._open.get(mark);
    if (!insideWord && stack?.length && !/\s/.test(before)) {
      this._flush();
      const from = stack[stack.length - 1];
      if (from < this._out.length - 1) {
        this._at += mark.length;
        return this._wrap(from, { type: TYPES[mark] });
      }
    }
    if (!insideWord && !/\s/.test(after)) return this._openMark(mark, mark.length);
    this._plain += mark;
    this._at += mark.length;
    return undefined;
  }

  /** The delimiter at this place; of three or more characters in a row, the one whose partner was opened last. */
  _markHere() {
    const char = this._text[this._at];
    let run = 1;
    while (run < 3 && this._text[this._at + run] === char) run++;
    const marks = DELIMITERS.filter((mark) => mark[0] === char && mark.length <= run);
    if (run < 3) return marks.find((mark) => mark.length === run);
    const opened = (mark) => this._open.get(mark)?.at(-1) ?? -1;
    return marks.sort((one, other) => opened(other) - opened(one))[0];
  }

  _openMark(mark, length) {
    this._at += length;
    this._flush();
    if (!this._open.has(mark)) this._open.set(mark, []);
    this._open.get(mark).push(this._out.length);
    this._out.push({ mark });
  }

  /** `](url)` after an open bracket makes a link; its image form is a link too, since nothing is fetched. */
  _closeLink() {
    const stack = this._open.get("[");
    const found = stack?.length ? this._target() : null;
    if (!found) {
      stack?.pop();
      this._plain += "]";
      this._at++;
      return;
    }
    this._flush();
    const from = stack.pop();
    this._at = found.end;
    const href = safeHref(found.url);
    if (href && from < this._out.length - 1) this._wrap(from, { type: "link", href });
    else this._plain += `](${found.url})`;
  }

  _target() {
    if (this._text[this._at + 1] !== "(") return null;
    const end = this._text.slice(this._at + 2, this._at + 2 + MAX_URL).search(/[)\s]/);
    if (end < 0 || this._text[this._at + 2 + end] !== ")") return null;
    const start = this._at + 2;
    return { url: this._text.slice(start, start + end), end: start + end + 1 };
  }

  /** Put everything after the mark at `from` into one element; marks opened in between are text. */
  _wrap(from, element) {
    const children = this._settled(from + 1);
    this._out.length = from;
    for (const stack of this._open.values()) while (stack.length && stack[stack.length - 1] >= from) stack.pop();
    this._out.push({ ...element, children });
  }

  /** What was gathered from `from` on, with marks that nobody closed as the text they are. */
  _settled(from) {
    const settled = [];
    for (const item of this._out.slice(from)) {
      const plain = typeof item === "string" ? item : item.mark;
      if (plain === undefined) settled.push(item);
      else if (typeof settled[settled.length - 1] === "string") settled[settled.length - 1] += plain;
      else settled.push(plain);
    }
    return settled;
  }

  _push(item) {
    this._flush();
    this._out.push(item);
  }

  _flush() {
    if (this._plain) this._out.push(this._plain);
    this._plain = "";
  }
}
