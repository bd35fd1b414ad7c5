// What a deploy came to: what failed first, with what was said there, then what was not started, then what went well.
import { el } from "../base/dom.js";
import { count, duration, firstLine, joined, listed, prose, said } from "../base/text.js";
import { orderButton } from "../parts/order.js";
import { fold, rest } from "../parts/region.js";
import { byTrouble, mark, rowAbout, tag } from "../parts/state.js";
import { evidenceOf } from "./evidence.js";
import { deployOrder } from "./orders.js";
import { namesOfJobs } from "./progress.js";
import { inShort, onWorkers, tallied, workersOf } from "./words.js";

const ORDER = ["failed", "cancelled", "not_started", "deployed", "skipped"];
/** Up to so many jobs that were not started have a row each. */
const FEW = 5;

/** @param {import("../views/run.js").RunPage} view */
export function reportOf(view) {
  const { jobs, reconciled } = view.run.result;
  const groups = Map.groupBy(jobs, ({ outcome }) => outcome);
  const all = [...new Set([...ORDER, ...groups.keys()])].flatMap((outcome) => groupOf(view, outcome, groups.get(outcome) ?? []));
  return el("section.panel.report", { key: "report" }, reconciled.length > 0 && reconcileFold(view, reconciled), all);
}

/** Jobs in trouble or of a chosen state each, others as one row. */
function groupOf(view, outcome, jobs) {
  if (jobs.length === 0) return [];
  const isChosen = ({ allocations }) => allocations.some((one) => view.chosen.has(one.outcome)) || view.chosen.has(outcome);
  const isBad = outcome === "failed" || outcome === "cancelled";
  const each = isBad ? jobs : jobs.filter((job) => isChosen(job) || (outcome === "not_started" && jobs.length <= FEW));
  const rows = each.map((job, index) => resultFold(view, job, isBad && index === 0));
  const others = jobs.filter((job) => !each.includes(job));
  if (others.length === 0) return rows;
  const lost = [...new Set(others.flatMap(({ allocations }) => workersOf(withOutcome(allocations, "unreachable"))))];
  const slowest = Math.max(...others.map((one) => one.duration_ms));
  const name = `${count(others.length, "job")} ${outcome.replaceAll("_", " ")}`;
  const tolerated = lost.length > 0 && `; ${inShort(lost)} unreachable, which their manifests tolerate`;
  const took = slowest > 0 && el("span.end", duration(slowest));
  const summary = rowAbout(outcome, name, [listed(namesOfJobs(others), 6), tolerated], took);
  const draw = ({ job, reason }) => el("li", job, outcome === "not_started" && el("span.meta", " ", said(reason)));
  return [...rows, rest(view, { key: outcome, summary }, others, draw)];
}

function resultFold(view, one, open) {
  const { job, wave, outcome, reason, duration_ms: ms, allocations } = one;
  const actions = [...new Set(allocations.map(({ action }) => action).filter((one) => one && one !== "skip"))];
  const isBack = / put back on /.test(reason);
  const failed = withOutcome(allocations, "failed");
  const isWhole = outcome === "not_started" || allocations.length === 0;
  const { batch, batches } = one.stopped_in ?? {};
  const stop = batches > 1 && `stopped at batch ${batch} of ${batches}`;
  const why = isWhole ? reason : joined(failed.length > 0 && `failed ${onWorkers(failed)}`, stop);
  const summary = [
    rowAbout(outcome, job),
    actions.length > 0 && el("span", actions.join(", ")),
    wave !== undefined && tag(`wave ${wave}`),
    el("span.meta", why && said(why)),
    isBack && el("span.badge", "put back"),
    ms > 0 && el("span.end", duration(ms)),
  ];
  return fold(view, { key: job, summary, open, kind: outcome === "failed" && "bad" }, () => jobBody(view, one));
}

function withOutcome(allocations, wanted) {
  return allocations.filter(({ outcome }) => outcome === wanted);
}

