import { el } from "../base/dom.js";

export function workersView(_page) {
  return { title: "workers", element: el("h1", "workers") };
}
