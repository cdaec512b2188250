/** The form of the request's fields; a field that the server doesn't take is hidden and not sent. */

import { el } from "../dom.js";
import { FIELDS, fieldValue, GROUPS } from "./fields.js";

const WIDE = new Set(["strings", "integers", "json", "text"]);

export class SettingsForm extends EventTarget {
  /** @param {HTMLElement} root filled with the groups; `input` events of the form become `change` */
  constructor(root) {
    super();
    this._takes = new Set();
    this._inputs = new Map();
    this._wrappers = new Map();
    this._groups = GROUPS.map((group) => this._group(group));
    root.append(...this._groups.map(({ node }) => node));
    root.addEventListener("input", (event) => {
      const field = FIELDS.find(({ name }) => name === event.target.name);
      if (field) this._check(field);
      this.dispatchEvent(new Event("change"));
    });
  }

  /** @param {Set<string>} takes names of the fields that the server knows */
  show(takes) {
    this._takes = takes;
    for (const [name, wrapper] of this._wrappers) wrapper.hidden = !takes.has(name);
    for (const { node, fields } of this._groups) node.hidden = fields.every(({ name }) => !takes.has(name));
  }

  /** @returns {Record<string, unknown>} the values to send; a field that is wrong is left out, the form says so */
  values() {
    const values = {};
    for (const field of FIELDS) {
      if (!this._takes.has(field.name) || this._check(field)) continue;
      const value = fieldValue(field, this._read(field));
      if (value !== undefined) values[field.name] = value;
    }
    return values;
  }

  /** @returns {boolean} whether every shown field is right; if not, the first wrong one is opened and says why */
  reportValidity() {
    for (const field of FIELDS) {
      if (!this._takes.has(field.name) || !this._check(field)) continue;
      const input = this._inputs.get(field.name);
      input.closest("details").open = true;
      input.reportValidity();
      return false;
    }
    return true;
  }

  /** @returns {string} what is wrong, "" when nothing is */
  _check(field) {
    const input = this._inputs.get(field.name);
    let wrong = input.validity.badInput ? `${field.label} must be a number.` : "";
    try {
      if (!wrong) fieldValue(field, this._read(field));
    } catch (error) {
      wrong = error.message;
    }
    input.setCustomValidity(wrong);
    input.setAttribute("aria-invalid", String(wrong !== ""));
    return wrong;
  }

  _read(field) {
    const input = this._inputs.get(field.name);
    return field.kind === "flag" ? input.checked : input.value;
  }

  _group({ title, open, fields }) {
    const grid = el("div", { class: "grid" }, ...fields.map((field) => this._field(field)));
    return { node: el("details", { open }, el("summary", {}, title), grid), fields };
  }

  _field(field) {
    const { name, label, kind, hint, placeholder = "", value = "", on } = field;
    const input = this._input(field, { id: name, name, placeholder, value, on });
    this._inputs.set(name, input);
    const parts = kind === "flag" ? [input, el("label", { for: name }, label)] : [el("label", { for: name }, label), input];
    if (hint) {
      input.setAttribute("aria-describedby", `${name}-hint`);
      parts.push(el("p", { class: "note", id: `${name}-hint` }, hint));
    }
    const wrapper = el("div", { class: `field ${kind === "flag" ? "flag" : ""} ${WIDE.has(kind) || kind === "flag" ? "wide" : ""}` }, ...parts);
    this._wrappers.set(name, wrapper);
    return wrapper;
  }

  _input({ kind, min, max }, { id, name, placeholder, value, on }) {
    const common = { id, name, placeholder, autocomplete: "off" };
    if (kind === "flag") return el("input", { id, name, type: "checkbox", checked: on });
    if (kind === "strings" || kind === "json") return el("textarea", { ...common, rows: 2, spellcheck: "false" });
    if (kind === "text" || kind === "integers") return el("input", { ...common, type: "text", spellcheck: "false" });
    return el("input", { ...common, type: "number", min: min ?? null, max: max ?? null, step: kind === "integer" ? 1 : "any", value });
  }
}
