/** The prefix tree of a state, laid out: how deep in blocks, and in which row, each published block lies. */

/**
 * A child stays in its parent's row; its siblings begin rows of their own below. So a row is a prefix that somebody sent,
 * and it begins where it parts from the one above.
 *
 * @param {import("./state.js").State} state
 * @returns {{nodes: {id: number, depth: number, row: number, parentRow: number}[], rows: number, depth: number}}
 */
export function layTree(state) {
  const children = new Map();
  const roots = [];
  const { blocks } = state;
  for (let id = 0; id < blocks.length; id++) {
    const block = blocks[id];
    if (!block.published) continue;
    const { parent } = block;
    if (parent < 0 || !blocks[parent].published) roots.push(id);
    else if (children.has(parent)) children.get(parent).push(id);
    else children.set(parent, [id]);
  }
  const nodes = [];
  let rows = 0;
  let deepest = 0;
  const seen = new Set();
  const stack = roots.reverse().map((id) => ({ id, depth: 0, row: -1, parentRow: -1 }));
  while (stack.length) {
    const { id, depth, row, parentRow } = stack.pop();
    if (seen.has(id)) continue; // a damaged trace may say that a block is below itself
    seen.add(id);
    const own = row < 0 ? rows++ : row;
    nodes.push({ id, depth, row: own, parentRow });
    deepest = Math.max(deepest, depth);
    const below = children.get(id) ?? [];
    for (let k = below.length - 1; k >= 0; k--) {
      stack.push({ id: below[k], depth: depth + 1, row: k === 0 ? own : -1, parentRow: own });
    }
  }
  return { nodes, rows, depth: deepest + 1 };
}

/**
 * Where an arrow key leads in a tree that is laid out: right to the first child, left to the parent, up and down to the
 * next row, as near as it comes to the same depth; Home and End to the first and the last row.
 *
 * @param {ReturnType<typeof layTree>} tree
 * @param {number} id of the block that one is at; one that isn't in the tree leads to its first
 * @param {string} key
 * @returns {number} the block one is at then, -1 in an empty tree
 */
export function neighbour(tree, id, key) {
  const from = tree.nodes.find((node) => node.id === id);
  if (!from) return tree.nodes[0]?.id ?? -1;
  const nearest = (row, depth) => {
    const inRow = tree.nodes.filter((node) => node.row === row);
    return inRow.reduce((best, node) => (Math.abs(node.depth - depth) < Math.abs(best.depth - depth) ? node : best), inRow[0]);
  };
  const { row, depth, parentRow } = from;
  const to = {
    ArrowRight: () => nearest(row, depth + 1),
    ArrowLeft: () => nearest(parentRow < 0 ? row : parentRow, depth - 1),
    ArrowUp: () => nearest(row - 1, depth),
    ArrowDown: () => nearest(row + 1, depth),
    Home: () => nearest(0, 0),
    End: () => nearest(tree.rows - 1, 0),
  }[key]();
  return (to ?? from).id;
}

export const TREE_KEYS = ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"];
