import { el } from "./dom.js";

const CLASSES = { "+": "added", "-": "removed", "@": "place" };

/** A unified diff, line by line; the sign at the front of a line stays, so that colour is never all there is. */
export function diffOf(text, label) {
  const lines = text.replace(/\n$/, "").split("\n");
  const shown = lines.map((line) =>
    el("span", { class: /^(\+\+\+|---) /.test(line) ? "file" : (CLASSES[line[0]] ?? null) }, `${line}\n`),
  );
  return el("pre", { class: "diff", tabindex: 0, role: "group", "aria-label": label }, ...shown);
}

/** A file that differs: what became of it, and its diff where there is one. */
export function fileDiff({ path, change, diff, note = "" }, open = false) {
  const title = [
    el("span", { class: `status ${change}` }, change),
    " ",
    el("code", {}, path),
    note === "" ? null : ` ${note}`,
  ];
  if (!diff) return el("p", { class: "file-change" }, ...title.filter((node) => node !== null));
  return el(
    "details",
    { open, class: "file-change" },
    el("summary", {}, ...title),
    diffOf(diff, `Changes of ${path}`),
  );
}
