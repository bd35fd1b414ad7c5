import { el } from "../base/dom.js";

export function commandView(_page) {
  return { title: "command", element: el("h1", "command") };
}
