import { stat } from "node:fs/promises";
import path from "node:path";
import { type Layout, layoutOf } from "../../bucket/base/layout.ts";
import { Problems } from "../../bucket/base/problems.ts";
import { carryOutMigration, migrationDiff, planMigration } from "../../bucket/earlier/migration.ts";
import { parseSourceJson, readSource, relative, writeEdits } from "../../bucket/source/source-file.ts";
import { createJob, writeOwnMetrics } from "../../bucket/workspace/job-template.ts";
import { placedProblems } from "../../bucket/workspace/places.ts";
import { isSchemaName, SCHEMA_NAMES, schemaOf } from "../../bucket/workspace/schemas.ts";
import { formatJson } from "../../codec/config/json.ts";
import { unifiedDiff } from "../../codec/diff.ts";
import { uuidV7 } from "../../codec/uuid.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { exists, namesIn, readBounded, readRegularSync, realPlace, writeAtomic } from "../../core/files.ts";
import { counted, decodeUtf8 } from "../../core/plain-text.ts";
import { isObject, quote } from "../../core/shape.ts";
import type { WorkerReading } from "../../operation/tend/readings.ts";
import { takeBucket } from "../../run/recovery.ts";
import { openBucket } from "../../server/reading.ts";
import { bucketDir, EXIT, flagList, type Parsed, wantsJson } from "../base/flags.ts";
import {
  diffColours,
  hasColours,
  printAnswer,
  printJson,
  stopRequest,
  toStderr,
  toStdout,
  visible,
  visibleLines,
} from "../base/terminal.ts";
import { initialisedBucket } from "./bucket.ts";

