import { el } from "../base/dom.js";

export function jobView(_page) {
  return { title: "job", element: el("h1", "job") };
}
