import { el } from "../base/dom.js";

export function runView(_page) {
  return { title: "run", element: el("h1", "run") };
}
