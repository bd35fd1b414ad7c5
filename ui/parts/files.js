import { call, encoded, listOf } from "../base/api.js";
import { el } from "../base/dom.js";
import { said, size, textBox } from "../base/text.js";
import { region } from "./region.js";
import { listing } from "./table.js";

/** A longer file is for download only. */
const MOST_SHOWN = 512 * 1024;

/**
 * A list of files for reading, and above it the chosen one.
 * @param {any} page
 * @param {{ base: string, chosen?: string, linkTo: (path: string) => string }} options `base`: of the API, below the bucket
 */
export function fileParts(page, { base, chosen, linkTo }) {
  const list = listing(() => listOf(page.path(`${base}?limit=500`)), {
    caption: "Files",
    name: "files",
    columns: ["path", "size_bytes", "mode"],
    labels: { path: "File" },
    cells: { path: ({ path }) => el("a.code", { href: linkTo(path), "aria-current": path === chosen && "true" }, said(path)) },
    keyOf: ({ path }) => path,
    none: "There is no file.",
  });
  return chosen === undefined ? [list] : [filePart(chosen, page.path(`${base}/${encoded(chosen)}`)), list];
}

function filePart(path, url) {
  const read = async () => {
    const blob = await call("GET", url, { as: "blob" });
    const text = blob.size > MOST_SHOWN ? null : await blob.text();
    return { bytes: blob.size, text: text?.includes("\uFFFD") ? null : text };
  };
  const download = el("a.button.small", { href: url, download: path.split("/").at(-1) }, "Download");
  const draw = ({ bytes, text }) => [
    el("div.spread", el("h2", el("code", said(path)), el("span.meta", ` ${size(bytes)}`)), download),
    text === null ? el("p.meta", "The file is no text, or too long to be shown.") : textBox(path, text),
  ];
  return region(read, draw, { name: "section.panel.pad", rows: 3 });
}
