/** The shown branch of the conversation as a list; every turn keeps its elements while it is on the page. */

import { MessageView } from "./message_view.js";

const NEAR_BOTTOM_PX = 80;

export class ConversationView {
  /**
   * @param {HTMLElement} list inside the box that scrolls
   * @param {import("./tree.js").MessageTree} tree
   * @param {import("./message_view.js").Actions} actions
   */
  constructor(list, tree, actions) {
    this._list = list;
    this._box = list.parentElement;
    this._tree = tree;
    this._actions = actions;
    this._views = new Map();
    this._pending = false;
    this._state = { busy: false, canProceed: false };
  }

  /** Show the branch now; `state` is what the messages' buttons depend on. */
  refresh(state = this._state) {
    this._state = state;
    const follows = this._box.scrollHeight - this._box.scrollTop - this._box.clientHeight < NEAR_BOTTOM_PX;
    const path = this._tree.path();
    const shown = path.map((turn) => this._viewOf(turn));
    const kept = new Set(shown.map(({ node }) => node));
    for (const node of [...this._list.children]) if (!kept.has(node)) node.remove();
    shown.forEach((view, i) => {
      if (this._list.children[i] !== view.node) this._list.insertBefore(view.node, this._list.children[i] ?? null);
      view.refresh(this._tree.place(path[i]), state);
    });
    if (follows) this._box.scrollTop = this._box.scrollHeight;
  }

  /** Show the branch with the next frame, once for all the pieces that come until then. */
  refreshSoon() {
    if (this._pending) return;
    this._pending = true;
    requestAnimationFrame(() => {
      this._pending = false;
      this.refresh();
    });
  }

  scrollToEnd() {
    this._box.scrollTop = this._box.scrollHeight;
  }

  forget(tree) {
    this._tree = tree;
    this._views.clear();
    this._list.replaceChildren();
  }

  _viewOf(turn) {
    if (!this._views.has(turn.id)) this._views.set(turn.id, new MessageView(turn, this._actions));
    return this._views.get(turn.id);
  }
}
