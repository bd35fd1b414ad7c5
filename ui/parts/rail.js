// The rail of an overview: the last runs, files changed by hand, certificates that end soon, the source.
import { a, el } from "../base/dom.js";
import { ago, count, duration, nameOf, number, plain, said } from "../base/text.js";
import { shortId } from "./dialog.js";
import { mark, runStrip } from "./state.js";

const MOST_IN_RAIL = 5;
/** Runs that change what runs on the workers. */
const CHANGING = /^(deploy|job_(?!status)|run_command|hooks|gc)/;

/** @param {any} page @param {{ runs: any[], summary: any }} data */
export function railOf(page, { runs, summary }) {
  if (!summary) return null;
  const { drift, certs } = summary;
  return [lastRuns(page, runs, summary), driftOfBucket(page, drift), certsOf(page, certs), sourceOf(page, summary)];
}

function section(title, end, ...content) {
  return el("section", { key: title }, el("header", el("h2.meta.small", title), el("span.meta.small", end)), content);
}

/** The link to what is not shown of a list. */
function moreThan(shown, total, href) {
  return total > shown && el("p", a(href, `${number(total - shown)} more`));
}

function row(href, sign, name, ...ends) {
  return el("li", a(href, sign, el("span.name", name)), ...ends.map((end) => el("span.meta.small", end)));
}

function lastRuns(page, runs, { recent, totals }) {
  const rows = runs.map(({ id, kind, status, params, created_at, duration_ms }) => {
    const isDry = params?.dry_run === true;
    const word = status === "succeeded" ? (CHANGING.test(kind) && !isDry ? "changed" : "ok") : status;
    const name = nameOf({ kind: kind.replace(/^worker_/, ""), params });
    const took = duration(duration_ms).replace(" min ", " m ");
    return row(page.link("runs", [id]), mark(word, { label: word }), name, ago(created_at), took);
  });
  const all = a(page.link("runs"), `All ${number(totals.runs)}`);
  if (rows.length === 0) return section("Last runs", all, el("p.meta", "No run yet."));
  return section("Last runs", all, recent.length > 0 && runStrip(recent), el("ul.runs", rows));
}

function driftOfBucket(page, drift) {
  if (!drift) return section("Drift", "", el("p.meta", "Not checked yet."));
  const { id, allocations, total } = drift;
  const href = page.link("runs", [id]);
  const rows = allocations.slice(0, MOST_IN_RAIL).map(({ job, worker, files }) => {
    const sign = mark("hand", { label: "changed by hand" });
    return row(href, sign, said(`${job} on ${worker}`), count(files, "file"));
  });
  const { in_sync: same = 0, drifted = 0, ...others } = drift.workers;
  const unknown = Object.values(others).reduce((sum, one) => sum + one, 0);
  const end = ["checked ", ago(drift.finished_at ?? drift.created_at)];
  const changed = el("p", mark("hand"), " ", a(href, `Files were changed on ${count(drifted, "worker")}`));
  const inAll = drifted > 0 ? changed : same > 0 && el("p.meta", mark("ok"), " No file was changed by hand");
  return section(
    "Drift",
    end,
    el("ul", rows),
    total > 0 ? moreThan(rows.length, total, href) : inAll,
    unknown > 0 && el("p.meta", mark("unreachable"), ` ${count(unknown, "worker")} gave no answer`),
  );
}

function certsOf(page, { items, total }) {
  const href = page.link("catalog", ["certs"]);
  const rows = items.slice(0, MOST_IN_RAIL).map(({ job, worker, cert, not_after: end, status }) => {
    const name = el("span", { title: plain(`${job} ${cert} on ${worker}`) }, said(`${job} ${cert}`));
    const isOver = status === "expired";
    return row(href, mark(isOver ? status : "soon", { label: status }), name, [isOver && "ended ", ago(end)]);
  });
  if (rows.length === 0) return null;
  return section("Certificates that end soon", "", el("ul", rows), moreThan(rows.length, total, href));
}

function sourceOf(page, { revision, built_at: built, update_seq: sequence }) {
  const builtLine = el("p.meta", { title: built }, `Built, update sequence ${number(sequence)}`);
  if (!revision) return section("Source", "", builtLine);
  const { id, created_at: pushed, build_status: status } = revision;
  const about = el("p", shortId(id), status !== "succeeded" && [" ", mark(status), ` its build ${status}`]);
  return section("Source", a(page.link("source"), "pushed ", ago(pushed)), about, builtLine);
}
