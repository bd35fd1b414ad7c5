import { address, bucketPath, get, keepQuery, link, pageAt } from "../base/api.js";
import { a, button, el } from "../base/dom.js";
import { about, ago, count, dueText, duration, elapsed, fits, listed, nameOf, number, plain, said, since } from "../base/text.js";
import { guide, newBucketButton } from "../parts/guide.js";
import { tellingLine } from "../parts/map/reason.js";
import { orderButton } from "../parts/order.js";
import { head, region, viewOf } from "../parts/region.js";
import { chips, mark, progressBar, runStrip } from "../parts/state.js";
import { barOf, countsOf } from "../run/head.js";

/** Each state with its chip and its group in the table. */
const STATES_OF_BUCKETS = {
  failed: ["failing", "Needs attention"],
  unreachable: ["unreachable", "Needs attention"],
  unwell: ["not well", "Needs attention"],
  running: ["running", "Running"],
  ok: ["well", "Well"],
  waiting: ["not deployed", "Not deployed"],
};
const HEADS = ["", "Bucket", "Health", "Jobs × workers", "Last deploy", "Last 20 runs", ""];
/** A group with this many buckets or more, and nothing to do, is folded. */
const FOLDED_FROM = 100;
/** So many of the running runs are asked how far they are. */
const MOST_RUNNING = 20;

/** All buckets: first what is broken, since when and why. */
export function bucketsView(page) {
  const look = { typed: address().query.get("q") ?? "", chosen: new Set(), unfolded: new Set() };
  const buckets = region(readBuckets, draw, { name: "div" });

  function draw({ items }) {
    const all = items.map((bucket) => ({ ...bucket, state: stateIn(bucket) }));
    if (all.length === 0) return guide(page, null);
    if (all.length === 1 && all[0].state === "waiting" && !all[0].workers)
      return guide({ ...page, ...pageAt({ bucketId: all[0].id }) }, all[0]);
    return [bucketsHead(page, all), filtersOf(all, look, buckets.draw), tableOf(page, all, look, buckets.draw)];
  }
  return viewOf("Buckets", buckets);
}

/** The buckets, and how far the runs are that go on in them. */
async function readBuckets() {
  const summary = await get("/api/summary");
  const runOf = ({ id, active_run: run }) => get(bucketPath(id, `/runs/${run.id}`)).catch(() => null);
  const readRun = async (bucket) => (bucket.run = await runOf(bucket));
  const running = summary.items.filter(({ active_run: run }) => run);
  await Promise.all(running.slice(0, MOST_RUNNING).map(readRun));
  return summary;
}

/** failed, unreachable, unwell, running, ok or waiting: worked out from the allocations, not from the last run. */
function stateIn(bucket) {
  const { problems, problem_count: problemCount, active_run: active, last_deploy: deploy, initialized, unavailable } = bucket;
  if (unavailable || problems.some(({ kind }) => kind !== "unreachable")) return "failed";
  if (problemCount > 0) return "unreachable";
  if (wasCutOff(bucket)) return "failed";
  if (bucket.unwell_count + bucket.incident_count > 0) return "unwell";
  if (active) return "running";
  return initialized && deploy ? "ok" : "waiting";
}

/** Whether the last deploy has failed before it came to some allocations. */
function wasCutOff({ last_deploy: deploy, counts }) {
  return deploy?.status === "failed" && counts.waiting > 0;
}

function needsAttention({ state }) {
  return STATES_OF_BUCKETS[state][1] === "Needs attention";
}

function bucketsHead(page, all) {
  const broken = all.filter(needsAttention);
  const running = all.filter(({ active_run: active }) => active).length;
  const begins = broken.flatMap(({ problems }) => problems.map(({ since: from }) => from)).filter(Boolean);
  const workers = all.reduce((sum, bucket) => sum + (bucket.workers ?? 0), 0);
  const line = [
    count(workers, "worker"),
    running > 0 && `${count(running, "run")} ${running === 1 ? "goes" : "go"} on`,
    begins.length > 0 && `the oldest problem is ${about(Date.now() - Date.parse(begins.sort()[0]))} old`,
  ];
  const [word, title] = bucketsTitle(all);
  const told = line.filter(Boolean).join(" · ");
  return head({ title, mark: mark(word, { large: true }), line: told, controls: newBucketButton(page) });
}

