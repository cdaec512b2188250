/** Files that leave the page: a picture of what is shown, and the trace for ui.perfetto.dev. */

import { el } from "../dom.js";
import { perfettoOf } from "./perfetto.js";
import { FONT } from "./surface.js";
import { shortLife } from "./trace_name.js";

const GAP = 12;
const HEADING = 44;

export function savePerfetto(trace) {
  const text = JSON.stringify(perfettoOf(trace));
  save(new Blob([text], { type: "application/json" }), `${shortLife(trace)}.perfetto.json`);
}

/** One picture of all canvases that have a size, below each other, with a heading that says where this is. */
export async function savePicture(session, canvases, palette) {
  const shown = canvases.filter((canvas) => canvas.clientWidth && canvas.clientHeight);
  const ratio = devicePixelRatio || 1;
  const width = Math.max(...shown.map((canvas) => canvas.clientWidth)) + 2 * GAP;
  const height = shown.reduce((sum, canvas) => sum + canvas.clientHeight + GAP, HEADING);
  const picture = el("canvas", { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  const context = picture.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = palette.get("--panel");
  context.fillRect(0, 0, width, height);
  context.fillStyle = palette.get("--text");
  context.font = FONT.replace("11px", "13px");
  const { trace, cursor } = session;
  context.fillText(`${trace.header.model}  ·  seq ${session.seq}, ${trace.typeName(cursor)}, step ${trace.step[cursor]}`, GAP, 26);
  let y = HEADING;
  for (const canvas of shown) {
    context.drawImage(canvas, GAP, y, canvas.clientWidth, canvas.clientHeight);
    y += canvas.clientHeight + GAP;
  }
  const blob = await new Promise((resolve) => picture.toBlob(resolve, "image/png"));
  save(blob, `${shortLife(trace)}-${session.seq}.png`);
}

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
