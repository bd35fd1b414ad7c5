// The head of a run: what it is and how it is, who asked and when, waves, one bar, chips, tabs and what to press.
import { a, button, el } from "../base/dom.js";
import { ago, clockTime, count, duration, elapsed, joined, listed, nameOf, number, plain, said } from "../base/text.js";
import { shortId } from "../parts/dialog.js";
import { cancelButton, moreMenu, orderButton } from "../parts/order.js";
import { tabs } from "../parts/region.js";
import { byTrouble, chips, mark, progressBar } from "../parts/state.js";
import { canRetry, retryButton, rollbackOrder, runItems } from "./orders.js";
import { isPlan, planBadge, planChips, planControls, planTitle } from "./plan.js";
import { stepper } from "./strip.js";
import { byOf, outcomesOf, repeatsOf, wavesOf } from "./words.js";

const CANCEL_WAIT_MS = 10_000;

/** @param {import("../views/run.js").RunPage} view @param {Record<string, any>} labels of tabs @param {string} chosen */
export function runHead(view, labels, chosen) {
  const { page, run } = view;
  const isActive = run.status === "running";
  const counts = countsOf(run);
  const waves = wavesOf(run);
  const [word, title, after] = titleOf(view);
  const tabsHere = tabs(labels, chosen, (tab) => page.link("runs", [run.id], { tab }));
  const titleHere = el("div.title", el("h1", word && mark(word, { large: true }), title), el("span.phase", after));
  return el(
    isActive ? "header.head.run-head" : "header.head.run-head.ended",
    el("div.first", titleHere, el("div.controls", controlsOf(view))),
    el("p.about", aboutLine(view)),
    run.break_glass && el("p.error", mark("failed"), el("b", " Glass broken: "), said(run.break_glass)),
    (isActive || waves.length > 0) && [
      el("div.second", waves.length > 0 && stepper(waves, isActive), isActive && elapsedOf(view)),
      progressBar(barOf(run, counts)),
    ],
    el("div.third", chips(isPlan(run) ? planChips(run) : chipsOf(counts), view.chosen, view.draw), tabsHere),
  );
}

/** The state, what the run is called, and what stands beside it. */
function titleOf(view) {
  const { run } = view;
  const { status, duration_ms: ms, params, kind, result } = run;
  const name = nameOf(run);
  if (status === "running")
    return isCancelling(run) ? ["running", `${name}, cancelling`, cancelling(run)] : ["running", name, phaseOf(run)];
  if (isPlan(run)) return [null, planTitle(run), planBadge(view)];
  const after = `after ${duration(ms)}`;
  const drifted = kind === "drift" ? (result?.workers ?? []).filter(({ outcome }) => outcome === "drifted").length : 0;
  if (drifted > 0) return ["hand", `Files differ on ${count(drifted, "worker")}`, after];
  if (status === "failed" && kind === "push") return ["failed", "Build failed", after];
  if (status !== "succeeded") return [status, `${name} ${status}`, after];
  const isDeploy = kind === "deploy" && !params.dry_run;
  const isEmpty = isDeploy && result?.jobs?.every(({ outcome }) => outcome === "skipped") && result.reconciled.length === 0;
  return ["succeeded", isEmpty ? "Nothing to deploy" : `${name} done`, after];
}

/** Progress may tell of a cancel before the record does. */
function isCancelling({ audit, progress }) {
  return progress?.cancel || audit.some(({ action }) => action === "cancel");
}

/** `12 of 19 have confirmed; by force in 6 s`. */
function cancelling({ audit, progress }) {
  const { confirmed = 0, total = 0 } = progress?.cancel ?? {};
  const asked = audit.findLast(({ action }) => action === "cancel");
  const since = Date.parse(asked?.at) || Date.now();
  const left = Math.ceil((since + CANCEL_WAIT_MS - Date.now()) / 1000);
  return `${confirmed} of ${total} confirmed${left > 0 ? `; by force in ${left} s` : "; ended by force"}`;
}

function phaseOf(run) {
  const { phase = "" } = run.progress ?? {};
  const waves = wavesOf(run);
  const [, wave, step] = /^wave (\d+): (.*)$/.exec(phase) ?? [];
  if (wave === undefined) return plain(phase);
  const index = waves.findIndex((one) => one.wave === Number(wave));
  const place = index >= 0 && waves.length > 1 ? ` (${index + 1} of ${waves.length})` : "";
  return `wave ${wave}${place}, ${step}`;
}