/** How the buckets are: a state, and a sentence. */
function bucketsTitle(all) {
  const broken = all.filter(needsAttention);
  const [buckets, isOne] = [count(all.length, "bucket"), all.length === 1];
  const well = all.filter(({ last_deploy: deploy }) => deploy).length;
  if (broken.length > 0) {
    const worst = Object.keys(STATES_OF_BUCKETS).find((word) => inState(all, word) > 0);
    return [worst, `${broken.length} of ${buckets} ${broken.length === 1 ? "needs" : "need"} attention`];
  }
  if (well === 0) return ["waiting", isOne ? "The bucket is not deployed" : `None of ${buckets} is deployed`];
  if (well < all.length) return ["ok", `${well} of ${buckets} ${well === 1 ? "is" : "are"} well`];
  return ["ok", isOne ? "The bucket is well" : `All ${buckets} are well`];
}

function inState(all, word) {
  return all.filter(({ state }) => state === word).length;
}

function filtersOf(all, look, changed) {
  const oninput = ({ target }) => {
    look.typed = target.value;
    keepQuery({ q: look.typed });
    changed();
  };
  const about = { type: "search", placeholder: "Filter", "aria-label": "Filter buckets", value: look.typed, oninput };
  const states = Object.entries(STATES_OF_BUCKETS);
  const items = states.map(([word, [text]]) => ({ word, text, count: inState(all, word) }));
  return el("div.filters.bare", el("input", about), chips(items, look.chosen, changed));
}

function tableOf(page, all, look, changed) {
  const isShown = ({ project, name, state }) =>
    fits(`${project}/${name}`, look.typed) && (look.chosen.size === 0 || look.chosen.has(state));
  const byGroup = Map.groupBy(all.filter(isShown), ({ state }) => STATES_OF_BUCKETS[state][1]);
  const groups = [...new Set(Object.values(STATES_OF_BUCKETS).map(([, name]) => name))].filter((name) => byGroup.has(name));
  const rows = groups.flatMap((name) => {
    const own = byGroup.get(name).toSorted(byAge);
    const isFolded = own.length >= FOLDED_FROM && /^(Well|Not)/.test(name) && !look.unfolded.has(name);
    const unfold = () => changed(look.unfolded.add(name));
    const title = `${name} ${number(own.length)}`;
    const shown = isFolded ? button(`${title}, show`, unfold, { class: "plain" }) : title;
    const row = el("tr.group", { key: name }, el("th", { colspan: HEADS.length, scope: "rowgroup" }, shown));
    return [all.length > 1 && row, ...(isFolded ? [] : own.map((bucket) => bucketRow(page, bucket)))];
  });
  if (rows.length === 0) return el("p.notice.panel", "Nothing matches the filter.");
  const columns = HEADS.map((text) =>
    el("th", { scope: "col", class: text === "Jobs × workers" && "number" }, text || el("span.unseen", "State and orders")),
  );
  const parts = [el("caption.unseen", "Buckets"), el("thead", el("tr", columns)), el("tbody", rows)];
  return el("div.panel.table.buckets", el("table", parts));
}

/** The oldest trouble first, then by name. */
function byAge(one, other) {
  const [from, to] = [one, other].map(({ problems }) => problems[0]?.since ?? "~");
  return from.localeCompare(to) || `${one.project}/${one.name}`.localeCompare(`${other.project}/${other.name}`);
}

function bucketRow(page, bucket) {
  const { id, project, name, state, jobs, workers, last_deploy: deploy, recent } = bucket;
  const size = workers > 0 ? `${number(jobs)} × ${number(workers)}` : "–";
  const word = deploy?.status === "succeeded" ? "ok" : deploy?.status;
  const ended = deploy && [el("span", { class: deploy.status }, word), " ", ago(deploy.created_at)];
  return el(
    "tr",
    { key: id },
    el("td", mark(state, { label: state })),
    el("th", { scope: "row" }, a(link(id), el("span.meta", said(project), "/"), said(name))),
    el("td.health", healthOf(bucket)),
    el("td.number", size),
    el("td.meta", ended ?? "never"),
    el("td", recent?.length > 0 && runStrip(recent)),
    el("td.number", nextOrder({ ...page, ...pageAt({ bucketId: id }), nameOfBucket: () => name }, bucket)),
  );
}

