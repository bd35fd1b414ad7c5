import { bucketPath, call, runsOf } from "./api.js";
import { runLink } from "./controls.js";
import { el } from "./dom.js";
import { ago, count, status } from "./format.js";
import { dataOf, part, tableOf, textBox } from "./parts.js";
import { planOf } from "./plan.js";
import { progressOf } from "./progress.js";

const LOOKED_AT = 20;
const SIGNS = { "+": "added", "-": "removed", "@": "place" };

/** What a run is about, in a word: the command, the hook, the snapshot, the jobs. */
export function aboutOf({ params: { command, hook, snapshot, revision, jobs, workers, dry_run } }) {
  const about = command ?? hook ?? snapshot ?? revision ?? (jobs ?? workers ?? []).join(", ");
  return dry_run ? `dry run ${about}` : about;
}

/** The newest run of a kind that is `wanted`, with its result and what `controlsOf` it can be done. */
export function lastRunPart(
  { bucketId },
  title,
  kind,
  none,
  { wanted, controlsOf = () => null, tools } = {},
) {
  const read = async () => {
    const runs = await runsOf(bucketId, kind, wanted ? LOOKED_AT : 1);
    const run = wanted ? runs.find(wanted) : runs[0];
    if (run?.status !== "running") return run ?? null;
    const { progress } = await call("GET", bucketPath(bucketId, `/runs/${run.id}`));
    return { ...run, duration_ms: 0, log_size_bytes: 0, progress };
  };
  const draw = (run) => [
    el(
      "p",
      status(run.status),
      " ",
      runLink(bucketId, run.id, aboutOf(run) || "Run"),
      ", ",
      ago(run.created_at),
    ),
    run.error && el("p.error", run.error),
    progressOf(run.progress),
    controlsOf(run),
    run.result && resultOf(run),
  ];
  return part(title, read, draw, { tools, none });
}

/** The outcome of a run for people: a form of its own where there is one, else what its fields say. */
export function resultOf({ kind, params, result: { jobs, workers, ...rest } }) {
  if (params.dry_run) return planOf(rest);
  if (kind === "drift") return gradedOf(workers.flatMap(driftRows));
  if (kind === "run_command") return outputsOf(workers);
  if (Array.isArray(jobs)) return gradedOf(jobs.flatMap(jobRows), rest);
  if (!kind.startsWith("worker_")) return dataOf({ ...rest, jobs, workers });
  const flat = workers.map(({ facts, uptime, sysstat, fingerprints, previous, ...one }) => ({
    ...one,
    ...(facts ?? uptime ?? sysstat ?? { shows: keysOf(fingerprints), was: keysOf(previous) }),
  }));
  return dataOf({ ...rest, workers: flat });
}

/** Fingerprints of host keys, each with its type. */
export function keysOf(fingerprints = []) {
  return fingerprints.map(({ type, fingerprint }) => `${type} ${fingerprint}`).join(", ");
}

function jobRows({ job, outcome, reason, allocations }) {
  if (allocations.length === 0) return [{ job, outcome, why: reason }];
  return allocations.map((one) => ({ ...one, job, why: one.error ?? (outcome === "failed" ? reason : "") }));
}

function driftRows({ worker, outcome, error, allocations }) {
  if (allocations.length === 0) return [{ worker, outcome, why: error }];
  return allocations.map((one) => {
    const unfinished = one.is_unfinished ? "a change of it has not ended" : "";
    return { ...one, worker, why: one.files.length > 0 ? count(one.files.length, "file") : unfinished };
  });
}

/** How it went for each job on each worker: counts, a table, and what was found where it went wrong. */
function gradedOf(rows, rest = {}) {
  const columns = ["job", "worker", "action", "outcome", "why"].filter((key) => rows.some((row) => row[key]));
  return el(
    "div.data",
    tableOf("Outcomes", rows, { columns, keys: ["job", "worker"] }),
    rows.map(foundOf),
    Object.keys(rest).length > 0 && el("details", el("summary", "More"), dataOf(rest)),
  );
}

function foundOf({ job, worker, files = [], evidence, status: said }) {
  const answers = [evidence?.status, said].filter((one) => one?.lines);
  const makes = answers.map(({ exit_code, lines }) => ({
    file: `make status: exit code ${exit_code}`,
    lines,
  }));
  const found = [...(evidence?.logs ?? []), ...makes];
  if (files.length + found.length === 0) return null;
  return el(
    "details",
    { open: true },
    el("summary", el("b", job), ` on ${worker}`),
    found.flatMap(({ file, lines }) => [
      el("p", file),
      textBox(`${file} of ${job} on ${worker}`, lines.join("\n")),
    ]),
    files.map(({ path, state, diff }) => fileDiff({ path, change: state, diff })),
  );
}

/** The same answers to a command folded into one: first those that failed, then the rarest. */
function outputsOf(workers) {
  const groups = Map.groupBy(workers, ({ outcome, exit_code: code, output, error }) =>
    JSON.stringify([
      code ? `${outcome} (exit code ${code})` : outcome,
      [output, error].filter(Boolean).join("\n"),
    ]),
  );
  const isGood = (key) => Number(key.startsWith('["ok"'));
  const sorted = [...groups].sort(
    ([a, own], [b, others]) => isGood(a) - isGood(b) || own.length - others.length,
  );
  return el(
    "div.outputs",
    sorted.map(([key, group], index) => {
      const [state, output] = JSON.parse(key);
      const names = group.map(({ worker }) => worker).join(", ");
      const summary = [status(state), " ", el("b", count(group.length, "worker")), " ", names];
      const open = index === 0 || group.length <= 3;
      return el("details", { open }, el("summary", summary), textBox(`Output of ${names}`, output));
    }),
  );
}

/** A file that differs: what became of it, and its unified diff where there is one. */
export function fileDiff({ path, change, diff, note }) {
  const title = [el(`span.status.${change}`, change), " ", el("code", path), note && ` ${note}`];
  if (!diff) return el("p.file-change", title);
  // The sign at the front of a line stays, so that colour is never all there is.
  const lines = diff.replace(/\n$/, "").split("\n");
  const classOf = (line) => (/^(\+\+\+|---) /.test(line) ? "file" : SIGNS[line[0]]);
  const text = lines.map((line) => el("span", { class: classOf(line) }, `${line}\n`));
  const box = el("pre.diff", { tabindex: 0, role: "group", "aria-label": `Changes of ${path}` }, text);
  return el("details.file-change", { open: true }, el("summary", title), box);
}