function aboutLine({ page, run }) {
  const { created_at: at, finished_at: end, revision, params, status } = run;
  const from = params.plan ?? params.retry_of;
  const when = end ? `${clockTime(at)} to ${clockTime(end)}, ` : `started ${clockTime(at)}, `;
  const all = outcomesOf(run);
  const sizeOf = (key) => new Set(all.map((row) => row[key]).filter(Boolean)).size;
  const jobs =
    params.jobs?.length || (status === "running" && run.progress?.total && page.bucket()?.summary?.totals?.jobs) || sizeOf("job");
  const workers = sizeOf("worker");
  const parts = [
    `by ${plain(byOf(run))}`,
    run.approval?.by.length > 0 && `approved by ${plain(listed(run.approval.by))}`,
    [when, ago(end ?? at)],
    repeatsOf(run),
    revision && ["revision ", shortId(revision)],
    from && a(page.link("runs", [from]), params.plan ? "plan " : "repeats ", el("span.code", `…${from.slice(-8)}`)),
    joined(jobs > 0 && count(jobs, "job"), workers > 0 && count(workers, "worker")),
    params.jobs?.length > 0 && `only ${params.jobs.length === 1 ? params.jobs[0] : count(params.jobs.length, "chosen job")}`,
  ];
  return parts.filter(Boolean).map((one) => el("span", one));
}

function elapsedOf(view) {
  const { created_at: begun } = view.run;
  const usual = usualOf(view);
  const isLate = usual > 0 && Date.now() - Date.parse(begun) > usual;
  const about = usual > 0 && [" of about ", usual < 60_000 ? duration(usual) : `${Math.round(usual / 60_000)} min`];
  return el("p.elapsed", { class: isLate && "late" }, el("b", elapsed(begun)), about);
}

/** How long runs like this one take: deploys by the bucket's own mean. */
function usualOf({ page, run, read }) {
  const mean = run.kind === "deploy" && !run.params.dry_run && page.bucket()?.summary?.mean_deploy_ms;
  if (mean) return mean;
  const others = read(`/runs?kind=${run.kind}&status=succeeded&limit=20`)?.items ?? [];
  const shapeOf = ({ params }) => `${!params.dry_run} ${!params.jobs}`;
  const alike = others.filter((one) => shapeOf(one) === shapeOf(run));
  return alike.reduce((ms, one) => ms + one.duration_ms, 0) / Math.max(1, alike.length);
}

/** How many allocations, or workers, are in each state. */
export function countsOf(run) {
  const { result, progress } = run;
  if (result?.summary) return result.summary.allocations;
  if (progress?.counts) return progress.counts;
  if (run.params.dry_run) return {};
  const found = Map.groupBy(outcomesOf(run), ({ outcome }) => outcome);
  return Object.fromEntries([...found].map(([word, own]) => [word, own.length]));
}

function chipsOf(counts) {
  const words = Object.keys(counts).filter((word) => counts[word] > 0);
  return words.sort(byTrouble).map((word) => ({ word, count: counts[word] }));
}

/** Progress of a run as one bar. */
export function barOf({ progress, status }, counts) {
  const { disabled: _, ...counted } = counts;
  const sum = Object.values(counted).reduce((all, one) => all + one, 0);
  // Without allocations it is what the run itself counts.
  const { done = 0, total = 0 } = progress ?? {};
  if (sum === 0) return { changed: done, waiting: total - done, total };
  const { changed = 0, skipped = 0, ok = 0, waiting = 0, not_started: left = 0 } = counts;
  const running = status === "running" ? counts.running : 0;
  return { ...counts, changed: changed + skipped + ok, waiting: waiting + left, running, total: sum };
}

function controlsOf(view) {
  const { page, run, read } = view;
  const more = moreMenu(() => runItems(page, run), "More orders of this run");
  if (run.status === "running") return [!isCancelling(run) && cancelButton(page, run), more];
  if (isPlan(run)) return [planControls(view), more];
  const hasFailed = run.status === "failed" && !run.params.dry_run;
  const line = hasFailed && read(`/runs/${run.id}/evidence`)?.items?.find((one) => one.line)?.line;
  const revisions = hasFailed && run.kind === "deploy" && read("/source/revisions?limit=50");
  // The one before that of the run that was built.
  const earlier = revisions?.items?.find((one) => one.id < (run.revision ?? "") && one.build_status === "succeeded");
  const showLog = () => page.showRun(run.id, { line: line || undefined });
  const log = button(line ? `Open log at line ${number(line)}` : "Open log", showLog, { class: "on-wide" });
  return [
    canRetry(run) && retryButton(page, run),
    earlier && orderButton(page, "Roll back …", () => rollbackOrder(page, earlier)),
    log,
    more,
  ];
}
