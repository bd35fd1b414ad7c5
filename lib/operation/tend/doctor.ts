import { accessSync, constants } from "node:fs";
import { readdir, statfs } from "node:fs/promises";
import path from "node:path";
import { bucketIdOf, type Database, openForReading } from "../../bucket/base/database.ts";
import type { Layout } from "../../bucket/base/layout.ts";
import { isOwned, readLock } from "../../bucket/base/lock.ts";
import type { CatalogWorker } from "../../bucket/base/model.ts";
import { Problems } from "../../bucket/base/problems.ts";
import { catalogWorkers } from "../../bucket/catalog/catalog.ts";
import { readOpsConf } from "../../bucket/workspace/settings.ts";
import { isUuid, timeOfUuid } from "../../codec/uuid.ts";
import { runAll } from "../../core/async.ts";
import { explain, Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { unlessMissing } from "../../core/files.ts";
import { limitOf } from "../../core/process.ts";
import { Redactor } from "../../core/redact.ts";
import { examineWorker } from "../../transport/ask/inspect.ts";
import { descriptorRoom } from "../../transport/ssh/limits.ts";
import { ProgressBoard } from "../base/context.ts";
import { Fleet, TOOLS, WORKERS_AT_ONCE } from "../base/fleet.ts";
import {
  checksOf,
  type DoctorContext,
  examineBucket,
  type Finding,
  type Judgement,
  judgeDisk,
  ok,
  problem,
  warning,
} from "./doctor-bucket.ts";

const SSH_TOOLS = ["ssh", "ssh-keygen", "ssh-keyscan"];
/** What bin/runner and the scripts of a sync need besides {@link TOOLS}. */
const MORE_TOOLS = ["setsid", "mkfifo", "readlink", "kill"];
/** A difference of clocks that logs show, and one at which a new certificate is not valid yet on a worker. */
const CLOCK_WARNING_SECONDS = 10;
const CLOCK_PROBLEM_SECONDS = 300;
/** The longest time for all workers together. */
const WORKERS_LIMIT_MS = 600_000;

/**
 * Looks at this host, the bucket and its workers, and says what to do about each finding (docs/operate.md, Doctor). Reads
 * only and takes no lock; while another operation holds the bucket its workers are left alone, since only one command at
 * a time reaches them (control-plane.md, Runs 2). Workers whose turn does not come within the limit are told. Throws only
 * `cancelled`.
 */
export async function examine(context: DoctorContext, workersMs = WORKERS_LIMIT_MS): Promise<Finding[]> {
  const opened = openCatalog(context.layout);
  if (opened instanceof Failure) return [...(await examineHost(context, [])), ...(await examineBucket(context, [], opened))];
  using db = opened.db;
  const { workers, bucketId } = opened;
  return [
    ...(await examineHost(context, workers, db)),
    ...(await examineBucket(context, workers, db)),
    ...(await examineWorkers(context, workers, { bucketId, limitMs: workersMs })),
  ];
}

/** Opens the database and reads what the checks start from. Answers the reason where either cannot be done. */
function openCatalog(layout: Layout) {
  let db: Database | undefined;
  try {
    db = openForReading(layout.database);
    return { db, workers: catalogWorkers(db).filter(({ removed }) => !removed), bucketId: bucketIdOf(db) };
  } catch (error) {
    db?.close();
    return error instanceof Failure ? error : new Failure("failed", messageOf(error), { cause: error });
  }
}

async function examineHost(
  { layout, launcher }: DoctorContext,
  workers: readonly CatalogWorker[],
  db?: Database,
): Promise<Finding[]> {
  const check = checksOf("host");
  const install = "install them, or set PATH right";
  return [
    await check("tools", install, () => {
      const usesSsh = workers.some(({ connection }) => connection === "ssh");
      const usesPython = db?.get("SELECT 1 FROM job_files WHERE path LIKE '\\_hooks/%.py' ESCAPE '\\'") !== undefined;
      const wanted = ["bash", ...(usesSsh ? SSH_TOOLS : []), ...(usesPython ? ["python3"] : [])];
      const missing = wanted.filter((tool) => !isInstalled(tool, launcher.environment.PATH ?? ""));
      if (missing.length === 0) return ok(`${wanted.join(", ")}: installed`);
      return problem(`${missing.join(", ")}: not installed`, install);
    }),
    await check("node", "", () => ok(`Node ${process.versions.node}`)),
    await check("open files", "", async () => {
      const { sshConcurrency } = await readOpsConf(layout, new Problems());
      return judgeOpenFiles(limitOf("open files"), sshConcurrency);
    }),
    await check("disk", "check that the bucket's folder can be read", async () => {
      const { bavail, blocks, bsize } = await statfs(layout.root);
      return judgeDisk(bavail * bsize, blocks * bsize);
    }),
    await check("clock", "check the rights of logs/runs/", async () => {
      const ahead = Math.ceil(((await newestRun(layout)) - Date.now()) / 1000);
      if (ahead <= CLOCK_WARNING_SECONDS) return ok(new Date().toISOString());
      return problem(`${ahead} s behind the start of the newest run`, "set the clock of this host right");
    }),
  ];
}

/** What the limit of open files allows. */
function judgeOpenFiles(limit: number, concurrency: number): Judgement {
  const { commands, shells } = descriptorRoom(limit, concurrency);
  const message = `at most ${limit}: ${commands} commands at a time, connections of ${shells} workers ready for the next one`;
  if (commands === concurrency) return ok(message);
  const advice = "raise the hard limit of open files (LimitNOFILE=, ulimit -Hn)";
  return warning(`${message}; ssh_concurrency is ${concurrency}`, advice);
}

function isInstalled(tool: string, search: string): boolean {
  return search.split(path.delimiter).some((folder) => {
    try {
      accessSync(path.join(folder, tool), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** When the newest run began, as its id says; 0 without runs. */
export async function newestRun(layout: Layout): Promise<number> {
  const newest = ((await unlessMissing(readdir(layout.runs))) ?? []).filter(isUuid).sort().at(-1);
  return newest === undefined ? 0 : timeOfUuid(newest);
}

async function examineWorkers(
  context: DoctorContext,
  workers: readonly CatalogWorker[],
  { bucketId, limitMs }: { bucketId: string; limitMs: number },
): Promise<Finding[]> {
  // The finding about the lock tells why a lock cannot be read.
  const lock = await readLock(context.layout).catch(() => "unreadable" as const);
  if (lock !== undefined && lock !== "unreadable" && isOwned(lock)) {
    const message = `not examined: ${lock.command} (run ${lock.run_id}) is at work`;
    return [{ where: "bucket", check: "workers", ...warning(message, "ask again when it has ended") }];
  }
  const log = { info: () => {}, redactor: new Redactor() };
  const signal = AbortSignal.any([context.signal, AbortSignal.timeout(limitMs)]);
  const progress = new ProgressBoard(() => {}, signal);
  await using fleet = new Fleet({ ...context, signal, log, progress, run: { bucketId } }, workers);
  const ended = await runAll(workers, WORKERS_AT_ONCE, ({ host }) => examineOne(signal, fleet, host), signal);
  throwIfCancelled(context.signal);
  const late = warning(`not examined within ${limitMs / 60_000} min`, "ask again when more workers answer");
  return workers.flatMap(({ host }, index): Finding[] => {
    const result = ended[index];
    return result?.status === "fulfilled" ? result.value : [{ where: `worker ${host}`, check: "reach", ...late }];
  });
}

/** Throws `cancelled` where the signal is aborted. */
async function examineOne(signal: AbortSignal, fleet: Fleet, host: string): Promise<Finding[]> {
  const where = `worker ${host}`;
  try {
    const transport = await fleet.open(host);
    const { folder, worker } = transport;
    const seen = await examineWorker(transport, [...TOOLS, ...MORE_TOOLS], signal);
    const place = worker.connection === "local" ? "this machine" : "over ssh, with the rights it needs";
    const missing = seen.missing.join(", ");
    const install = problem(`${missing}: not installed`, "install them on the worker");
    const blocked = problem(`${seen.blocked} is no folder`, `move it away: ${folder} is to be there`);
    return [
      { where, check: "reach", ...ok(place) },
      { where, check: "tools", ...(missing === "" ? ok("installed") : install) },
      ...(seen.blocked === null ? [] : [{ where, check: "folder", ...blocked }]),
      ...(seen.unwritable.length === 0 ? [] : [{ where, check: "folder", ...judgeUnwritable(seen.unwritable, folder) }]),
      { where, check: "clock", ...judgeClock(seen.aheadSeconds) },
      { where, check: "disk", ...judgeDisk(seen.freeBytes, seen.diskBytes) },
      ...judgeLocks(seen).map((one) => ({ where, check: "locks", ...one })),
    ];
  } catch (error) {
    throwIfCancelled(signal);
    const advice = "see that the worker runs, that its address and user in workers.json are right, and that it accepts the key";
    return [{ where, check: "reach", ...problem(explain(error), advice) }];
  }
}

function judgeUnwritable(places: readonly string[], folder: string) {
  const message = `its user cannot write in ${places.join(", ")} of ${folder}`;
  return problem(message, `give it to the user that ops signs in as, or of --hook-user: chown -R <user>: ${folder}`);
}

function judgeClock(ahead: number) {
  const apart = Math.abs(ahead);
  const message = `${apart} s ${ahead < 0 ? "behind" : "ahead of"} this host`;
  const advice = "synchronise the clocks, for example with chrony";
  if (apart >= CLOCK_PROBLEM_SECONDS) return problem(message, advice);
  return apart >= CLOCK_WARNING_SECONDS ? warning(message, advice) : ok(apart === 0 ? "as on this host" : message);
}

function judgeLocks({ held, left }: { held: readonly string[]; left: readonly string[] }) {
  const wait = "wait until the processes of a killed run have ended, or let the next deploy end them";
  const living = warning(`${held.join(", ")}: held by a process there, though no operation is at work`, wait);
  const cut = warning(`${left.join(", ")}: left by a command that was cut off`, "deploy: the next contact finishes it");
  const found = [...(held.length === 0 ? [] : [living]), ...(left.length === 0 ? [] : [cut])];
  return found.length === 0 ? [ok("none is left")] : found;
}
