import { el } from "../base/dom.js";

export function auditView(_page) {
  return { title: "audit", element: el("h1", "audit") };
}
