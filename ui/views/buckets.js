import { el } from "../base/dom.js";

export function bucketsView(_page) {
  return { title: "buckets", element: el("h1", "buckets") };
}
