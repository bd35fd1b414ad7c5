import { button, el } from "../base/dom.js";
import { prefer } from "../base/preferences.js";

/** A box to tick, with its label. */
export function tickBox(label, { hint, ...attributes } = /** @type {any} */ ({})) {
  return el("label.tick", el("input", { type: "checkbox", ...attributes }), el("span", label, hint && el("small", hint)));
}

/** The listener of a box that stands for a value of a set. @param {Set<string>} chosen */
export function ticking(chosen, value, changed) {
  return ({ target }) => {
    if (target.checked) chosen.add(value);
    else chosen.delete(value);
    changed();
  };
}

/** A choice of one. */
export function choice(label, options, chosen, onchange) {
  // An empty value is one too, which el would leave out.
  const all = options.map(([value, text]) => Object.assign(el("option", { selected: value === chosen }, text), { value }));
  return el("label.choose", `${label} `, el("select", { onchange: ({ target }) => onchange(target.value) }, all));
}

/** A choice of one as buttons beside each other: `[value, text]` each. */
export function choiceBar(label, options, chosen, onchange) {
  const buttons = options.map(([value, text]) =>
    button(text, () => onchange(value), { class: "small", key: value, "aria-pressed": String(value === chosen) }),
  );
  return el("div.choice", { key: label, role: "group", "aria-label": label }, buttons);
}

/**
 * Fields of a form.
 * @param {{ name: string, label: any, hint?: string, type?: string, rows?: number, options?: string[], value?: any, required?: boolean, placeholder?: string, min?: number, max?: number }[]} table
 */
export function fieldsOf(table) {
  const labels = table.map(({ name, label, hint, ...attributes }) => {
    if (attributes.type === "checkbox") return tickBox(label, { name, hint, ...attributes });
    return el("label.field", el("span", label), inputOf({ name, ...attributes }), hint && el("small", hint));
  });
  const inputs = labels.map((label) => /** @type {HTMLLabelElement} */ (label).control);
  const values = () => {
    const filled = table.map(({ name }, index) => [name, filledIn(inputs[index])]);
    return Object.fromEntries(filled.filter(([, value]) => value !== undefined));
  };
  return { labels, inputs, values };
}

/** @param {any} attributes */
function inputOf({ options, rows, value, ...attributes }) {
  const plain = { autocomplete: "off", spellcheck: "false", ...attributes };
  const choices = options?.map((one) => el("option", one));
  if (choices) return el("select", attributes, choices);
  return rows ? el("textarea.code", { rows, ...plain }, value) : el("input", { value, ...plain });
}

/** @param {any} input */
function filledIn({ type, value, checked, files }) {
  if (type === "checkbox") return checked || undefined;
  if (type === "file") return files[0];
  if (value === "") return undefined;
  return type === "number" ? Number(value) : value;
}

const SCHEMES = { "": "as the system", light: "light", dark: "dark" };

/** The choice of light or dark, which the browser remembers. */
export function colours() {
  const root = document.documentElement.style;
  return choice("Colours", Object.entries(SCHEMES), root.colorScheme, (value) => {
    root.colorScheme = value;
    prefer("colours", value);
  });
}
