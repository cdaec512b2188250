/** A markdown text on the page, built of elements and text nodes only; while it grows, finished blocks stay as they are. */

import { el } from "../dom.js";
import { parseInline } from "./inline.js";
import { parseBlocks } from "./markdown.js";

const MAX_TEXT = 400_000; // characters of a text that is still read as markdown
const MAX_INLINE = 20_000; // characters of a block that is still searched for marks

export class MarkdownView {
  /** @param {HTMLElement} root emptied and filled */
  constructor(root) {
    this._root = root;
    this._shown = [];
    this._text = null;
  }

  /** Show `text`; blocks that did not change keep their elements, and so a reader's selection. */
  set(text) {
    if (text === this._text) return;
    this._text = text;
    const blocks = text.length > MAX_TEXT ? [{ type: "plain", text, source: text }] : parseBlocks(text);
    let same = 0;
    while (same < blocks.length && same < this._shown.length && isSame(blocks[same], this._shown[same].block)) same++;
    for (const { node } of this._shown.splice(same)) node.remove();
    for (const block of blocks.slice(same)) {
      const node = blockNode(block);
      this._shown.push({ block, node });
      this._root.append(node);
    }
  }
}

const isSame = (one, other) => one.type === other.type && one.source === other.source;

function blockNode(block) {
  switch (block.type) {
    case "heading": // of one level below the message's own, whatever a model skips
      return el("p", { class: `heading level-${block.level}`, role: "heading", "aria-level": 4, dir: "auto" }, ...inline(block.text));
    case "code":
      return codeNode(block);
    case "rule":
      return el("hr");
    case "quote":
      return el("blockquote", {}, ...block.blocks.map(blockNode));
    case "list":
      return listNode(block);
    case "table":
      return tableNode(block);
    case "plain":
      return el("p", { class: "plain", dir: "auto" }, block.text);
    default:
      return el("p", { dir: "auto" }, ...inline(block.text));
  }
}

function codeNode({ language, text }) {
  const copy = el("button", { type: "button", class: "quiet", "aria-label": "Copy this code" }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
  });
  const head = el("div", { class: "code-head" }, el("span", {}, language || "code"), copy);
  return el("div", { class: "code-block", dir: "ltr" }, head, el("pre", { tabindex: "0" }, el("code", {}, text)));
}

function listNode({ ordered, start, spread, items }) {
  const children = items.map((blocks) => {
    const tight = !spread && blocks[0]?.type === "paragraph";
    const first = tight ? [el("span", { dir: "auto" }, ...inline(blocks[0].text))] : [];
    return el("li", {}, ...first, ...blocks.slice(tight ? 1 : 0).map(blockNode));
  });
  return el(ordered ? "ol" : "ul", ordered && start !== 1 ? { start } : {}, ...children);
}

function tableNode({ align, head, rows }) {
  const cell = (tag) => (text, i) => el(tag, { class: `align-${align[i]}`, dir: "auto" }, ...inline(text));
  const body = rows.map((row) => el("tr", {}, ...row.map(cell("td"))));
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...head.map(cell("th")))), el("tbody", {}, ...body));
  return el("div", { class: "table-scroll", tabindex: "0", role: "group", "aria-label": "Table" }, table);
}

function inline(text) {
  return text.length > MAX_INLINE ? [text] : parseInline(text).map(inlineNode);
}

function inlineNode(item) {
  if (typeof item === "string") return item;
  switch (item.type) {
    case "code":
      return el("code", {}, item.text);
    case "br":
      return el("br");
    case "link":
      return el("a", { href: item.href, title: item.href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...item.children.map(inlineNode));
    default:
      return el(item.type, {}, ...item.children.map(inlineNode));
  }
}