const WORKERS_JSON_BYTES = 1024 * 1024;
const COMMAND_BYTES = 256 * 1024;
const HOST_AND_PORT = /^(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$/;

/** `ops job create <job>`: makes its folder in the workspace, under the bucket's lock, and prints its files. */
export async function createJobCommand(input: Parsed): Promise<number> {
  const [name = ""] = input.operands;
  const job = { name, selectors: flagList(input, "selectors"), template: input.values.get("template") };
  const layout = layoutOf(bucketDir(input));
  await using _ = await takeWorkspace(layout, "job create");
  const files = await createJob(layout, job);
  return printAnswer(input, { job: name, files }, files.map((file) => `${file}\n`).join(""));
}

/** Takes the bucket's lock; there is none where a folder has only the source of a bucket on a server. */
async function takeWorkspace(layout: Layout, command: string): Promise<AsyncDisposable | undefined> {
  if (!(await exists(layout.database)) && (await exists(layout.workspace))) return undefined;
  (await openBucket(await initialisedBucket(layout.root))).close();
  return takeBucket(layout, uuidV7(), command);
}

/** `ops metrics init <job>`: writes the files, under the bucket's lock, and prints which were written and which were there. */
export async function metricsInitCommand(input: Parsed): Promise<number> {
  const [job = ""] = input.operands;
  const target = input.values.get("target") ?? "127.0.0.1:9090";
  if (!HOST_AND_PORT.test(target)) throw new Failure("usage", `--target ${quote(target)}: expected HOST:PORT`);
  const layout = layoutOf(bucketDir(input));
  await using _ = await takeWorkspace(layout, "metrics init");
  const { written, kept } = await writeOwnMetrics(layout, job, target);
  return printAnswer(
    input,
    { job, written, kept },
    [...written, ...kept.map((file) => `${file} was there and stays`), ""].join("\n"),
  );
}

/**
 * The text of workspace/command.sh, which `ops run_command` runs where no command is typed, without a byte order mark.
 * Throws `usage` where there is no file, `failed` where the file is not UTF-8.
 */
export async function readCommandFile(dir: string): Promise<string> {
  const bytes = await readBounded(layoutOf(dir).commandFile, COMMAND_BYTES);
  if (!bytes) throw new Failure("usage", "the command is missing: type it, or write it into workspace/command.sh");
  const text = decodeUtf8(bytes);
  if (text === undefined) throw new Failure("failed", "workspace/command.sh is not UTF-8 text");
  return text.replace(/^\ufeff/, "");
}

/**
 * `ops worker facts --generate-workers`: writes the memory and the processors of the workers into workspace/workers.json;
 * other fields, and the order of all fields, stay. Answers the differences; with `dryRun` nothing is written. Throws
 * `failed`, and writes nothing, unless every worker that was asked has answered and stands in the file.
 */
export async function generateWorkers(dir: string, result: unknown, dryRun: boolean): Promise<string> {
  const layout = layoutOf(dir);
  const name = relative(layout, layout.workersJson);
  const told = resourcesOf(result, name);
  const list = await readList(layout);
  const before = (await readBounded(layout.workersJson, WORKERS_JSON_BYTES))?.toString() ?? "";
  for (const [host, resources] of told) {
    const entry = list.find((one) => textAt(one, "host")?.trim().toLowerCase() === host.toLowerCase());
    if (!entry) throw unchanged(name, `worker ${quote(host)} is not in it: build the bucket again`);
    for (const [field, value] of Object.entries(resources)) entry[fieldKey(entry, field) ?? field] = value;
  }
  const after = formatJson(JSON.stringify(list));
  if (after === before) return `${name} is up to date\n`;
  if (!dryRun) await writeAtomic(layout.workersJson, after, (await stat(layout.workersJson)).mode & 0o777);
  const what = dryRun ? `${name} would be written` : `${name} was written`;
  return visibleLines(`${unifiedDiff(before, after)}${what}\n`);
}

/** The fields to write, by worker. */
function resourcesOf(result: unknown, name: string): Map<string, { memory: string; cpu: string }> {
  const given = isObject(result) && Array.isArray(result.workers) ? result.workers : [];
  const workers = given as WorkerReading<"facts">[];
  if (workers.length === 0) throw unchanged(name, "no worker was asked");
  return new Map(
    workers.map(({ worker, facts }) => {
      if (!facts) throw unchanged(name, "not all workers have answered");
      const { memory_mb: memory, cpu_count: count, cpu_mhz: mhz } = facts;
      if (mhz === null) throw unchanged(name, `worker ${worker} does not tell the clock of its processors`);
      return [worker, { memory: `${memory} mb`, cpu: `${count * mhz} mhz` }];
    }),
  );
}

async function readList(layout: Layout): Promise<Record<string, unknown>[]> {
  const problems = new Problems();
  const file = relative(layout, layout.workersJson);
  const value = await readSource(parseSourceJson, layout, problems.in(file, "ErrInvalidWorkerJSON"));
  problems.throwIfAny();
  const list = Array.isArray(value) ? value : [];
  if (!list.every(isObject)) throw unchanged(file, "it is no list of workers");
  return list;
}

/** The name of a field as it stands in the file: names are compared without case, and of two equal ones the last counts. */
function fieldKey(entry: Record<string, unknown>, field: string): string | undefined {
  return Object.keys(entry).findLast((key) => key.toLowerCase() === field);
}

function textAt(entry: Record<string, unknown>, field: string): string | undefined {
  const value = entry[fieldKey(entry, field) ?? field];
  return typeof value === "string" ? value : undefined;
}

function unchanged(name: string, why: string): Failure {
  return new Failure("failed", `${name} stays as it is: ${why}`);
}

/** `ops check`. Answers exit code 1 where a build would fail. Paths are relative to the current folder, for editors. */
export async function checkCommand(input: Parsed): Promise<number> {
  using stop = stopRequest();
  const layout = layoutOf(bucketDir(input));
  const { checkWorkspace } = await import("../../operation/build/build.ts");
  const { problems, jobs, workers } = await checkWorkspace(layout, stop.signal);
  const found = placedProblems(layout, problems).map((one) => ({ ...one, file: shownPath(path.join(layout.root, one.file)) }));
  const errors = problems.errors.length;
  const warnings = problems.warnings.length;
  const isGood = errors === 0;
  if (wantsJson(input)) printJson({ ok: isGood, errors, warnings, problems: found });
  else {
    for (const { file, line, column, severity, code, path: at, message } of found) {
      const text = `${at === "" ? "" : `${at}: `}${message}${code === null ? "" : ` [${code}]`}`;
      toStdout(`${visible(`${file}:${line}:${column}: ${severity}: ${text}`)}\n`);
    }
    const read = `${counted(jobs, "job")}, ${counted(workers, "worker")}`;
    toStderr(`${isGood ? read : counted(errors, "error")}${warnings === 0 ? "" : `, ${counted(warnings, "warning")}`}\n`);
  }
  return isGood ? EXIT.done : EXIT.failed;
}

/** `ops fmt`. Answers exit code 1 where a file cannot be formatted or, with `--check`, is not. */
export async function formatCommand(input: Parsed): Promise<number> {
  const layout = layoutOf(bucketDir(input));
  const isCheck = input.switches.has("check");
  if (!(await exists(layout.workspace)))
    throw new Failure("failed", `Cannot format ${layout.root}: it has no folder workspace/; name the bucket with --bucket-dir`);
  const folders = [layout.jobs, layout.templates].map(async (folder) =>
    (await namesIn(folder)).sort().map((name) => path.join(folder, name, "manifest.json")),
  );
  const problems = new Problems();
  const changed: string[] = [];
  for (const file of [
    layout.workersJson,
    layout.disabledJson,
    layout.schedulesJson,
    layout.notifyJson,
    ...(await Promise.all(folders)).flat(),
  ]) {
    const found = problems.in(relative(layout, file), "failed");
    if ((await readSource(parseSourceJson, layout, found)) === undefined) continue;
    try {
      const before = readRegularSync(file);
      const after = formatJson(before);
      if (after === before) continue;
      if (!isCheck) await writeEdits(layout, [{ file: relative(layout, file), after, mode: (await stat(file)).mode & 0o777 }]);
    } catch (error) {
      found.error("", messageOf(error));
      continue;
    }
    changed.push(shownPath(file));
  }
  const wrong = placedProblems(layout, problems).map((one) => ({ ...one, file: shownPath(path.join(layout.root, one.file)) }));
  printAnswer(input, { changed, problems: wrong }, changed.map((file) => `${visible(file)}\n`).join(""));
  if (!wantsJson(input))
    for (const { file, line, column, message } of wrong) toStderr(`${visible(`${file}:${line}:${column}: error: ${message}`)}\n`);
  return wrong.length > 0 || (isCheck && changed.length > 0) ? EXIT.failed : EXIT.done;
}

/** `ops schema <file>`. Throws `usage` for a file that has none. */
export async function schemaCommand(input: Parsed): Promise<number> {
  const name = (input.operands[0] ?? "").replace(/\.json$/, "");
  if (!isSchemaName(name))
    throw new Failure("usage", `there is no schema of ${quote(name)}: expected one of ${SCHEMA_NAMES.join(", ")}`);
  printJson(schemaOf(name));
  return EXIT.done;
}

/** A path as a person in the current folder would type it. */
function shownPath(file: string): string {
  return path.relative(realPlace("."), file);
}

/** `ops migrate [folder]`: shows, and with `--write` makes, the changes from the earlier form of a workspace to that of ops. */
export async function migrateCommand({ operands, switches }: Parsed): Promise<number> {
  const isWrite = switches.has("write");
  if (isWrite && switches.has("dry-run")) throw new Failure("usage", "--write and --dry-run do not go together");
  const layout = layoutOf(realPlace(operands[0] ?? "."));
  if (!(await exists(layout.workspace)))
    throw new Failure("failed", `Cannot migrate ${layout.root}: it has no folder workspace/; name the folder of the bucket`);
  const migration = await planMigration(layout);
  const { edits, renames, looks } = migration;
  if (!wantsJson({ switches })) toStdout(migrationDiff(migration), hasColours() ? diffColours : undefined);
  if (isWrite) await carryOutMigration(layout, migration);
  if (wantsJson({ switches })) {
    printJson({ written: isWrite, edits: edits.map(({ file }) => file), renames, looks });
    return EXIT.done;
  }
  for (const { file, line, message } of looks) toStdout(`${visible(`${file}:${line}: ${message}`)}\n`);
  const changes = edits.length + renames.length;
  const what = `${counted(edits.length, "edit")}, ${counted(renames.length, "rename")}`;
  if (changes === 0) toStderr("nothing to change\n");
  else toStderr(isWrite ? `changed: ${what}\n` : `would be changed: ${what}; --write changes them\n`);
  if (looks.length > 0) toStderr(`to look at: ${counted(looks.length, "line")}\n`);
  return EXIT.done;
}
