/** Choosing a range of time with the pointer, on a chart. */

const MIN_DRAG_PX = 6;

/**
 * @param {HTMLElement} canvas
 * @param {import("./cursor.js").Cursor} cursor is told of the range while it is dragged, and when it is chosen
 * @param {(x: number) => number} momentAt epoch seconds under a pixel of the canvas
 */
export function dragRange(canvas, cursor, momentAt) {
  let from = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType === "touch") return; // a finger scrolls the page
    from = event.offsetX;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (from !== null && Math.abs(event.offsetX - from) >= MIN_DRAG_PX) cursor.drag(rangeOf(momentAt, from, event.offsetX));
  });
  canvas.addEventListener("pointerup", (event) => {
    const range = from !== null && Math.abs(event.offsetX - from) >= MIN_DRAG_PX ? rangeOf(momentAt, from, event.offsetX) : null;
    from = null;
    if (range) cursor.choose(range);
  });
  const giveUp = () => {
    from = null;
    if (cursor.range) cursor.drag(null);
  };
  canvas.addEventListener("pointercancel", giveUp);
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Escape") giveUp();
  });
}

function rangeOf(momentAt, a, b) {
  const [x1, x2] = [Math.min(a, b), Math.max(a, b)];
  return { start: momentAt(x1), end: momentAt(x2) };
}
