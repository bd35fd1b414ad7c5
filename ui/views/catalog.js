import { el } from "../base/dom.js";

export function catalogView(_page) {
  return { title: "catalog", element: el("h1", "catalog") };
}
