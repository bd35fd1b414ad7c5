import { alertPlace, button, el, tell } from "./dom.js";

/**
 * Asks before something is done: `says` tells what it will do and to what, one sentence each. With `word` that very word
 * has to be typed first. `fields` are shown below. `submit` does it; when it fails, the dialog stays and says why.
 * Resolves true once it is done, false when the person does not want it.
 */
export function ask({
  title,
  says = [],
  fields = [],
  word,
  action,
  danger = false,
  submit = async () => {},
}) {
  const problem = alertPlace();
  const typed = el("input", { autocomplete: "off", spellcheck: "false", "aria-describedby": "typed-hint" });
  const confirm = el("button", { type: "submit", class: danger ? "danger solid" : "primary" }, action);
  const { promise, resolve } = Promise.withResolvers();
  const match = () => {
    confirm.disabled = word !== undefined && typed.value.trim() !== word;
  };
  const form = el(
    "form",
    { method: "dialog" },
    el("h2", { id: "dialog-title" }, title),
    ...says.map((sentence) => el("p", {}, sentence)),
    ...fields,
    word === undefined
      ? null
      : el(
          "label",
          { class: "field" },
          el("span", { id: "typed-hint" }, "Type ", el("b", {}, word), " to go on"),
          typed,
        ),
    problem,
    el(
      "div",
      { class: "controls" },
      confirm,
      button("Cancel", () => dialog.close()),
    ),
  );
  const dialog = el("dialog", { "aria-labelledby": "dialog-title" }, form);
  typed.addEventListener("input", match);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    confirm.disabled = true;
    tell(problem, "");
    try {
      await submit();
      resolve(true);
      dialog.close();
    } catch (error) {
      tell(problem, error.message);
    }
    match();
  });
  dialog.addEventListener("close", () => {
    resolve(false);
    dialog.remove();
  });
  match();
  document.body.append(dialog);
  dialog.showModal();
  return promise;
}

/** Closes whatever asks now: nobody is there to answer. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}
