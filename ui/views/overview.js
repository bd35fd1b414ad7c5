import { el } from "../base/dom.js";

export function overviewView(_page) {
  return { title: "overview", element: el("h1", "overview") };
}
