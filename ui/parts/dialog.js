import { alertPlace, button, el, scroller } from "../base/dom.js";
import { plain, prose, tell } from "../base/text.js";
import { icon } from "./state.js";

let dialogs = 0;

/** Opens a dialog over the page. When the dialog is closed, it is removed from the page and `onclose` is called. */
export function openDialog(attributes, content, onclose = () => {}) {
  const dialog = /** @type {HTMLDialogElement} */ (el("dialog", attributes, content));
  dialog.onclose = () => {
    dialog.remove();
    onclose();
  };
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks a question, then does `submit`. A failure keeps the question open and says why. Answers whether it was done.
 * @param {{ title: string, says?: any[], fields?: any, word?: string | false, action: string, leave?: string, danger?: boolean,
 *   wide?: boolean, foot?: any, submit?: () => any }} question `word` has to be typed where something dangerous is asked
 */
export function ask({ title, says = [], fields, word, action, leave = "Cancel", danger, wide, foot, submit }) {
  const { promise, resolve } = Promise.withResolvers();
  const problem = alertPlace();
  const typed = el("input", { autocomplete: "off", spellcheck: "false" });
  const confirm = el(danger ? "button.danger" : "button.primary", { autofocus: leave === "" }, action);
  const isRight = () => !word || typed.value.trim() === word;
  const match = () => (confirm.disabled = !isRight());
  const form = el(
    "form",
    { oninput: match, autocomplete: "off" },
    says.map((sentence) => sentence && el("p", sentence)),
    fields,
    word && el("label.field", el("span", "Type ", el("b", word), " to go on"), typed),
    problem,
    el("footer", el("span", foot), leave !== "" && button(leave, () => dialog.close()), confirm),
  );
  form.onsubmit = async (event) => {
    event.preventDefault();
    if (!isRight()) return;
    Object.assign(confirm, { disabled: true, ariaBusy: "true" });
    tell(problem, "");
    try {
      await submit?.();
      resolve(true);
      dialog.close();
    } catch (error) {
      tell(problem, error.message, error.way);
    }
    confirm.ariaBusy = null;
    match();
  };
  match();
  const id = `dialog-${++dialogs}`;
  const before = document.activeElement;
  const about = { "aria-labelledby": id, class: wide && "wide" };
  const dialog = openDialog(about, [el("h2", { id }, title), form], () => {
    if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
    resolve(false);
  });
  // The focus may be at the end of a long one.
  dialog.scrollTop = 0;
  return promise;
}

/** Closes every dialog. */
export function closeDialogs() {
  /** @type {NodeListOf<HTMLDialogElement>} */
  const all = document.querySelectorAll("dialog[open]");
  for (const dialog of all) dialog.close();
}

/**
 * A button that opens a small box below it: a menu, or a reason. What is in the box is made when it opens.
 * @param {any} label
 * @param {() => any[]} content
 * @param {Record<string, any>} [attributes]
 */
export function popupButton(label, content, { menu = false, ...attributes } = {}) {
  const box = el("div", { popover: "auto", class: menu ? "menu" : "pad", role: menu ? "menu" : "dialog" });
  box.onkeydown = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    /** @type {any[]} */
    const items = [...box.querySelectorAll(".item")];
    if (!by || items.length === 0) return;
    event.preventDefault();
    items.at((items.indexOf(document.activeElement) + by) % items.length)?.focus();
  };
  // What was pressed may be an older element than the one that was made with this listener: see patch.
  function open({ currentTarget: trigger }) {
    box.setAttribute("aria-label", trigger.ariaLabel ?? trigger.textContent);
    box.replaceChildren(...content().flat().filter(Boolean));
    box.ontoggle = ({ newState }) => {
      trigger.setAttribute("aria-expanded", String(newState === "open"));
      if (newState === "closed") box.remove();
    };
    box.onclick = ({ target }) => /** @type {Element} */ (target).closest?.(".item") && box.hidePopover();
    document.body.append(box);
    box.showPopover();
    const { left, right, bottom, top } = trigger.getBoundingClientRect();
    const { width, height } = box.getBoundingClientRect();
    const isBelow = bottom + height + 4 < innerHeight;
    box.style.top = `${isBelow ? bottom + 4 : Math.max(4, top - height - 4)}px`;
    box.style.left = `${Math.max(8, left + width < innerWidth - 8 ? left : right - width)}px`;
    /** @type {HTMLElement} */ (box.querySelector(".item, button, a"))?.focus();
  }
  return button(label, open, { "aria-haspopup": menu ? "menu" : "dialog", "aria-expanded": "false", ...attributes });
}

/** An entry of a menu. */
export function item(label, onclick) {
  return button(label, onclick, { class: "item", role: "menuitem" });
}

/** An entry of a menu that leads to another view. */
export function wayItem(label, href) {
  return item(label, () => (location.hash = href));
}

const STAYS_MS = 8_000;

/** A short notice at the corner; one with something to press, or an error, stays until it is closed. */
export function toast(text, { error = false, controls = [] } = {}) {
  const place = document.getElementById("toasts");
  const close = () => one.remove();
  const content = el("div", el("p", error ? prose(text) : text), el("div.controls", controls));
  const one = el("div.toast", { class: error && "error" }, content, button("Close", close, { class: "small quiet" }));
  place.append(one);
  while (place.children.length > 3) place.firstElementChild.remove();
  if (!error && controls.length === 0) setTimeout(close, STAYS_MS);
  return { close };
}

const COPIED_MS = 2_000;

/** Copies a text, or shows the text where the browser does not let it. */
export function copyText(text, done) {
  const show = () => ask({ title: "Copy this", fields: scroller("Text", text, "pre.scroll"), action: "Close", leave: "" });
  return Promise.try(() => navigator.clipboard.writeText(text)).then(done, show);
}

/** A button that copies a text. */
export function copying(label, textOf, attributes = {}) {
  const act = async ({ currentTarget: copy }) => {
    const done = () => {
      const was = [...copy.childNodes];
      copy.replaceChildren("Copied");
      setTimeout(() => copy.replaceChildren(...was), COPIED_MS);
    };
    try {
      const text = await textOf();
      if (text !== "") await copyText(text, done);
    } catch (error) {
      toast(error.message, { error: true });
    }
  };
  return button(label, act, attributes);
}

/** A command to type, or another text of that form, and a button that copies it. */
export function command(text, what = "command") {
  const copy = copying(icon("copy"), () => text, { class: "small quiet", "aria-label": `Copy this ${what}` });
  return el("div.command", el("code", text), copy);
}

/** The end of an id; a click copies the whole. */
export function shortId(id) {
  if (!id) return "";
  return copying(`…${id.slice(-8)}`, () => id, { class: "plain code", title: `Copy ${plain(id)}` });
}
