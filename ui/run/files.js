// Files that differ: what changed, and the difference line by line.
import { el } from "../base/dom.js";
import { plain, said } from "../base/text.js";
import { fold } from "../parts/region.js";
import { diffOf } from "../parts/table.js";

const SIGNS = { added: "+", missing: "−", removed: "−", extra: "+", changed: "~", link: "~" };

/**
 * A file that differs, as a fold with its difference; `where` it is so, and `before` stands above the difference.
 * @param {any} view
 * @param {string} key
 * @param {{ path: string, change?: string, state?: string, diff?: string | null, note?: string }} file
 * @param {{ open?: boolean, where?: any, before?: any }} [options]
 */
export function fileFold(view, key, file, { open = false, where, before } = {}) {
  const { path, change, state = change, diff, note } = file;
  const lines = diff?.split("\n") ?? [];
  const counted = (sign) => lines.filter((line) => line.startsWith(sign)).length;
  const changed = diff && [el("b.added", `+${counted("+")}`), " ", el("b.removed", `−${counted("-")}`)];
  const summary = [
    el("code", { title: plain(state) }, `${SIGNS[state] ?? "~"} `, said(path)),
    el("span.meta", state !== "changed" && state, note && ` ${note}`),
    el("span.end", changed, " ", where && el("span.badge", where)),
  ];
  if (!diff) return el("p.row-line.file", { key }, summary);
  return fold(view, { key, summary, open, kind: "file" }, () => [before && el("p.before", before), diffOf(diff)]);
}
