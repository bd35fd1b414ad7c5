import { el } from "../base/dom.js";

export function jobsView(_page) {
  return { title: "jobs", element: el("h1", "jobs") };
}
