import { el } from "../base/dom.js";

export function sourceView(_page) {
  return { title: "source", element: el("h1", "source") };
}
