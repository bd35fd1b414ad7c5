import { el } from "../base/dom.js";

export function runsView(_page) {
  return { title: "runs", element: el("h1", "runs") };
}
