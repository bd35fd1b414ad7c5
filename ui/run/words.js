// What a run is called, is about, and came to: one form for lists, heads and tables.
import { count, joined, listed, number, since } from "../base/text.js";
import { commonPrefix } from "../parts/map/model.js";

/** What a run is about, in a word. */
export function aboutOf({ params: { command, hook, snapshot, note, jobs, workers, labels, plan, retry_of } }) {
  if (retry_of) return "what failed before";
  if (plan) return "a plan";
  return command ?? hook ?? snapshot ?? note ?? listed(jobs ?? workers ?? labels ?? []);
}

const BY = { bearer: "token", session: "browser", cli: "command line" };

/** Who asked: `ada, browser from 10.4.0.12`, `schedule nightly`. */
export function byOf({ origin, audit }) {
  const { via = origin, address = "", name } = audit[0]?.actor ?? {};
  if (via === "schedule" && name) return name.replace(":", " ");
  const from = address && via !== "cli" ? ` from ${address}` : "";
  return joined(name, `${BY[via] ?? via}${from}`);
}

/** `the same 412 times since 3 Nov 05:30, 3 days`: of a run of a schedule, how often it has ended in this way. */
export function repeatsOf({ schedule }) {
  return schedule?.repeats > 0 ? [`the same ${number(schedule.repeats + 1)} times `, since(schedule.since)] : null;
}

/** Names in one line without what they have in common: `ams-b-001, -004 and 3 more`. */
export function inShort(names, most = 3) {
  const [first = "", ...others] = names;
  const cut = names.length > 1 ? Math.max(0, commonPrefix(names).search(/[-._][^-._]*$/)) : 0;
  return listed([first, ...others.map((name) => name.slice(cut))], most);
}

/** The names of the workers of some rows. */
export function workersOf(rows) {
  return rows.map(({ worker }) => worker);
}

/** Where rows are: `on ams-b-007`, `on 12 workers`. */
export function onWorkers(rows) {
  return `on ${rows.length === 1 ? rows[0].worker : count(rows.length, "worker")}`;
}

/**
 * How many rows there are of each word: `3 failed, 4 not started`.
 * @param {any[]} rows @param {(row: any) => string} wordOf
 */
export function tallied(rows, wordOf = ({ outcome }) => outcome) {
  const groups = [...Map.groupBy(rows, wordOf)];
  return groups.map(([word, own]) => `${number(own.length)} ${word.replaceAll("_", " ")}`).join(", ");
}

/** The waves of a run that has some. */
export function wavesOf({ progress, result }) {
  return result?.waves?.[0]?.wave === undefined ? (progress?.waves ?? []) : result.waves;
}

/** How it went or would go, by job and worker: `{ job, worker, outcome, action, why, duration_ms, … }`. */
export function outcomesOf({ params, result, progress }) {
  const { job, jobs, workers, waves, reconciled = [], allocations, scripts } = result ?? {};
  if (!result) return goingOn(progress);
  if (params.dry_run) return waves ? plannedRows(result) : [];
  if (Array.isArray(jobs)) return [...jobs.flatMap(jobRows), ...reconciled.map((one) => ({ ...one, why: one.error }))];
  if (Array.isArray(workers)) return workers.flatMap(workerRows);
  if (scripts) return scripts.map((one) => ({ ...one, job, why: one.error, outcome: one.error === null ? "ok" : "failed" }));
  // A build counts its allocations.
  return Array.isArray(allocations) ? allocations.map((one) => ({ ...one, why: one.error })) : [];
}

function goingOn(progress) {
  const { rollouts = [], waiting = [] } = progress ?? {};
  if (rollouts.length > 0)
    return rollouts.flatMap(({ job, hosts }) => hosts.map(({ state, ...host }) => ({ job, ...host, outcome: state })));
  const ofWorkers = waiting.filter(({ worker }) => worker);
  return ofWorkers.map(({ job, worker, detail }) => ({ job, worker, outcome: "running", action: detail }));
}

function plannedRows({ waves, unreachable }) {
  const lost = unreachable.map(({ worker, error: why }) => ({ worker, outcome: "unreachable", why }));
  const rows = waves.flatMap(({ jobs }) =>
    jobs.flatMap(({ job, outcome, reason, allocations }) =>
      allocations.map((one) => ({ ...one, job, outcome: one.action, why: outcome === "failed" ? reason : one.reason })),
    ),
  );
  return [...rows, ...lost];
}

function jobRows({ job, wave, outcome, reason, allocations }) {
  if (allocations.length === 0) return [{ job, wave, outcome, why: reason }];
  return allocations.map((one) => ({ ...one, job, wave, why: one.error ?? (outcome === "failed" ? reason : "") }));
}

function workerRows({ allocations = [], ...one }) {
  // A host key that has changed is a failure; elsewhere `changed` is what was done.
  const outcome = one.outcome === "changed" ? "key_changed" : one.outcome;
  if (allocations.length === 0) return [{ ...one, outcome, why: one.error }];
  return allocations.map((own) => {
    const unfinished = own.is_unfinished ? "a change of it has not ended" : "";
    return { ...own, worker: one.worker, why: own.files.length > 0 ? count(own.files.length, "file") : unfinished };
  });
}
