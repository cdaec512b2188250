/**
 * A function that asks for `draw` in the next frame, once however often it is called before.
 *
 * @param {() => void} draw
 */
export function onceAFrame(draw) {
  let isDue = false;
  return () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      draw();
    });
  };
}
