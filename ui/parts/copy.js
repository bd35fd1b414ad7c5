import { button, el, scroller } from "../base/dom.js";
import { plain } from "../base/text.js";
import { ask, toast } from "./dialog.js";
import { icon } from "./state.js";

const COPIED_MS = 2_000;

/** A button that copies a text, or shows the text where the browser does not let it. */
export function copying(label, textOf, attributes = {}) {
  const act = async ({ currentTarget: copy }) => {
    const text = await Promise.try(textOf).catch((error) => toast(error.message, { error: true }) && "");
    if (text === "") return;
    try {
      await navigator.clipboard.writeText(text);
      const was = [...copy.childNodes];
      copy.replaceChildren("Copied");
      setTimeout(() => copy.replaceChildren(...was), COPIED_MS);
    } catch {
      ask({ title: "Copy this", fields: scroller("Text", text, "pre.scroll"), action: "Close", leave: "" });
    }
  };
  return button(label, act, attributes);
}

/** A command to type, and a button that copies it. */
export function command(text) {
  const copy = copying(icon("copy"), () => text, { class: "small quiet", "aria-label": "Copy this command" });
  return el("div.command", el("code", text), copy);
}

/** The end of an id; a click copies the whole. */
export function shortId(id) {
  if (!id) return "";
  return copying(`…${id.slice(-8)}`, () => id, { class: "plain code", title: `Copy ${plain(id)}` });
}
