// What goes on in a run: its waves with the jobs in them, failed ones first, and what it waits for.
import { el } from "../base/dom.js";
import { count, duration, elapsed, listed, plain, said } from "../base/text.js";
import { fold, rest } from "../parts/region.js";
import { mark, markOf } from "../parts/state.js";
import { wavesOf } from "./head.js";
import { batchStrip, waveState } from "./strip.js";
import { onWorkers } from "./words.js";

/** A wait without a limit is long after that time. */
const LONG_MS = 30_000;

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
  const names = own.map(({ job }) => job);
  const isAtWork = wave.running + wave.failed > 0;
  const parts = [
    isAtWork && `${wave.done} of ${count(wave.jobs, "job")} done`,
    !isAtWork && `${count(wave.jobs, "job")}${state === "waiting" ? (wave.jobs === 1 ? " waits" : " wait") : ""}`,
    wave.running > 0 && `${wave.running} roll out`,
    wave.failed > 0 && `${wave.failed} failed`,
  ];
  const text = parts.filter(Boolean).join(", ");
  const more = !isAtWork && `: ${listed(names, 4)}`;
  const isOpen = isAtWork || jobs.length === 1;
  const summary = [mark(state, { label: state }), el("b", `Wave ${wave.wave}`), el("span.meta", text, more)];
  const key = `wave ${wave.wave}`;
  return fold(view, { key, summary, open: isOpen }, () => el("ul.jobs", jobsIn(view, key, own)));
}

/** Jobs at work and in trouble each, the worst first; the others as one row for each state. */
function jobsIn(view, key, jobs) {
  const groups = Map.groupBy(jobs, ({ state }) => state);
  const each = [...(groups.get("failed") ?? []), ...(groups.get("running") ?? [])];
  const equal = ["not_started", "cancelled", "changed", "ok", "waiting"].filter((word) => groups.has(word));
  return [
    each.map((one) => jobRow(one, view.run.progress)),
    equal.map((word) => {
      const own = groups.get(word);
      const names = own.map(({ job }) => job);
      const text = [
        mark(word, { label: word }),
        el("b", `${count(own.length, "job")} ${word.replaceAll("_", " ")}`),
        el("span.meta", listed(names, 6)),
      ];
      const draw = ({ job, reason }) => el("li", job, reason && el("span.meta", " ", said(reason)));
      return el("li.rest", { key: word }, rest(view, { key: `${key} ${word}`, summary: text }, own, draw));
    }),
  ];
}

function jobRow({ job, state, reason, duration_ms: ms }, { rollouts, waiting }) {
  const rollout = rollouts.find((one) => one.job === job);
  const waits = waiting.filter((one) => one.job === job);
  const [since] = waits.map((one) => one.since).sort();
  const bad = rollout?.hosts.find((host) => host.state === "restoring");
  const { batch = 0, batches = 0, gate, action } = rollout ?? {};
  const step = batch > 0 ? `batch ${batch} of ${batches}` : (action ?? "");
  const phase = [
    step,
    gate === "pending" && "gate",
    gate === "failed" && "gate failed",
    bad && "puts back",
    rollout?.failed > 0 && `failed on ${rollout.failed}`,
  ];
  return el(
    "li",
    { key: job },
    el(
      "div.job",
      mark(state, { label: state }),
      el("b", job),
      rollout ? batchStrip(rollout.hosts) : el("span"),
      el("span.meta", phase.filter(Boolean).join(", ")),
      el("span.end", state === "running" ? since && elapsed(since) : ms > 0 && duration(ms)),
    ),
    state === "failed" && reason && el("code.reason.bad", { tabindex: 0 }, said(ownWords(reason))),
  );
}

/** What the worker said of a reason, where it is told. */
function ownWords(reason) {
  return /exit code \d+: (.+)$/s.exec(reason)?.[1] ?? reason;
}

/** What the run waits for, by reason: who, how long, and how long at most. */
function waitsBox(waiting) {
  if (waiting.length === 0) return null;
  const groups = [
    ...Map.groupBy(waiting, ({ reason = "other", on, detail }) =>
      reason === "other" || reason === "make" ? (detail ?? on) : reason,
    ),
  ];
  const workers = new Set(waiting.map(({ worker, on }) => worker ?? on)).size;
  const text = `${count(workers, "worker")}, ${count(groups.length, "reason")}`;
  return el(
    "section.panel.waits",
    { key: "waits" },
    el("h2", "Waiting for ", el("span.meta", text)),
    el("dl", ...groups.map(([reason, own]) => waitRow(reason, own))),
  );
}

function waitRow(reason, own) {
  const [first] = own.toSorted((one, other) => one.since.localeCompare(other.since));
  const limit = first.until && Date.parse(first.until) - Date.parse(first.since);
  const isLong = Date.now() - Date.parse(first.since) > (limit ? (2 * limit) / 3 : LONG_MS);
  const whos = [...Map.groupBy(own, ({ job }) => job ?? "")].map(([job, some]) => {
    const workers = [...new Set(some.map(({ worker }) => worker).filter(Boolean))];
    return [job, workers.length > 0 && onWorkers(workers)].filter(Boolean).join(" ");
  });
  const who = listed(whos.filter(Boolean));
  const detail = first.detail === reason ? "" : first.detail;
  return el(
    "div",
    { key: reason },
    el("dt", plain(reason)),
    el("dd", said(who), " ", el("span.meta", said(detail))),
    el(
      "dd.end",
      el("b", { class: isLong && "late" }, elapsed(first.since)),
      el("span.meta", limit ? ` of ${duration(limit)}` : " no limit"),
    ),
  );
}

/** The mark of a job by its outcome in a result. */
export function jobMark(outcome) {
  return outcome === "deployed" ? "changed" : markOf(outcome);
}
