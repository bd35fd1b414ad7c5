import { el } from "../base/dom.js";

export function hooksView(_page) {
  return { title: "hooks", element: el("h1", "hooks") };
}
