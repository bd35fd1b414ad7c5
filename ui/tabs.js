import { link } from "./address.js";
import { el } from "./dom.js";

/** Tabs that are links, each with an address of its own; `tabs` are `[name, label]`, `chosen` is a name. */
export function tabBar(label, bucketId, view, tabs, chosen) {
  const links = tabs.map(([name, text]) =>
    el("a", { href: link(bucketId, view, [name]), "aria-current": name === chosen ? "page" : null }, text),
  );
  return el("nav", { class: "tabs", "aria-label": label }, ...links);
}
