import { counted } from "../../core/plain-text.ts";
import { shortNames } from "../../core/short-names.ts";
import { type Parsed, wantsJson } from "../base/flags.ts";
import { ago, factLines, printAnswer, printList, shortId, shownTime, spanOf, textTable, visible } from "../base/terminal.ts";
import type { BucketAccess, Summary, WaitingStart } from "./access.ts";

const LISTED_PROBLEMS = 10;
const MOST_OTHERS = 5;
const KEYS = { kv_rekey: "kv.key", ca_rotate: "CA", ssh_key_rotate: "ssh key" } as const;
const COUNTED = ["promoted", "new", "update", "disabled"] as const;

/** `ops status`: one screen about a bucket, what is wrong first. The exit code is 0 whatever it shows. */
export async function statusCommand(bucket: BucketAccess, input: Parsed): Promise<number> {
  const [summary, { waiting, holder }] = await Promise.all([bucket.summary(), bucket.line()]);
  const place = wantsJson(input) ? null : await bucket.place();
  const facts = () =>
    factLines([
      ["bucket", place],
      ["fleet", fleetText(summary)],
      ["running", activeText(summary, holder)],
      ["in line", lineText(waiting)],
      ["freeze", freezeText(summary)],
      ["key change", keysText(summary)],
      ["last deploy", runText(summary.last_deploy) || "none yet"],
      ["drift", driftText(summary)],
      ["not well", unwellText(summary)],
      ["incidents", incidentsText(summary)],
      ["messages", summary.messages.failed === 0 ? null : `${summary.messages.failed} given up: ops notify`],
      ["certificates", certText(summary)],
    ]);
  return printAnswer(input, { ...summary, waiting, holder }, () => problemsText(summary) + facts());
}

/** A line for each problem, with the command that shows more. */
function problemsText({ problems: { items, total } }: Summary): string {
  if (total === 0) return "";
  const rows = items.slice(0, LISTED_PROBLEMS).map(({ job, action, kind, workers, worker_count, reason, run_id }) => {
    const names = shortNames(workers) + (worker_count > workers.length ? ` and ${worker_count - workers.length} more` : "");
    const why = shortReason(reason).split("\n")[0] || action;
    const more = run_id === "" ? "ops deploy" : `ops runs show ${shortId(run_id)}`;
    return [job === null ? names : `${job}@${names}`, kind === "failed" ? why : `${kind}: ${why}`, more];
  });
  const left = total - rows.length;
  const end = left === 0 ? "" : `and ${left} more: ops cat deployments --outcome failed,unreachable\n`;
  return `${textTable(["problem", "reason", "more"], rows, process.stdout.columns)}${end}\n`;
}

/** Why an action failed, without the words that tell what failed: that stands beside it. */
export function shortReason(reason: string): string {
  return reason.replace(/^.* failed: (?:exit code \d+:\s+(?=\S))?/, "");
}

function fleetText({ built_at, workers, jobs, counts }: Summary): string {
  if (built_at === null) return "nothing is built yet: ops build, or ops push to a server";
  const states = COUNTED.filter((name) => counts[name] !== 0).map((name) => `${counts[name]} ${name}`);
  const all = counted(Number(counts.allocations), "allocation");
  return `${counted(workers, "worker")}, ${counted(jobs, "job")}, ${all}${states.length > 0 ? `: ${states.join(", ")}` : ""}\nbuilt ${ago(built_at)}`;
}

function activeText({ active_run }: Summary, holder: string | null): string {
  if (!active_run) return holder ?? "nothing";
  const { id, kind, created_at, dry_run } = active_run;
  return `${kind}${dry_run ? " (dry run)" : ""} since ${spanOf(Date.now() - Date.parse(created_at))}: ops runs follow ${shortId(id)}`;
}

function lineText(waiting: readonly WaitingStart[]): string | null {
  return firstLines(waiting, waiting.length, ({ position, kind, by, since }) => {
    return `${position}. ${kind} of ${by.name ?? by.address}, for ${spanOf(Date.now() - Date.parse(since))}`;
  });
}

