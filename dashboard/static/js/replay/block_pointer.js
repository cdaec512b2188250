/** What a block is, in words, and a canvas of blocks that tells it: what is pointed at has a title, what is clicked is chosen. */

import { placeOf } from "./state.js";
import { placeOn } from "./surface.js";
import { shortName } from "./timeline.js";

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{session: () => object | null, blockAt: (place: {x: number, y: number}) => number}} view blockAt: -1 for none
 */
export function pointAtBlocks(canvas, { session, blockAt }) {
  canvas.addEventListener("click", (event) => {
    if (!session()) return;
    const block = blockAt(placeOn(canvas, event));
    session().select(block < 0 ? null : { block });
  });
  canvas.addEventListener("pointermove", (event) => {
    const block = session() ? blockAt(placeOn(canvas, event)) : -1;
    canvas.title = block < 0 ? "" : blockSentence(session(), block);
  });
}

/** What a block is at the cursor, in a sentence. */
export function blockSentence(session, id) {
  const { trace } = session;
  const block = session.state.blocks[id];
  const place = placeOf(block);
  const last = block.last < 0 ? "" : ` Last: ${trace.typeName(block.last)}, seq ${trace.seqOf(block.last)}.`;
  if (place === "referenced") {
    const owners = block.holders.filter((_, k) => k % 2 === 0).map((choice) => shortName(trace, choice));
    const told = owners.length > 3 ? `${owners.slice(0, 3).join(", ")} and ${owners.length - 3} more` : owners.join(", ");
    return `Block ${id}: held by ${told} (ref count ${owners.length})${block.published ? ", in the prefix tree" : ""}.${last}`;
  }
  if (place === "cached") return `Block ${id}: cached, nobody holds it; given up when somebody needs room.${last}`;
  return `Block ${id}: ${place}.${last}`;
}
