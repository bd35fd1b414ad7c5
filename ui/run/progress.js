// What goes on in a run: its waves with the jobs in them, failed ones first, and what it waits for.
import { el } from "../base/dom.js";
import { count, duration, elapsed, joined, listed, plain, said } from "../base/text.js";
import { fold, rest } from "../parts/region.js";
import { mark, rowAbout } from "../parts/state.js";
import { batchStrip, waveState } from "./strip.js";
import { onWorkers, wavesOf } from "./words.js";

/** A wait without a limit is long after that time. */
const LONG_MS = 30_000;
/** Jobs in these states stand together; those at work and in trouble each have a row. */
const TOGETHER = ["not_started", "cancelled", "changed", "ok", "waiting"];

/** @param {import("../views/run.js").RunPage} view */
export function progressOf(view) {
  const { progress } = view.run;
  if (!progress) return el("p.notice", "It begins.");
  const waves = wavesOf(view.run);
  const jobs = progress.jobs ?? progress.rollouts.map(({ job }) => ({ job, state: "running" }));
  const body = waves.length > 0 ? waves.map((wave) => waveFold(view, wave, jobs)) : el("ul.jobs", jobsIn(view, "", jobs));
  return [jobs.length > 0 && el("section.panel.waves", { key: "waves" }, body), waitsBox(progress.waiting)];
}

function waveFold(view, wave, jobs) {
  const state = waveState(wave, true);
  const own = jobs.filter((one) => one.wave === wave.wave);
  const isAtWork = wave.running + wave.failed > 0;
  const waits = state === "waiting" && (wave.jobs === 1 ? " waits" : " wait");
  const roll = joined(wave.running > 0 && `${wave.running} roll out`, wave.failed > 0 && `${wave.failed} failed`);
  const jobsOfWave = count(wave.jobs, "job");
  const text = isAtWork ? `${wave.done} of ${jobsOfWave} done, ${roll}` : [jobsOfWave, waits, `: ${listed(namesOfJobs(own), 4)}`];
  const key = `wave ${wave.wave}`;
  const about = { key, summary: rowAbout(state, `Wave ${wave.wave}`, text), open: isAtWork || jobs.length === 1 };
  return fold(view, about, () => el("ul.jobs", jobsIn(view, key, own)));
}

/** The names of jobs. */
export function namesOfJobs(jobs) {
  return jobs.map(({ job }) => job);
}

/** Jobs at work and in trouble each, the worst first; the others as one row for each state. */
function jobsIn(view, key, jobs) {
  const groups = Map.groupBy(jobs, ({ state }) => state);
  const each = [...(groups.get("failed") ?? []), ...(groups.get("running") ?? [])];
  const together = TOGETHER.filter((word) => groups.has(word)).map((word) => {
    const own = groups.get(word);
    const summary = rowAbout(word, `${count(own.length, "job")} ${word.replaceAll("_", " ")}`, listed(namesOfJobs(own), 6));
    const draw = ({ job, reason }) => el("li", job, reason && el("span.meta", " ", said(reason)));
    return el("li.rest", { key: word }, rest(view, { key: `${key} ${word}`, summary }, own, draw));
  });
  return [each.map((one) => jobRow(one, view.run.progress)), together];
}

function jobRow({ job, state, reason, duration_ms: ms }, { rollouts, waiting }) {
  const rollout = rollouts.find((one) => one.job === job);
  const waits = waiting.filter((one) => one.job === job);
  const [since] = waits.map((one) => one.since).sort();
  const { batch = 0, batches = 0, hosts = [], gate, action } = rollout ?? {};
  const [failed, lost] = ["failed", "unreachable"].map((word) => hosts.filter((host) => host.state === word).length);
  const phase = joined(
    batch > 0 ? `batch ${batch} of ${batches}` : action,
    { pending: "gate", failed: "gate failed" }[gate],
    hosts.some((host) => host.state === "restoring") && "puts back",
    failed > 0 && `failed on ${failed}`,
    lost > 0 && `${lost} unreachable`,
  );
  const took = state === "running" ? since && elapsed(since) : ms > 0 && duration(ms);
  const about = [mark(state, { label: state }), el("b", job), rollout ? batchStrip(hosts) : el("span")];
  // What the worker said, where it is told.
  const ownWords = /exit code \d+: (.+)$/s.exec(reason)?.[1] ?? reason;
  const why = state === "failed" && reason && el("code.reason.bad", { tabindex: 0 }, said(ownWords));
  return el("li", { key: job }, el("div.job", about, el("span.meta", { title: phase }, phase), el("span.end", took)), why);
}

/** How many wait: of very many waits those of a job for one reason are told as one. */
export function manyIn(waits) {
  return waits.reduce((sum, { more = 0 }) => sum + 1 + more, 0);
}

/** What the run waits for, by reason: who, how long, and how long at most. */
function waitsBox(waiting) {
  if (waiting.length === 0) return null;
  const reasonOf = ({ reason = "other", on, detail }) => (/^(other|make)$/.test(reason) ? (detail ?? on) : reason);
  const groups = [...Map.groupBy(waiting, reasonOf)];
  const workers = new Set(waiting.map(({ worker, on }) => worker ?? on)).size;
  const many = manyIn(waiting);
  const thing = waiting.some(({ job }) => job) ? "allocation" : "worker";
  const who = many > waiting.length ? count(many, thing) : count(workers, "worker");
  const text = `${who}, ${count(groups.length, "reason")}`;
  const rows = groups.map(([reason, own]) => waitRow(reason, own));
  return el("section.panel.waits", { key: "waits" }, el("h2", "Waiting for ", el("span.meta", text)), el("dl", rows));
}

function waitRow(reason, own) {
  const [first] = own.toSorted((one, other) => one.since.localeCompare(other.since));
  const limit = first.until && Date.parse(first.until) - Date.parse(first.since);
  const isLong = Date.now() - Date.parse(first.since) > (limit ? (2 * limit) / 3 : LONG_MS);
  const whos = [...Map.groupBy(own, ({ job }) => job ?? "")].map(([job, some]) => {
    const rows = [...Map.groupBy(some, ({ worker }) => worker).values()].map(([one]) => one).filter(({ worker }) => worker);
    const many = manyIn(some);
    const where = many > some.length ? `on ${count(many, "worker")}` : rows.length > 0 && onWorkers(rows);
    return [job, where].filter(Boolean).join(" ");
  });
  const who = listed(whos.filter(Boolean));
  const detail = first.detail === reason ? "" : first.detail;
  const waited = el("b", { class: isLong && "late" }, elapsed(first.since));
  const most = el("span.meta", limit ? ` of ${duration(limit)}` : " no limit");
  const waits = el("dd", said(who), " ", el("span.meta", said(detail)));
  return el("div", { key: reason }, el("dt", plain(reason)), waits, el("dd.end", waited, most));
}
