/** The page: what all tabs share, and the tabs themselves, each made when it is first looked at. */

import { el } from "./dom.js";
import { History } from "./history.js";

/**
 * What a tab's module, js/NAME/tab.js, exports as `create(panel, page)`: an object with any of these.
 *
 * @typedef {object} TabPart
 * @property {(params: URLSearchParams) => void} [show] the reader looks at it now, or its parameters in the URL changed
 * @property {() => void} [hide] the reader doesn't look any more: nothing need be drawn, polled or kept open
 * @property {(frame: object) => void} [frame] the service's state, once a second, shown or not; the newest one again
 *   when the tab is made
 * @property {(name: string) => void} [model] the name that requests must carry
 * @property {(event: KeyboardEvent) => void} [key] a key pressed while it is shown, with no modifier but Shift and
 *   nowhere where text is typed
 */

export class Page {
  /**
   * @param {import("./tabs.js").Tabs} tabs
   * @param {(name: string) => Promise<{create: (panel: HTMLElement, page: Page) => TabPart}>} load
   */
  constructor(tabs, load) {
    this._tabs = tabs;
    this._load = load;
    this._parts = new Map(); // name -> promise of a part
    this._made = new Map();
    this._shown = null;
    this._model = "";
    this._lastFrame = null;

    /** One row a second of the service's own history, for every tab that draws it. */
    this.history = new History();
  }

  start() {
    this._tabs.addEventListener("show", (event) => this._show(event.detail));
    addEventListener("keydown", (event) => this._key(event));
    this._tabs.readUrl();
  }

  /** Names of the tabs that this page has. */
  get tabs() {
    return this._tabs.names;
  }

  /** Go to another tab; see Tabs.open. */
  open(name, params) {
    this._tabs.open(name, params);
  }

  /** Keep a tab's own state in the URL. */
  setParams(name, params) {
    this._tabs.setParams(name, params);
  }

  frame(frame) {
    this._lastFrame = frame;
    if (frame.connected) this.history.append(frame.stats.history);
    for (const part of this._made.values()) part.frame?.(frame);
  }

  model(name) {
    this._model = name;
    for (const part of this._made.values()) part.model?.(name);
  }

  async _show({ name, params }) {
    if (this._shown !== name) this._made.get(this._shown)?.hide?.();
    this._shown = name;
    const part = await this._part(name);
    if (part && this._shown === name) part.show?.(params);
  }

  /** The part of a tab, made once; null when its module can't be had, which the panel then says. */
  _part(name) {
    if (!this._parts.has(name)) this._parts.set(name, this._make(name));
    return this._parts.get(name);
  }

  async _make(name) {
    const panel = document.getElementById(`panel-${name}`);
    try {
      const { create } = await this._load(name);
      const part = create(panel, this);
      this._made.set(name, part);
      if (this._model) part.model?.(this._model);
      if (this._lastFrame) part.frame?.(this._lastFrame);
      return part;
    } catch (error) {
      console.error(error);
      panel.prepend(el("p", { class: "failure", role: "alert" }, `This tab could not be loaded: ${error.message}. Reload the page to try again.`));
      return null;
    }
  }

  _key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest?.("input, textarea, select, [contenteditable], [role=tab]")) return;
    this._made.get(this._shown)?.key?.(event);
  }
}
