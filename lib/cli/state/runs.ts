import { isUuid } from "../../codec/uuid.ts";
import { sleep } from "../../core/async.ts";
import { Failure } from "../../core/errors.ts";
import { byteSize } from "../../core/plain-text.ts";
import { isObject } from "../../core/shape.ts";
import type { Progress } from "../../run/progress.ts";
import type { RunKind, RunStatus } from "../../run/protocol.ts";
import { actorText, askedBy } from "../../run/record.ts";
import type { ShownRun } from "../../server/run-list.ts";
import { EXIT, flagNumber, type Parsed, wantsJson } from "../base/flags.ts";
import {
  factLines,
  jsonLine,
  printAnswer,
  printJson,
  printList,
  shortId,
  spanOf,
  stopRequest,
  toStderr,
  toStdout,
} from "../base/terminal.ts";
import { activityPrinter, EXIT_OF, Lines } from "../bucket/output.ts";
import { deploySummary, factsTable, foldedText, sysstatTable, uptimeTable } from "../bucket/results.ts";
import type { BucketAccess, RunDetail } from "./access.ts";

const RUNS_SHOWN = 20;
const LONGEST_TAIL = 1_000;
const LOOK_AGAIN_MS = 200;
const CANCEL_MS = 300_000;

/** `ops runs list`. */
export async function listRuns(bucket: BucketAccess, input: Parsed): Promise<number> {
  const kind = input.values.get("kind") as RunKind | undefined;
  const status = input.values.get("status") as RunStatus | undefined;
  const runs = await bucket.runs({ kind, status, limit: flagNumber(input, "limit", 1) ?? RUNS_SHOWN });
  return printList(input, runs, kind || status ? "there are no such runs" : "there are no runs yet", {
    id: ({ id }) => id,
    kind: ({ kind }) => kind,
    status: ({ status }) => status,
    who: whoOf,
    started: ({ created_at }) => created_at,
    took: ({ duration_ms }) => spanOf(duration_ms),
    what: whatOf,
  });
}

/** Who asked for a run, in short: the name of a token, else the user of a command, or the address of an earlier request. */
export function whoOf({ audit }: ShownRun): string {
  const { name, address } = audit[0]?.actor ?? {};
  return name ?? address?.replace(/ \(process \d+\)$/, "") ?? "-";
}

/** What a run is about: its parameters in a few words, what people wrote first. */
function whatOf({ params, break_glass }: ShownRun): string {
  const told = Object.entries(params).flatMap(([name, value]): [order: number, text: string][] => {
    if (value === true) return [[1, name.replaceAll("_", " ")]];
    if (Array.isArray(value)) return [[1, value.join(",")]];
    if (typeof value !== "string") return [];
    if (isUuid(value)) return [[2, `${name.replaceAll("_", " ")} ${shortId(value)}`]];
    return name === "commit" ? [[2, `commit ${value.slice(0, 8)}`]] : [[0, value.trim().split("\n")[0] ?? ""]];
  });
  if (break_glass !== null) told.push([-1, `BREAK GLASS: ${break_glass}`]);
  return told
    .sort(([a], [b]) => a - b)
    .map(([, text]) => text)
    .join("; ");
}

/** The run that the first operand names; without one, the newest. Throws `run_not_found`. */
async function runMeant(bucket: BucketAccess, { operands: [given] }: Parsed): Promise<RunDetail> {
  if (given !== undefined) return await bucket.run(await bucket.runNamed(given));
  const [newest] = await bucket.runs({ limit: 1 });
  if (!newest) throw new Failure("run_not_found", "there are no runs yet");
  return await bucket.run(newest.id);
}

/** `ops runs show [run]`. */
export async function showRun(bucket: BucketAccess, input: Parsed): Promise<number> {
  const run = await runMeant(bucket, input);
  const { id, kind, status, created_at, finished_at, duration_ms, revision, audit, progress } = run;
  const cancel = audit.find(({ action }) => action === "cancel");
  const facts = factLines([
    ["run", id],
    ["kind", kind],
    ["status", progress ? `${status}: ${progress.phase}, ${progress.done} of ${progress.total} done` : status],
    ["error", run.error],
    ["by", askedBy(run)],
    ["BREAK GLASS", run.break_glass],
    ["started", created_at],
    ["ended", finished_at && `${finished_at}, after ${spanOf(duration_ms)}`],
    ["cancelled", cancel ? `${cancel.at} by ${actorText(cancel.actor)}` : null],
    ["parameters", parametersText(run.params)],
    ["revision", revision],
    ["log", `${byteSize(run.log_size_bytes)}, ops runs log ${shortId(id)}`],
  ]);
  return printAnswer(input, run, () => {
    const text = resultText(run);
    return text === "" ? facts : `${facts}\n${text}`;
  });
}

/** The parameters that say something, one a line. */
export function parametersText(params: Record<string, unknown>): string {
  const given = Object.entries(params).filter(([, value]) => value !== false && value !== null);
  const text = (value: unknown) => (Array.isArray(value) ? value.join(", ") : value === true ? "yes" : String(value));
  return given.map(([name, value]) => `${name.replaceAll("_", " ")}: ${text(value)}`).join("\n");
}

const VIEWS: Partial<Record<string, (result: unknown) => string>> = {
  deploy: (result) => deploySummary(result, process.stdout.columns || undefined),
  worker_facts: factsTable,
  worker_uptime: uptimeTable,
  worker_sysstat: sysstatTable,
  run_command: foldedText,
};

/** A run's result as its own command shows it; where that shows none, how many had which outcome. */
function resultText({ kind, result }: ShownRun): string {
  const shown = VIEWS[kind]?.(result) ?? "";
  if (shown !== "" || !isObject(result)) return shown;
  return ["workers", "jobs"].map((name) => outcomesOf(name, result[name])).join("");
}