function jobBody(view, one) {
  const { job, allocations, reason, outcome } = one;
  const bad = allocations.filter(({ error }) => error);
  const groups = [...Map.groupBy(bad, ({ worker, error }) => error.replaceAll(worker, "…")).values()];
  const told = groups.length > 0 ? groups.map((own) => troubleOf(view, job, own)) : el("p.pad", said(reason));
  const aside = [whichWorkers(view, job, allocations), outcome === "failed" && nowOf(view, one), ordersOf(view, one)];
  return el("div.two", el("div.said", told), el("div.aside", aside));
}

/** Equal trouble on some workers as one block. */
function troubleOf(view, job, own) {
  const names = workersOf(own);
  const [{ worker, error, evidence }] = own;
  const same = names.length === 2 ? "same on both" : names.length > 2 && `same on ${names.length} workers`;
  const who = el("b", { title: names.join(", ") }, inShort(names));
  const what = el("span", prose(firstLine(error).replace(/:$/, "")));
  const lines = evidenceOf(view, { job, worker, error, evidence });
  return el("section", { key: worker }, el("p.who", who, " ", what, " ", el("span.meta", same)), lines);
}

function whichWorkers(view, job, allocations) {
  const groups = [...Map.groupBy(allocations, ({ outcome }) => outcome)].sort(([one], [other]) => byTrouble(one, other));
  const rows = groups.map(([outcome, own]) => {
    const names = workersOf(own);
    const few = el("span.end", names.length < 3 && inShort(names));
    const summary = [mark(outcome), `${outcome.replaceAll("_", " ")} on `, el("b", own.length), few];
    return rest(view, { key: `${job} ${outcome}`, summary }, names);
  });
  return [el("h2", "Which workers"), el("div.states", rows)];
}

/** What runs on the workers of a job now: read when its fold is open. */
function nowOf(view, { job, reason, allocations }) {
  const found = view.read(`/cat/deployments?jobs=${encodeURIComponent(job)}&limit=1000`);
  const rows = found?.items.filter((row) => row.rollout !== "removed") ?? [];
  const down = (view.run.result.left_down ?? []).filter((text) => text.startsWith(`${job}@`));
  const versions = [...Map.groupBy(rows, (row) => (row.previous_hash ? row.current_version : "nothing promoted"))];
  const running = versions.map(([version, own], index) => [index > 0 && ", ", said(version), ` on ${own.length}`]);
  const back = reason.split("; ").filter((text) => /put back|promoted there before/.test(text));
  const isGate = allocations.some(({ evidence }) => evidence);
  const why = isGate ? "`on_failure` is `stop`" : "only a failed gate does that";
  return [
    el("h2", "What runs now"),
    el("p", running, down.length > 0 && [", ", el("b.error", `may be down on ${down.length}`)]),
    el("p.meta", back.length > 0 ? said(back.join("; ")) : prose(`Nothing was put back: ${why}.`)),
  ];
}

function ordersOf({ page }, { job, outcome, allocations }) {
  const left = allocations.filter((one) => !/^(changed|ok|skipped|disabled)$/.test(one.outcome));
  if (left.length === 0 && outcome !== "failed") return null;
  const says = [`Deploys ${job} on ${count(left.length, "worker")}: ${tallied(left)}. What is done stays as it is.`];
  const order = { ...deployOrder({ jobs: [job] }), action: `Retry ${job}`, says, danger: job };
  const there = workersOf(withOutcome(left, "failed"));
  const command = page.link("command", [], { workers: there.slice(0, 50).join() });
  return el(
    "div.controls",
    orderButton(page, `Retry ${job} …`, order, { again: true, style: "small" }),
    there.length > 0 && el("a.button.small", { href: command }, "Run a command there"),
  );
}

/** Allocations that were stopped or removed before the waves. */
function reconcileFold(view, reconciled) {
  const bad = reconciled.filter(({ error }) => error);
  const word = bad.length > 0 ? "failed" : "changed";
  const told = `${count(reconciled.length, "allocation")} stopped or removed, ${bad.length} failed`;
  const summary = rowAbout(word, "Reconcile", told);
  const row = ({ job, worker, action, error }) =>
    el("li", mark(error ? "failed" : "changed"), ` ${job} on ${worker}: ${action} `, error && el("span.error", said(error)));
  return rest(view, { key: "reconcile", summary, open: bad.length > 0, kind: bad.length > 0 && "bad" }, reconciled, row);
}
