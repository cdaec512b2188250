/** The servers that the dashboard may talk to, and the models and fields of the one that is picked. */

import { el } from "./dom.js";
import { OPENAI_FIELDS } from "./playground/fields.js";

/**
 * @typedef {object} Target
 * @property {string} name
 * @property {string} url shown to people; the browser itself only asks the dashboard
 * @property {string} keyVariable where a person's shell has the key; "" when none is needed
 */

/** @returns {Target[]} as the page names them, the dashboard's own service first */
export function knownTargets() {
  return JSON.parse(document.body.dataset.targets);
}

/** @param {string} target @param {string} path @returns {string} where the dashboard forwards it */
export function targetPath(target, path) {
  return `api/targets/${encodeURIComponent(target)}${path}`;
}

/**
 * A pair of selects, server and model.
 * Events: `change` whenever server, model or the fields known of it change.
 */
export class TargetPicker extends EventTarget {
  /**
   * @param {HTMLSelectElement} targets
   * @param {HTMLSelectElement} models
   * @param {{fetch?: typeof fetch, known?: Target[], none?: string}} [options] none: label of a choice of no server, which
   *   then comes first
   */
  constructor(targets, models, { fetch = (...args) => globalThis.fetch(...args), known = knownTargets(), none = "" } = {}) {
    super();
    this._fetch = fetch;
    this._known = known;
    this._targets = targets;
    this._models = models;
    this._asked = 0;
    this.takes = new Set(OPENAI_FIELDS);
    const options = known.map(({ name }) => el("option", { value: name }, name));
    targets.replaceChildren(...(none ? [el("option", { value: "" }, none)] : []), ...options);
    targets.addEventListener("change", () => this.refresh());
    models.addEventListener("change", () => this.dispatchEvent(new Event("change")));
  }

  /** @returns {Target|null} */
  get target() {
    return this._known.find(({ name }) => name === this._targets.value) ?? null;
  }

  get isOwn() {
    return this._targets.value === this._known[0].name;
  }

  get model() {
    return this._models.value;
  }

  /** Ask the picked server for its models and fields; a late answer about another server is dropped. */
  async refresh() {
    const asked = ++this._asked;
    const name = this.target?.name;
    const [models, info] = name ? await Promise.all([this._json(name, "/v1/models"), this._json(name, "/info")]) : [];
    if (asked !== this._asked) return;
    const names = (models?.data ?? []).map(({ id }) => String(id));
    const before = this.model;
    this._models.replaceChildren(...names.map((id) => el("option", { value: id }, id)));
    if (names.includes(before)) this._models.value = before;
    this.takes = new Set(info?.chat_fields ?? OPENAI_FIELDS);
    this.dispatchEvent(new Event("change"));
  }

  async _json(target, path) {
    try {
      const response = await this._fetch(targetPath(target, path));
      return response.ok ? await response.json() : null;
    } catch {
      return null;
    }
  }
}