function outcomesOf(name: string, graded: unknown): string {
  const all = Array.isArray(graded) ? graded.filter(isObject).filter((one) => typeof one.outcome === "string") : [];
  if (all.length === 0) return "";
  const counts = Map.groupBy(all, ({ outcome }) => String(outcome).replaceAll("_", " "));
  return `${name}: ${[...counts].map(([outcome, own]) => `${own.length} ${outcome}`).join(", ")}\n`;
}

/** `ops runs follow [run]`: answers the exit code of the run. An interrupt ends the following only. */
export async function followCommand(bucket: BucketAccess, input: Parsed): Promise<number> {
  const tail = linesWanted(input);
  const run = await runMeant(bucket, input);
  using stop = stopRequest();
  const view = wantsJson(input) ? ({ show: () => "", meanwhile: "aside" } as const) : undefined;
  const lines = new Lines(activityPrinter(view, run.kind, run.params));
  const from = tail === undefined ? 0 : await lastLines(bucket, run.id, tail);
  try {
    await lines.follow((after) => bucket.log(run.id, after, stop.signal), from, stop.signal);
  } catch (error) {
    if (!stop.signal.aborted) throw error;
    toStderr(`run ${run.id} is left alone; \`ops runs follow ${shortId(run.id)}\` goes on with it\n`);
    return EXIT.cancelled;
  }
  const ended = await bucket.run(run.id);
  const untold = lines.untold(ended);
  if (untold !== undefined) toStderr(`error: ${untold}\n`);
  if (wantsJson(input)) printJson(ended);
  return EXIT_OF[ended.status];
}

function linesWanted(input: Parsed): number | undefined {
  const tail = flagNumber(input, "tail");
  if (tail === undefined || tail <= LONGEST_TAIL) return tail;
  throw new Failure("usage", `--tail: expected at most ${LONGEST_TAIL} lines`);
}

/** The byte at which the last lines of a log begin. */
async function lastLines(bucket: BucketAccess, id: string, count: number): Promise<number> {
  const { lines, next } = await bucket.lines(id, { tail: true, limit: Math.max(1, count) });
  return (count === 0 ? undefined : lines[0]?.offset) ?? Number.parseInt(next, 10);
}

/** `ops runs log [run]`: what the run has said so far. */
export async function printLog(bucket: BucketAccess, input: Parsed): Promise<number> {
  const tail = linesWanted(input);
  const { id, kind, params } = await runMeant(bucket, input);
  if (wantsJson(input)) return await printLines(bucket, id, tail);
  // All of it goes to stdout, errors too: this is a document.
  const print = activityPrinter(undefined, kind, params, true);
  const lines = new Lines(print);
  const never = new AbortController().signal;
  const { size_bytes: end } = await bucket.lines(id, { tail: true, limit: 1 });
  for (let after = tail === undefined ? 0 : await lastLines(bucket, id, tail); after < end; ) {
    const chunk = await bucket.log(id, after, never);
    lines.add(chunk.data);
    after = chunk.next;
  }
  lines.end();
  return EXIT.done;
}

async function printLines(bucket: BucketAccess, id: string, tail: number | undefined): Promise<number> {
  if (tail === 0) return EXIT.done;
  for (let after: string | undefined; ; ) {
    const wanted = tail === undefined ? { after, limit: LONGEST_TAIL } : ({ tail: true, limit: tail } as const);
    const { lines, next } = await bucket.lines(id, wanted);
    for (const line of lines) toStdout(`${jsonLine(line)}\n`);
    if (tail !== undefined || lines.length === 0) return EXIT.done;
    after = next;
  }
}

/** `ops runs cancel <run>`: asks the run to stop, waits for its end, and says what was confirmed. */
export async function cancelRun(bucket: BucketAccess, input: Parsed): Promise<number> {
  const id = await bucket.runNamed(input.operands[0] ?? "");
  using stop = stopRequest();
  await bucket.cancel(id);
  toStderr(`asked run ${id} to stop\n`);
  let confirmed: Progress["cancel"] = null;
  const until = performance.now() + CANCEL_MS;
  let run = await bucket.run(id);
  while (run.status === "running" && performance.now() < until && !stop.signal.aborted) {
    confirmed = run.progress?.cancel ?? confirmed;
    await sleep(LOOK_AGAIN_MS, stop.signal).catch(() => {});
    run = await bucket.run(id);
  }
  const { status } = run;
  confirmed = receiptsIn(run.result) ?? confirmed;
  const told = { run_id: id, status, confirmed: confirmed?.confirmed ?? null, total: confirmed?.total ?? null };
  printAnswer(input, told, `${cancelText(id, status, confirmed)}\n`);
  if (stop.signal.aborted) return EXIT.cancelled;
  return status === "cancelled" ? EXIT.done : EXIT.failed;
}

/** How many of the commands that a cancelled run left are known to have ended, as its result tells; undefined where it does not. */
function receiptsIn(result: unknown): Progress["cancel"] | undefined {
  const told = isObject(result) && isObject(result.cancelled) ? result.cancelled : {};
  if (!Array.isArray(told.workers) || told.workers.length === 0 || typeof told.unconfirmed !== "number") return undefined;
  return { confirmed: told.workers.length - told.unconfirmed, total: told.workers.length };
}

function cancelText(id: string, status: RunStatus, confirmed: Progress["cancel"]): string {
  const what = confirmed ? `: ${confirmed.confirmed} of ${confirmed.total} confirmed to have ended` : "";
  if (status === "running") return `run ${id} has not ended yet${what}; \`ops runs follow ${shortId(id)}\` goes on with it`;
  return status === "cancelled" ? `run ${id} is cancelled${what}` : `run ${id} ${status} before it could be cancelled`;
}
