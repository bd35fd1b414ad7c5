import { el } from "./dom.js";

/** A labelled control with a hint below it. */
export function field(label, control, hint = "") {
  return el(
    "label",
    { class: "field" },
    el("span", {}, label),
    control,
    hint === "" ? null : el("small", {}, hint),
  );
}

/** A box to tick, with its label; the input is the label's `control`. */
export function tickBox(label, { checked = false, hint = "", onchange } = {}) {
  const text = el("span", {}, label, hint === "" ? null : el("small", {}, hint));
  return el("label", { class: "tick" }, el("input", { type: "checkbox", checked, onchange }), text);
}

/** A choice of one; `options` are `[value, label]`. */
export function choice(options, chosen, onchange) {
  return el("select", { onchange }, ...optionsOf(options, chosen));
}

/** The options of a choice. */
export function optionsOf(options, chosen) {
  return options.map(([value, label]) => el("option", { value, selected: value === chosen }, label));
}

/** A whole number between two bounds; empty is undefined. */
export function numberField(min, max, value = "") {
  return el("input", { type: "number", inputmode: "numeric", min, max, step: 1, value });
}

/** What a number field holds, or undefined. */
export function numberOf(input) {
  return input.value === "" ? undefined : Number(input.value);
}

/**
 * A choice of some out of many names. `values()` answers the chosen ones, undefined for none; `offer` changes what there
 * is to choose and keeps what was chosen; `changed` hears of every choice.
 */
export function picker(legend, changed = () => {}) {
  const list = el("div", { class: "chips" });
  const element = el("fieldset", { class: "picker" }, el("legend", {}, legend), list);
  const chosen = () => [...list.querySelectorAll("input:checked")];
  let offered = "";
  list.addEventListener("change", changed);
  return {
    element,
    values() {
      const names = chosen().map(({ value }) => value);
      return names.length === 0 ? undefined : names;
    },
    clear() {
      for (const input of chosen()) input.checked = false;
    },
    offer(names) {
      if (names.join("\n") === offered) return;
      offered = names.join("\n");
      const before = new Set(chosen().map(({ value }) => value));
      list.replaceChildren(...names.map((name) => chip(name, before.has(name))));
    },
  };
}

function chip(name, checked) {
  return el(
    "label",
    { class: "chip" },
    el("input", { type: "checkbox", value: name, checked }),
    el("span", {}, name),
  );
}
