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

/** A box to tick; the input is `box.control`. */
export function tickBox(label, { checked = false, hint = "", onchange } = {}) {
  const control = el("input", { type: "checkbox", checked, onchange });
  const box = el(
    "label",
    { class: "tick" },
    control,
    el("span", {}, label, hint === "" ? null : el("small", {}, hint)),
  );
  return Object.assign(box, { control });
}

/** A choice of one; `options` are `[value, label]`. */
export function choice(options, chosen, onchange) {
  return el(
    "select",
    { onchange },
    ...options.map(([value, label]) => el("option", { value, selected: value === chosen }, label)),
  );
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
 * A choice of some out of many names. `values()` answers the chosen ones in order, undefined for none; `offer` changes
 * what there is to choose and keeps what was chosen.
 */
export function picker(legend, { onchange = () => {}, chosen = [] } = {}) {
  const list = el("div", { class: "chips" });
  const note = el("small", {}, "");
  const element = el("fieldset", { class: "picker", onchange }, el("legend", {}, legend), list, note);
  let wanted = new Set(chosen);
  let offered = "";
  list.addEventListener("change", () => {
    wanted = new Set([...list.querySelectorAll("input:checked")].map(({ value }) => value));
  });
  return {
    element,
    values: () => (wanted.size === 0 ? undefined : [...wanted]),
    clear() {
      wanted.clear();
      for (const input of list.querySelectorAll("input")) input.checked = false;
    },
    offer(names) {
      if (names.join("\n") === offered && list.children.length > 0) return;
      offered = names.join("\n");
      wanted = new Set(names.filter((name) => wanted.has(name)));
      note.textContent = names.length === 0 ? "There is none to choose." : "";
      list.replaceChildren(...names.map((name) => chip(name, wanted.has(name))));
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
