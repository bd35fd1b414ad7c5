import { alertPlace, button, el, tell } from "./dom.js";

/** Opens a dialog with a form in it, and answers it; `onClose` hears when it is closed, in whatever way. */
export function openDialog(title, form, onClose = () => {}) {
  const heading = el("h2", { id: "dialog-title" }, title);
  const dialog = el("dialog", { "aria-labelledby": "dialog-title" }, heading, form);
  dialog.addEventListener("close", () => {
    dialog.remove();
    onClose();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks before something is done: `says` tells what it will do and to what, one sentence each. With `word` that very word
 * has to be typed first. `fields` are shown below. `submit` does it; when it fails, the dialog stays and says why.
 * Resolves true once it is done, false when the person does not want it and presses `leave`.
 */
export function ask({ title, says = [], fields, word, action, leave = "Cancel", danger, submit }) {
  const { promise, resolve } = Promise.withResolvers();
  const problem = alertPlace();
  const typed = el("input", { autocomplete: "off", spellcheck: "false" });
  const confirm = el(danger ? "button.danger.solid" : "button.primary", action);
  const match = () => {
    confirm.disabled = word !== undefined && typed.value.trim() !== word;
  };
  const form = el(
    "form",
    { oninput: match },
    says.map((sentence) => el("p", sentence)),
    fields,
    word !== undefined && el("label.field", el("span", "Type ", el("b", word), " to go on"), typed),
    problem,
    el(
      "div.controls",
      confirm,
      button(leave, () => dialog.close()),
    ),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    confirm.disabled = true;
    tell(problem, "");
    try {
      await submit?.();
      resolve(true);
      dialog.close();
    } catch (error) {
      tell(problem, error.message);
      problem.append(" ", error.way ?? "");
    }
    match();
  });
  match();
  const dialog = openDialog(title, form, () => resolve(false));
  return promise;
}

/** Closes whatever asks now: nobody is there to answer. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}
