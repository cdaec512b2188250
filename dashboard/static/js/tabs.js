/** ARIA tabs: arrows move between them; the chosen one and its own state are in the URL's hash. */

import { formatHash, parseHash } from "./hash.js";

/**
 * Events: `show` (detail: {name, params}) whenever another tab, or the same one with other parameters, is to be seen.
 * A tab that is left keeps its parameters until the reader comes back.
 */
export class Tabs extends EventTarget {
  /** @param {HTMLElement} list holds the tabs, each with `data-tab` and `aria-controls` */
  constructor(list) {
    super();
    this._tabs = [...list.querySelectorAll('[role="tab"]')];
    this._params = new Map();
    for (const tab of this._tabs) tab.addEventListener("click", () => this.open(tab.dataset.tab));
    list.addEventListener("keydown", (event) => this._key(event));
    addEventListener("hashchange", () => this.readUrl());
    new ResizeObserver(() => this._reveal(list)).observe(list);
  }

  /** Names of all tabs, in order. */
  get names() {
    return this._tabs.map((tab) => tab.dataset.tab);
  }

  /** Show what the URL names; the first tab when it names none. */
  readUrl() {
    const { name, params } = parseHash(location.hash);
    const tab = this._tabs.find((each) => each.dataset.tab === name) ?? this._tabs[0];
    this._show(tab, tab.dataset.tab === name ? params : new URLSearchParams());
  }

  /**
   * Go to a tab as a reader would: the browser's Back leads here again.
   * @param {URLSearchParams} [params] its last ones when left out
   */
  open(name, params = this._params.get(name) ?? new URLSearchParams()) {
    if (name !== this._shown) history.pushState(null, "", formatHash(name, params));
    else history.replaceState(null, "", formatHash(name, params));
    this._show(this._tabs.find((tab) => tab.dataset.tab === name), params);
  }

  /** Write down a tab's own state; nothing is shown anew. */
  setParams(name, params) {
    this._params.set(name, params);
    if (this._shown === name) history.replaceState(null, "", formatHash(name, params));
  }

  _show(tab, params) {
    const name = tab.dataset.tab;
    for (const other of this._tabs) {
      const selected = other === tab;
      other.setAttribute("aria-selected", String(selected));
      other.tabIndex = selected ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = !selected;
    }
    this._shown = name;
    this._params.set(name, params);
    tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    this.dispatchEvent(new CustomEvent("show", { detail: { name, params } }));
  }

  /** Have the shown tab in the middle where they don't fit side by side; the page itself stays where it is. */
  _reveal(list) {
    const [all, shown] = [list, this._tabs.find((tab) => tab.tabIndex === 0)].map((node) => node.getBoundingClientRect());
    list.scrollLeft += shown.left + shown.width / 2 - all.left - all.width / 2;
  }

  _key(event) {
    const at = this._tabs.indexOf(document.activeElement);
    const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: this._tabs.length - 1 };
    if (at < 0 || !(event.key in moves)) return;
    event.preventDefault();
    const tab = this._tabs[(moves[event.key] + this._tabs.length) % this._tabs.length];
    this.open(tab.dataset.tab);
    tab.focus();
  }
}
