import { unless } from "../base/api.js";
import { a, el } from "../base/dom.js";
import { has, lackedRole, needsRole } from "../base/person.js";
import { ago, clockTime, nameOf, said, words } from "../base/text.js";
import { freezeList, isHeldBack } from "../parts/freeze.js";
import { curlItem, moreMenu, orderButton, startPathOf } from "../parts/order.js";
import { head, region, viewOf } from "../parts/region.js";
import { mark, state } from "../parts/state.js";
import { dataTable } from "../parts/table.js";
import { aboutOf, repeatsOf } from "../run/words.js";
import { rhythmText } from "./rhythm.js";

/** How a due time that started nothing is marked. */
const OUTCOME_MARKS = { skipped: "soon", missed: "soon", refused: "failed" };
const ABOUT_SCHEDULES = "What the server starts by itself, by workspace/schedules.json.";

/** What the server starts by itself in a bucket, and when nothing may be deployed. @param {import("../routes.js").Page} page */
export function schedulesView(page) {
  const table = dataTable({
    caption: "schedules",
    columns: ["name", "what", "rhythm", "next", "last", "actions"],
    labels: { what: "Starts", rhythm: "When" },
    cells: {
      name: ({ name }) => el("b", said(name)),
      what: startedBy,
      rhythm: ({ rhythm, cron }) => el("span", { title: cron ?? "" }, said(rhythm)),
      next: (one) => nextDue(page, one),
      last: (one) => lastDue(page, one),
      actions: (one) => scheduleOrders(page, one),
    },
    keyOf: ({ name }) => name,
    none: "Nothing is scheduled: write workspace/schedules.json, then push it.",
  });
  const repeats = repeatsRead(page);
  const read = async () => {
    const { items } = await unless(page.get("/schedules"), { items: [] });
    const rows = items.map(async (one) => ({ ...one, rhythm: rhythmText(one), what: one.kind, of: await repeats(one.last) }));
    return { rows: await Promise.all(rows), freezes: page.bucket()?.summary?.freezes ?? [] };
  };
  const list = region(read, ({ rows, freezes }) => [
    !has("deploy") && el("p.meta", { key: "role" }, needsRole("Starting, pausing or resuming one", "deploy")),
    table.with(rows),
    freezesShown(freezes),
  ]);
  return viewOf("Schedules", head({ title: "Schedules", line: ABOUT_SCHEDULES }), list);
}

/** Reads how often the run of a schedule has ended the same way; of a run that has ended, once. */
function repeatsRead(page) {
  const known = new Map();
  return async (last) => {
    const { run_id: id = null, status } = last ?? {};
    if (id === null || status === "running") return null;
    if (!known.has(id)) known.set(id, (await unless(page.get(`/runs/${id}`), {})).schedule ?? null);
    return known.get(id);
  };
}

function startedBy({ kind, parameters }) {
  const about = aboutOf({ params: parameters });
  const isReal = kind === "deploy" && !parameters.dry_run;
  return [nameOf({ kind, params: parameters }), about && el("span.meta", " ", said(about)), isReal && el("small", " for real")];
}

/** When a schedule is due next, and what is going to hold it back then. */
function nextDue(page, { next, paused, kind, parameters }) {
  if (paused) return [state("disabled", "paused"), " by ", said(paused.by), " ", el("span.meta", ago(paused.at))];
  if (!next) return el("span.meta", "never again");
  const isIn = ({ from, to }) => from <= next && next < to;
  const freeze = (page.bucket()?.summary?.freezes ?? []).find(isIn);
  const isHeld = freeze && isHeldBack({ path: startPathOf(kind), body: parameters });
  const held = isHeld && el("p.small", mark("soon"), " a freeze will be on: skipped");
  return [el("b", ago(next)), el("span.meta", ` ${clockTime(next)}`), held];
}

/** What became of the last due time, and how often it was the same. */
function lastDue(page, { last, of }) {
  if (!last) return el("span.meta", "not due yet");
  const { due, outcome, reason, run_id: id, status } = last;
  const word = outcome === "started" ? (status ?? "unknown") : OUTCOME_MARKS[outcome];
  const told = outcome === "started" ? (status ?? "its run is gone") : outcome;
  const shown = state(word, told);
  const repeated = repeatsOf({ schedule: of });
  const meta = el("span.meta", " ", ago(due), repeated && [" · ", repeated]);
  return [id ? a(page.link("runs", [id]), shown) : shown, meta, reason && el("p.small", said(reason))];
}

function scheduleOrders(page, { name, kind, parameters, paused }) {
  const path = `/schedules/${encodeURIComponent(name)}`;
  const isReal = kind === "run_command" || (kind === "deploy" && !parameters.dry_run);
  const says = [`Starts ${words(kind).toLowerCase()} with the parameters of ${name}: ${JSON.stringify(parameters)}.`];
  const run = { path: `${path}/run`, ...(isReal && { says, danger: true, action: "Run now" }) };
  const stays = ["It starts nothing until it is resumed, also after a push or a restart."];
  const pause = { path: `${path}/pause`, says: stays, action: "Pause" };
  const [label, order] = paused ? ["Resume", { path: `${path}/resume` }] : ["Pause …", pause];
  const toggle = orderButton(page, label, order, { style: "small", free: true });
  if (!toggle) return null;
  // Some kinds need a greater role.
  const isAllowed = !lackedRole({ path: startPathOf(kind), body: parameters });
  const start = isAllowed && orderButton(page, isReal ? "Run now …" : "Run now", run, { style: "small" });
  const more = moreMenu(() => [curlItem(page, run)], `More orders of ${name}`);
  return el("span.controls", start, toggle, more);
}

/** The freezes of the next seven days. */
function freezesShown(freezes) {
  if (freezes.length === 0) return null;
  const about = "In a freeze deploys, rollbacks, commands, hooks and restores are refused; an admin can break the glass.";
  const title = el("h2", "Freezes of the next seven days");
  return el("section.panel.pad", { key: "freezes" }, title, el("p.meta", about), freezeList(freezes));
}