/** What is wrong and since when, with the real line; or what goes on; or what comes next. */
function healthOf(bucket) {
  const { active_run: active, unavailable, problems, problem_count: problemCount, unwell_count: many, state, workers } = bucket;
  if (unavailable) return [el("b.failed", "Cannot be read"), el("span.reason", said(unavailable))];
  const own = problems.filter(({ kind }) => kind !== "unsettled");
  const [worst] = own.length > 0 ? own : problems;
  if (worst) {
    const place = [worst.job, worst.workers[0]].filter(Boolean).join("@");
    const reason = `${place} ${tellingLine(worst.reason)}`;
    // The list is cut here, so that only the overview of the bucket can count its problems.
    const others = own.length - 1;
    const more = others > 0 && (problemCount > problems.length ? " and more" : ` and ${count(others, "more problem")}`);
    return [
      el("span", el("b", { class: worst.kind }, problemText(worst)), more, " ", el("span.meta", since(worst.since))),
      el("span.reason", { title: plain(reason) }, said(reason)),
      active && runningLine(bucket),
    ];
  }
  const cutOff = wasCutOff(bucket) && el("b.failed", `The last deploy failed: ${dueText(bucket.counts.waiting)}`);
  const unwell = many > 0 && el("b.soon", `${number(many)} found not well when last looked at`);
  const open = bucket.incident_count > 0 && el("b.soon", count(bucket.incident_count, "open incident"));
  if (active || cutOff || unwell || open) return [cutOff, unwell, open, active && runningLine(bucket)];
  if (state === "waiting") return el("span.meta", "Not deployed yet.", !workers && " Nothing has been pushed.");
  return nextOf(bucket);
}

/** A problem in a few words. */
function problemText({ kind, job, workers, worker_count: workerCount, job_count: jobCount }) {
  const where = workerCount <= 2 ? listed(workers) : count(workerCount, "worker");
  const what = jobCount > 1 ? count(jobCount, "job") : job;
  if (kind === "unreachable") return `${where} cannot be reached`;
  return `${what} ${kind === "failed" ? "failed" : "was left half-way"} on ${where}`;
}

function runningLine({ active_run: active, mean_deploy_ms: mean, run }) {
  const { kind, created_at: begun, dry_run: isDry } = active;
  const isKnown = kind === "deploy" && !isDry && mean > 0;
  const isLate = isKnown && Date.now() - Date.parse(begun) > mean;
  const time = el("span", { class: isLate ? "soon late" : "meta" }, elapsed(begun), isKnown && ` of about ${duration(mean)}`);
  return el("span.going-on", run && progressBar(barOf(run, countsOf(run))), el("span", nameOf(active)), time);
}

function nextOf({ certs_soon: certs, next_cert: next, drifted, counts }) {
  if (counts.waiting > 0) return el("span", mark("waiting"), ` ${dueText(counts.waiting)}`);
  if (certs > 0)
    return el("span", mark("soon"), ` ${count(certs, "certificate")} ${certs === 1 ? "ends" : "end"} `, ago(next?.not_after));
  if (drifted > 0) return el("span", mark("hand"), ` Files were changed by hand on ${count(drifted, "allocation")}`);
  return el("span.meta", "All well");
}

function nextOrder(page, { state, problems, active_run: active }) {
  if (active) return null;
  if (state === "waiting") return el("a.button.small", { href: page.link() }, "Set up");
  if (state === "unreachable") {
    const workers = problems.flatMap((problem) => problem.workers);
    return orderButton(page, "Try again", { path: "/workers/uptime", body: { workers } }, { style: "small" });
  }
  if (state !== "failed" || problems.length === 0) return null;
  const jobs = [...new Set(problems.filter(({ kind }) => kind !== "unreachable").flatMap((problem) => problem.jobs))];
  const says = [`Deploys ${listed(jobs, 8)}: first what failed, then what was not started.`];
  const retry = { path: "/deploy", body: { jobs }, says, danger: true, action: "Retry" };
  return orderButton(page, "Retry …", retry, { style: "small" });
}
