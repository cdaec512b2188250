/** A conversation that branches: every edit and every new answer is a sibling, nothing is overwritten. */

/**
 * @typedef {object} Turn
 * @property {number} id
 * @property {"user"|"assistant"|"tool"} role
 * @property {string} content
 * @property {Turn|null} parent
 * @property {Turn[]} children
 * @property {number} chosen which child the shown branch goes on with
 */

export class MessageTree {
  constructor() {
    this._root = { id: 0, role: "", content: "", parent: null, children: [], chosen: -1 };
    this._nextId = 1;
  }

  get isEmpty() {
    return this._root.children.length === 0;
  }

  /**
   * Add a turn below `parent`, or at the beginning; the shown branch goes on with it.
   * @param {Turn|null} parent
   * @param {object} fields role, content and whatever belongs to the turn
   * @returns {Turn}
   */
  add(parent, fields) {
    const above = parent ?? this._root;
    const turn = { content: "", ...fields, id: this._nextId++, parent: above, children: [], chosen: -1 };
    above.chosen = above.children.push(turn) - 1;
    return turn;
  }

  /** @returns {Turn} a new turn beside `turn`, below the same parent */
  addBeside(turn, fields) {
    return this.add(turn.parent, fields);
  }

  /** @returns {Turn[]} the shown branch, first turn first */
  path() {
    const turns = [];
    for (let at = this._root; at.chosen >= 0; ) turns.push((at = at.children[at.chosen]));
    return turns;
  }

  /** @returns {Turn|null} the last turn of the shown branch */
  leaf() {
    return this.path().at(-1) ?? null;
  }

  /** @returns {{index: number, count: number}} where `turn` stands among its siblings */
  place(turn) {
    return { index: turn.parent.children.indexOf(turn), count: turn.parent.children.length };
  }

  /** Show the sibling `by` places further on; the ends do not wrap. */
  move(turn, by) {
    const { index, count } = this.place(turn);
    turn.parent.chosen = Math.min(count - 1, Math.max(0, index + by));
  }

  /**
   * The messages of a request that ends with `turn`. A turn that got no answer is left out together with its question, so
   * that the roles of what is sent still alternate.
   * @returns {object[]}
   */
  messagesUpTo(turn) {
    const turns = [];
    for (let at = turn; at && at !== this._root; at = at.parent) turns.unshift(at);
    const sent = [];
    for (const at of turns) {
      if (at.role === "assistant" && !at.content && !at.toolCalls?.length) {
        while (sent.at(-1)?.role === "user") sent.pop();
      } else sent.push(message(at));
    }
    return sent;
  }
}

function message({ role, content, toolCalls, toolCallId }) {
  if (role === "tool") return { role, content, tool_call_id: toolCallId };
  return toolCalls?.length ? { role, content: content || null, tool_calls: toolCalls } : { role, content };
}
