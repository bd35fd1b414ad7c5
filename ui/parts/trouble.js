// What is wrong in a bucket: what runs have left behind, and what was found not well when it was looked at last.
import { byTrouble } from "./state.js";

/** The kind of a problem that a state is, by what is watched; its action is the state. */
const KIND_OF = { unhealthy: "failed", unreachable: "unreachable", drifted: "hand", high: "soon" };

/** Incidents that nothing else tells of, with the kind of problem that they are. */
const KIND_OF_INCIDENT = { run_failed: "failed", snapshot_failed: "failed", schedule_missed: "soon" };

/**
 * The problems of a bucket, one for each cause, the worst first and then by age. What a run has left behind comes from its
 * summary as it is; what is not well has an `aspect` besides, and is left out where such a problem says it already. Open incidents that are neither come with an `incident`.
 * @param {any} summary
 * @param {any[]} [incidents]
 */
export function troublesOf(summary, incidents = []) {
  const { items = [], cut = 0 } = summary?.problems ?? {};
  const { items: unwell = [], cut: left = 0 } = summary?.unwell ?? {};
  const causeOf = ({ job, worker, aspect, state }) => [aspect, state, job || (aspect === "reach" && worker)].join(" ");
  const causes = Map.groupBy(unwell, causeOf);
  const silent = unwell.filter(({ aspect, state }) => aspect === "reach" && state === "unreachable");
  const lost = new Set(silent.map(({ worker }) => worker));
  const isNews = (one) => !items.some((known) => isTold(one, known)) && !(one.aspect === "health" && lost.has(one.worker));
  const found = [...causes.values()].map((own) => own.filter(isNews)).filter((own) => own.length > 0);
  const known = [...items, ...found.map((own) => problemOf(own, left > 0))];
  const isCause = ({ job, run_id: run }) => known.some((one) => (run && one.run_id === run) || (job && one.job === job));
  const all = [...known, ...incidents.filter((one) => !isCause(one)).map(incidentProblem)];
  return { items: all.sort((one, other) => byTrouble(one.kind, other.kind) || one.since.localeCompare(other.since)), cut };
}

/** Whether a problem says already that something is not well. */
function isTold({ job, worker, aspect, state }, { kind, job: other, workers, worker_count: many }) {
  if (aspect !== "health" && aspect !== "reach") return false;
  if (KIND_OF[state] !== kind || (kind === "failed" && job !== other)) return false;
  return workers.includes(worker) || many > workers.length;
}

/** Some that are not well in the same way as one problem; `more` where the summary has cut its list. */
function problemOf(own, more) {
  const [{ job, aspect, state, at }] = own;
  const workers = own.map(({ worker }) => worker);
  const newest = own.reduce((one, other) => (one.at > other.at ? one : other));
  const since = own.reduce((first, one) => (one.at < first ? one.at : first), at);
  return {
    ...{ kind: KIND_OF[state], action: state, aspect, more, since, reason: newest.reason, run_id: newest.run_id },
    ...{ job: job || null, jobs: job ? [job] : [], job_count: job ? 1 : 0 },
    ...{ workers, worker_count: workers.length, allocation_count: job ? workers.length : 0 },
  };
}

function incidentProblem({ id, event, subject, reason, run_id, opened_at: since }) {
  return {
    ...{ kind: KIND_OF_INCIDENT[event], action: id, incident: { event, subject }, since, reason, run_id },
    ...{ job: null, jobs: [], job_count: 0, workers: [], worker_count: 0, allocation_count: 0 },
  };
}
