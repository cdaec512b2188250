/** Buttons that copy, and say that they did. */

import { setText } from "./dom.js";

const SAID_FOR_MS = 1500;

/** @param {() => string} text what to copy when the button is pressed */
export function copyOnClick(button, text) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      setText(button, "Copied");
    } catch {
      setText(button, "Copying is not allowed here");
    }
    setTimeout(() => setText(button, label), SAID_FOR_MS);
  });
}
