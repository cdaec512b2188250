/**
 * Markdown as models write it, as a tree of plain objects: paragraphs, headings, lists, quotes, fenced code, tables, rules.
 * There is no HTML: `<` is text. Nesting is bounded, and every rule looks at one line.
 */

/**
 * @typedef {object} Block
 * @property {"paragraph"|"heading"|"code"|"quote"|"list"|"table"|"rule"} type
 * @property {string} source the lines it was made of: equal source, equal block
 */

const MAX_DEPTH = 8;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]{0,60})$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:-[ \t]*){3,}$|^ {0,3}(?:\*[ \t]*){3,}$|^ {0,3}(?:_[ \t]*){3,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( {1,4}|$)/;
const TABLE_RULE = /^ {0,3}\|? *:?-+:? *(?:\| *:?-+:? *){0,63}\|? *$/;
const MAX_RULED_LINE = 2000; // longer lines are never a heading, a table or a rule: they are only text

/** @returns {Block[]} */
export function parseBlocks(text) {
  return blocksOf(text.replaceAll("\r\n", "\n").split("\n"), 0);
}

function blocksOf(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at++;
      continue;
    }
    const { end, ...block } = blockAt(lines, at, depth);
    blocks.push({ ...block, source: lines.slice(at, end).join("\n") });
    at = end;
  }
  return blocks;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  if (line.length > MAX_RULED_LINE) return paragraph(lines, at, depth);
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return { type: "heading", level: heading[1].length, text: heading[2], end: at + 1 };
  if (RULE.test(line)) return { type: "rule", end: at + 1 };
  if (depth < MAX_DEPTH && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < MAX_DEPTH && ITEM.test(line)) return list(lines, at, depth);
  if (beginsTable(lines, at)) return table(lines, at);
  return paragraph(lines, at, depth);
}

function code(lines, at, [, mark, info]) {
  const close = new RegExp(`^ {0,3}${mark[0] === "`" ? "`" : "~"}{${mark.length},}\\s*$`);
  let end = at + 1;
  while (end < lines.length && !close.test(lines[end])) end++;
  const text = lines.slice(at + 1, end).join("\n");
  return { type: "code", language: info.trim().split(/\s/)[0] ?? "", text, end: Math.min(lines.length, end + 1) };
}

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end++;
  return { type: "quote", blocks: blocksOf(lines.slice(at, end).map((line) => line.replace(QUOTE, "")), depth + 1), end };
}

function list(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first[2]);
  const items = [];
  let end = at;
  let spread = false;
  while (end < lines.length) {
    const found = ITEM.exec(lines[end]);
    if (!found || found[2].at(-1) !== first[2].at(-1) || RULE.test(lines[end])) break;
    const indent = found[0].length || 1;
    const own = [lines[end].slice(indent)];
    for (end++; end < lines.length; end++) {
      const line = lines[end];
      const next = lines[end + 1] ?? "";
      if (!line.trim()) {
        if (!indented(next, found[1].length + 2) && !ITEM.test(next)) break;
        if (!indented(next, found[1].length + 2)) spread = true;
        own.push("");
      } else if (indented(line, found[1].length + 2)) own.push(line.slice(Math.min(indent, leadingSpaces(line))));
      else if (startsBlock(lines, end, depth) || !own[own.length - 1].trim()) break;
      else own.push(line);
    }
    items.push(blocksOf(own, depth + 1));
  }
  return { type: "list", ordered, start: ordered ? Number.parseInt(first[2], 10) : 1, spread, items, end };
}

function table(lines, at) {
  const align = cells(lines[at + 1]).map((cell) => {
    if (cell.startsWith(":") && cell.endsWith(":")) return "center";
    return cell.endsWith(":") ? "right" : "left";
  });
  const rows = [];
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && lines[end].length <= MAX_RULED_LINE) rows.push(cells(lines[end++]));
  return { type: "table", align, head: cells(lines[at]), rows: rows.map((row) => align.map((_, i) => row[i] ?? "")), end };
}

function beginsTable(lines, at) {
  const rule = lines[at + 1];
  if (!lines[at].includes("|") || rule === undefined || rule.length > MAX_RULED_LINE || !TABLE_RULE.test(rule)) return false;
  return cells(lines[at]).length === cells(rule).length;
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !startsBlock(lines, end, depth)) end++;
  return { type: "paragraph", text: lines.slice(at, end).join("\n").trimStart(), end };
}

function startsBlock(lines, at, depth) {
  const line = lines[at];
  if (line.length > MAX_RULED_LINE) return false;
  const nests = depth < MAX_DEPTH && (QUOTE.test(line) || ITEM.test(line));
  return nests || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || beginsTable(lines, at);
}

const leadingSpaces = (line) => line.length - line.trimStart().length;
const indented = (line, spaces) => line.trim() !== "" && leadingSpaces(line) >= spaces;
