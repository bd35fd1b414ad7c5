import { el } from "../base/dom.js";

export function deploymentsView(_page) {
  return { title: "deployments", element: el("h1", "deployments") };
}
