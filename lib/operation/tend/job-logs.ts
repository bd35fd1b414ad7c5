import { randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import { bucketIdOf, openForReading } from "../../bucket/base/database.ts";
import type { Layout } from "../../bucket/base/layout.ts";
import { prefixOf } from "../../bucket/base/line-place.ts";
import { unknownName } from "../../bucket/base/problems.ts";
import { catalogAllocations, catalogJobs, catalogWorkers } from "../../bucket/catalog/catalog.ts";
import { allocationsNamed } from "../../bucket/catalog/choices.ts";
import { bucketNames } from "../../bucket/catalog/info.ts";
import { KvStore } from "../../bucket/kv/kv.ts";
import { loadKvKey } from "../../bucket/kv/kv-access.ts";
import { loadOpsConf } from "../../bucket/workspace/settings.ts";
import { runAll } from "../../core/async.ts";
import { explain, Failure, throwIfCancelled } from "../../core/errors.ts";
import { Redactor } from "../../core/redact.ts";
import type { CommandOutcome } from "../../core/spawn.ts";
import { scriptText } from "../../transport/base/scripts.ts";
import { describeReceipt } from "../../transport/base/transport.ts";
import { ProgressBoard } from "../base/context.ts";
import { Fleet, WORKERS_AT_ONCE } from "../base/fleet.ts";
import type { DoctorContext } from "./doctor-bucket.ts";

/** What is wanted of a job's own logs. */
export interface WantedJobLogs {
  job: string;
  /** All workers with an active allocation of the job, where it is undefined. */
  workers?: readonly string[] | undefined;
  /** How many lines of each log. */
  tail: number;
  follow: boolean;
}

const LIMIT_MS = 60_000;
const FOLLOW_LIMIT_MS = 3_600_000;
/** The worker itself ends what goes on for so much longer: it may not hear from us any more. */
const LATER_S = 60;
const ALIVE_MS = 30_000;

/**
 * Reads the logs that a job keeps on its workers, over connections of its own: it takes no lock, and writes nothing there.
 * `write` gets lines: `asked: ` and the workers, then `worker | text` (`!` for stderr), secrets masked, `error: ` and a
 * sentence for each worker of which something cannot be read, `alive:` every 30 s, and last `end: 0`, or `end: 1` after an
 * error. Ends after a minute, or after an hour where it follows. Throws `not_found` for an unknown job and one without an
 * active allocation, `unknown_name` for a worker that the job is not on, `invalid_request` for more workers than can be
 * followed at a time, `cancelled`, and what `write` throws.
 */
export async function readJobLogs(context: DoctorContext, wanted: WantedJobLogs, write: (line: string) => void): Promise<void> {
  const { job, hosts, workers, bucketId, redactor } = await chosen(context.layout, wanted);
  await requirePlaces(context.layout, hosts, wanted);
  const reader = new AbortController();
  const signal = AbortSignal.any([context.signal, reader.signal]);
  const tell = (line: string) => {
    if (signal.aborted) return;
    try {
      write(line);
    } catch (error) {
      reader.abort(error);
    }
  };
  tell(`asked: ${hosts.join(" ")}`);
  const alive = setInterval(() => tell("alive:"), ALIVE_MS);
  const progress = new ProgressBoard(() => {}, signal);
  await using fleet = new Fleet({ ...context, signal, log: { info: () => {}, redactor }, progress, run: { bucketId } }, workers);
  let isWhole = true;
  try {
    const read = async (host: string) => {
      const trouble = await readOne({ fleet, redactor, tell, signal }, host, { ...wanted, job }).catch(explain);
      if (trouble === undefined) return;
      isWhole = false;
      tell(`error: ${job} on ${host}: ${redactor.sentence(trouble).replaceAll("\n", " ")}`);
    };
    await runAll(hosts, wanted.follow ? hosts.length : WORKERS_AT_ONCE, read, signal);
  } finally {
    clearInterval(alive);
  }
  if (reader.signal.aborted) throw reader.signal.reason;
  tell(`end: ${isWhole ? 0 : 1}`);
  throwIfCancelled(context.signal);
}

/** The workers that are to be asked, and what is needed for that. */
async function chosen(layout: Layout, { job: given, workers: named }: WantedJobLogs) {
  using db = openForReading(layout.database);
  const jobs = catalogJobs(db);
  const job = jobs.find(({ name }) => name === given.toLowerCase());
  const known = jobs.map(({ name }) => name);
  if (!job) throw new Failure("not_found", unknownName("job", given, known));
  const own = allocationsNamed(catalogAllocations(db), [job], named, "worker");
  const hosts = own.filter(({ disabled }) => named !== undefined || !disabled).map(({ worker }) => worker);
  if (hosts.length === 0) throw new Failure("not_found", `job ${job.name} has no active allocation`);
  const redactor = new Redactor();
  for (const { value } of new KvStore(db, await loadKvKey(layout)).secrets()) redactor.add(value);
  redactor.keep(bucketNames(db));
  return { job: job.name, hosts, workers: catalogWorkers(db), bucketId: bucketIdOf(db), redactor };
}

/** Whoever is followed keeps a place for commands until the end. */
async function requirePlaces(layout: Layout, hosts: readonly string[], { follow }: WantedJobLogs): Promise<void> {
  const { sshConcurrency: most } = (await loadOpsConf(layout)).settings;
  if (!follow || hosts.length <= most) return;
  const why = `at most ${most} workers can be followed at a time (ssh_concurrency of ops.conf), and the job is on ${hosts.length}`;
  throw new Failure("invalid_request", `${why}: name some of them`);
}

interface JobLogReader {
  fleet: Fleet;
  redactor: Redactor;
  tell: (line: string) => void;
  signal: AbortSignal;
}

/** Reads on one worker. Answers what went wrong there; throws where the worker cannot be reached. */
async function readOne(
  { fleet, redactor, tell, signal }: JobLogReader,
  worker: string,
  { job, tail, follow }: WantedJobLogs,
): Promise<string | undefined> {
  const timeoutMs = follow ? FOLLOW_LIMIT_MS : LIMIT_MS;
  const transport = await fleet.open(worker);
  let refusal: string | undefined;
  // Stands before the sentence with which scripts/joblogs.sh says why there is nothing to show. No job can guess it.
  const mark = randomBytes(16).toString("hex");
  // The worker learns from its end that nobody reads any more.
  const input = new Readable({ read() {} });
  try {
    const outcome = await transport.script(scriptText("joblogs"), {
      args: [job, String(tail), follow ? "1" : "", String(timeoutMs / 1000 + LATER_S), mark],
      input,
      isFolderOptional: true,
      keepBytes: 0,
      timeoutMs,
      signal,
      onLine: (line, stream) => {
        if (stream === "stderr" && line.startsWith(mark)) refusal = line.slice(mark.length);
        else tell(prefixOf({ worker, stream }) + redactor.apply(line));
      },
    });
    return refusal ?? troubleOf(outcome, timeoutMs);
  } finally {
    input.push(null);
  }
}

function troubleOf({ reason, receipt, exitCode, signal }: CommandOutcome, timeoutMs: number): string | undefined {
  if (reason === "exit") return exitCode === 0 ? undefined : `the command ended with ${signal ?? `exit code ${exitCode}`}`;
  const state = receipt === undefined ? "ended" : describeReceipt(receipt);
  return reason === "timeout" ? `the reading is over after ${timeoutMs / 60_000} min: the command there is ${state}` : undefined;
}
