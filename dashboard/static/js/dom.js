/** Build elements from text, never from markup: strings from a server or a model stay inert. */

/**
 * @param {string} tag
 * @param {Record<string, unknown>} [props] attributes; `class` and `data-*` as in HTML, `on*` take a listener, false
 *   and null leave the attribute out
 * @param {...(Node|string)} children strings become text nodes
 * @returns {HTMLElement}
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children);
  return node;
}

/** Set text only when it differs, so that an unchanged page stays untouched. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
