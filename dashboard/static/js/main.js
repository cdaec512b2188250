/** The composition of the page: one feed, the header, and the tabs. */

import { Feed } from "./feed.js";
import { Header } from "./header.js";
import { Page } from "./page.js";
import { ServedModel } from "./served_model.js";
import { Tabs } from "./tabs.js";

const feed = new Feed("live");
const model = new ServedModel();
const header = new Header(document.querySelector("header"), document.getElementById("banner"));
const page = new Page(new Tabs(document.querySelector('[role="tablist"]')), (name) => import(`./${name}/tab.js`));

feed.addEventListener("state", (event) => header.feedState(event.detail));
feed.addEventListener("frame", (event) => {
  for (const part of [model, header, page]) part.frame(event.detail);
});
model.addEventListener("change", () => {
  for (const part of [header, page]) part.model(model.name);
});

page.start();
feed.start();
