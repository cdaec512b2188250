/** The page: one feed, one object per tab. */

import { Feed } from "./feed.js";
import { Header } from "./header.js";
import { LiveTab } from "./live.js";
import { Playground } from "./playground/playground.js";
import { ServedModel } from "./served_model.js";
import { startTabs } from "./tabs.js";

const feed = new Feed("live");
const model = new ServedModel();
const header = new Header(document.querySelector("header"), document.getElementById("banner"));
const live = new LiveTab(document.getElementById("panel-live"));
const playground = new Playground(document.getElementById("panel-playground"));

feed.addEventListener("state", (event) => header.feedState(event.detail));
feed.addEventListener("frame", (event) => {
  for (const part of [model, header, live]) part.frame(event.detail);
});
model.addEventListener("change", () => {
  for (const part of [header, live, playground]) part.model(model.name);
});
startTabs(document.querySelector('[role="tablist"]'), (name) => live.shown(name === "live"));

addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key.toLowerCase() === "l" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) live.togglePause();
});

feed.start();
