import { listOf } from "../base/api.js";
import { button, el } from "../base/dom.js";
import { ago, number, words } from "../base/text.js";
import { head, region, viewOf } from "../parts/region.js";
import { dataTable } from "../parts/table.js";
import { nameOf } from "../run/words.js";

const PAGE_EVENTS = 500;

/** Who did what, when and from where. @param {import("../routes.js").Page} page */
export function auditView(page) {
  const look = { most: PAGE_EVENTS };
  const table = dataTable({
    caption: "audit",
    columns: ["at", "action", "run", "via", "address", "run_id"],
    cells: { at: ({ at }) => ago(at), run: ({ run_id: id, run }) => el("a", { href: page.link("runs", [id]) }, run) },
    none: "Nobody has done anything yet.",
    keyOf: ({ at, run_id: id, action }) => `${at} ${id} ${action}`,
  });
  const read = async () => {
    const runs = await listOf(page.path(`/runs?limit=${PAGE_EVENTS}`), look.most);
    const entries = runs.flatMap((run) =>
      run.audit.map(({ at, action, actor }) => ({ at, action: words(action), run: nameOf(run), ...actor, run_id: run.id })),
    );
    return { cut: runs.cut, runs: runs.length, entries: entries.sort((one, other) => other.at.localeCompare(one.at)) };
  };
  const noteOf = (runs) => [`Of the ${number(runs)} newest runs. `, button("Show more", more, { class: "small" })];
  const draw = ({ entries, runs, cut }) => [cut && el("p.meta", { key: "cut" }, noteOf(runs)), table.with(entries)];
  const list = region(read, draw);
  function more() {
    look.most += PAGE_EVENTS;
    list.refresh();
  }
  return viewOf("Audit", head({ title: "Audit", line: "Who started and cancelled runs, when and from where" }), list);
}