function freezeText({ freezes }: Summary): string | null {
  return firstLines(freezes, freezes.length, ({ from, to, reason }) => {
    const isOn = Date.parse(from) <= Date.now();
    return isOn ? `on until ${shownTime(to)}: ${reason}` : `from ${shownTime(from)} to ${shownTime(to)}: ${reason}`;
  });
}

function keysText({ key_changes }: Summary): string | null {
  const shown = key_changes.map(({ kind, since, left, next }) => {
    return `${KEYS[kind]}, for ${spanOf(Date.now() - Date.parse(since))}; go on with: ${visible(next)}\n${visible(left)}`;
  });
  return shown.length === 0 ? null : shown.join("\n");
}

function runText(run: Summary["last_deploy"]): string {
  if (!run) return "";
  return `${run.status}, ${ago(run.finished_at ?? run.created_at)}: ops runs show ${shortId(run.id)}`;
}

function driftText({ drift }: Summary): string {
  if (!drift) return "not looked for yet: ops drift";
  const { allocations, total } = drift;
  const { in_sync: same = 0, drifted = 0, ...others } = drift.workers;
  const none = same > 0 ? "none" : "nothing known";
  const found = drifted > 0 ? `${counted(total, "allocation")} changed by hand` : none;
  const names = firstLines(allocations, total, ({ job, worker, files }) => `${job}@${worker}: ${counted(files, "file")}`);
  const unseen = Object.entries(others).map(([outcome, count]) => `${counted(count, "worker")} ${outcome.replace("_", " ")}`);
  const first = `${found}, ${runText(drift).replace(/^\w+, /, "")}`;
  return [first, names ?? [], ...unseen].flat().join("\n");
}

function unwellText({ unwell: { items, total } }: Summary): string | null {
  return firstLines(items, total, ({ job, worker, state, at }) => {
    return `${job === "" ? worker : `${job}@${worker}`} ${state}, ${ago(at)}`;
  });
}

function incidentsText({ incidents: { items, total } }: Summary): string | null {
  return firstLines(items, total, ({ subject, opened_at }) => `${subject}, ${ago(opened_at)}: ops notify incidents`);
}

function certText({ certs, next_cert }: Summary): string | null {
  return firstLines(certs.items, certs.total, certLine) ?? (next_cert && `in order; next: ${certLine(next_cert)}`);
}

function certLine({ job, worker, cert, not_after }: Record<string, unknown>): string {
  const left = Date.parse(String(not_after)) - Date.now();
  const whose = job ? `${job}@${worker} ${cert}` : "the CA";
  return `${whose} ${left > 0 ? `ends in ${spanOf(left)}` : `has ended ${spanOf(-left)} ago`}`;
}

/** The first of several, one a line, and how many are left out; null where there are none. */
function firstLines<T>(items: readonly T[], total: number, line: (item: T) => string): string | null {
  const lines = items.slice(0, MOST_OTHERS).map((item) => visible(line(item)));
  if (total > lines.length) lines.push(`and ${total - lines.length} more`);
  return total === 0 ? null : lines.join("\n");
}

/** `ops health [job]`: how everything is, since when, and for how much of the time it was well. */
export async function showHealth(bucket: BucketAccess, input: Parsed): Promise<number> {
  const job = input.operands[0]?.toLowerCase();
  const items = await bucket.health(job);
  // Throws where the catalog has no such job.
  if (items.length === 0 && job !== undefined) await bucket.view("jobs", { jobs: [job] });
  return printList(input, items, "no run has looked yet: ops health_check, ops drift", {
    place: ({ job, worker }) => (job === "" ? worker : `${job}@${worker}`),
    what: ({ aspect }) => aspect,
    state: ({ state }) => state.replace("_", " "),
    since: ({ at }) => ago(at),
    changes: ({ changes }) => changes,
    well: ({ good_percent }) => `${good_percent} %`,
    reason: ({ reason }) => reason,
    run: ({ run_id }) => shortId(run_id),
  });
}
