import { createHash } from "node:crypto";
import type { CatalogAllocation, CatalogJob } from "../../bucket/base/model.ts";
import { catalogAllocations, catalogJobs } from "../../bucket/catalog/catalog.ts";
import { batches, runAll } from "../../core/async.ts";
import { cancelledFailure, messageOf } from "../../core/errors.ts";
import type { CommandOutcome } from "../../core/spawn.ts";
import { parametersOf, type RunParameters } from "../../run/protocol.ts";
import { describeCut } from "../../transport/base/transport.ts";
import type { Operation, OperationContext } from "../base/context.ts";
import type { Fleet } from "../base/fleet.ts";
import { concludeWorkers, exitCodeOf, type Graded, gradeOf } from "../base/outcome.ts";
import { chooseWorkers } from "../base/workers.ts";
import { hasGate, passGate } from "../health/gate.ts";
import { type HookSession, withHooks } from "../hooks/hooks.ts";
import { effectsOf } from "../reach/effects.ts";

const PHASE = "run_command";
const CHECKS_AT_ONCE = 8;
/** The bytes that a result keeps of the beginning, and again of the end: of all outputs together, and of one output. */
const ALL_BYTES = 2 * 1024 * 1024;
const MOST_BYTES = 8 * 1024;
const LEAST_BYTES = 512;

/** How the command went on a worker. */
export interface CommandResult extends Graded {
  /** Null where the script did not end by itself; 128 plus the number of the signal where a signal ended the script. */
  exit_code: number | null;
  /** Both streams in the order of arrival, secrets masked; of a long output the first and last lines. */
  output: string;
  /** Of the whole output. */
  output_sha256: string | null;
  duration_ms: number | null;
}

/**
 * Runs a script on workers in the order of the catalog, `concurrency` at a time; after a batch in which one failed, or
 * after which a job on its workers is not healthy (`health_check`), nothing further starts, unless `ignore_failure` says
 * so. Throws `failed` at the end, or `cancelled`, with the whole result in the details.
 */
export const runCommand: Operation = async (context, params) => {
  const given = parametersOf("run_command", params);
  const hosts = chooseWorkers(context, given).map(({ host }) => host);
  return await withHooks(context, async (hooks, fleet) => {
    const nothing = { exit_code: null, output: "", output_sha256: null, duration_ms: null };
    const results = hosts.map((worker): CommandResult => ({ worker, outcome: "not_started", error: null, ...nothing }));
    const command: WorkersCommand = { context, fleet, hooks, given, results, health: [] };
    await runInBatches(command);
    const { health } = command;
    const result = { workers: results, ...(given.health_check && { health_checks: health }) };
    const reasons = [...new Set(health.flatMap(({ error }) => error ?? []))];
    return concludeWorkers(context, fleet, result, { reasons, isTolerant: given.ignore_failure });
  });
};

/** A command on workers while it is carried out; the results are filled in as the workers end. */
interface WorkersCommand {
  readonly context: OperationContext;
  readonly fleet: Fleet;
  readonly hooks: HookSession;
  readonly given: RunParameters<"run_command">;
  readonly results: readonly CommandResult[];
  /** How jobs were after the batches. */
  readonly health: { batch: number; job: string; error: string | null }[];
}

async function runInBatches(command: WorkersCommand): Promise<void> {
  const { context, given, results, health } = command;
  const { log, signal } = context;
  const all = batches(results, given.concurrency);
  const isBad = ({ outcome }: Graded) => outcome !== "ok" && outcome !== "not_started";
  reportCommand(command);
  for (const [index, batch] of all.entries()) {
    await runAll(batch, batch.length, (result) => runOnWorker(command, result), signal);
    if (given.health_check) await checkBatch(command, index + 1, batch);
    if (signal.aborted) return;
    if (given.ignore_failure) continue;
    if (!results.some(isBad) && health.every(({ error }) => error === null)) continue;
    if (index + 1 < all.length) log.error(`batch ${index + 1} of ${all.length} failed: no other one is started`);
    return;
  }
}

async function runOnWorker(command: WorkersCommand, result: CommandResult): Promise<void> {
  const { log } = command.context;
  const { command: text, timeout_seconds: seconds } = command.given;
  const share = Math.floor(ALL_BYTES / command.results.length);
  const kept = new KeptOutput(Math.max(LEAST_BYTES, Math.min(MOST_BYTES, share)));
  const fields = { worker: result.worker, phase: PHASE };
  log.record({ ...fields, event: "command_begin", cmd: log.redactor.apply(text) });
  const started = performance.now();
  try {
    const ended = await runShell(command, result.worker, kept);
    result.exit_code = exitCodeOf(ended);
    result.outcome = result.exit_code === 0 ? "ok" : "failed";
    result.error = errorOf(ended, result.exit_code, seconds);
  } catch (error) {
    Object.assign(result, gradeOf(error));
  }
  result.duration_ms = Math.round(performance.now() - started);
  result.output = kept.text;
  result.output_sha256 = kept.sha256;
  const { outcome, exit_code: exit, duration_ms } = result;
  log.record({ ...fields, event: "command_end", duration_ms, ...(exit === null ? { reason: outcome } : { exit }) });
  reportCommand(command);
}

async function runShell({ context, fleet, given }: WorkersCommand, host: string, kept: KeptOutput) {
  const { log, progress, run, signal } = context;
  const timeoutMs = given.timeout_seconds * 1000;
  const transport = await fleet.open(host);
  const shell = /^#!.*\bbash\b/.test(given.command) ? "bash" : "sh";
  const running = transport.script(`exec ${shell} -s`, {
    // As one compound command: a shell reads all of it before it runs any of it, and the command cannot read its own text
    // from standard input. Its first line stays the first one.
    input: `{ :; ${given.command}\n} </dev/null\n`,
    env: { BUCKET_ID: run.bucketId, WORKER_IP: host },
    onLine: (line, stream) => {
      kept.add(log.redactor.apply(line));
      log.output(undefined, host, line, { stream, phase: PHASE });
    },
    keepBytes: 0,
    isFolderOptional: true,
    survivesAs: `the command of run ${run.id}`,
    timeoutMs,
    signal,
  });
  return await progress.during({ reason: "command", worker: host, detail: "the command" }, timeoutMs, running);
}

/** Throws `cancelled` for a script that was cancelled. */
function errorOf({ reason, receipt, signal }: CommandOutcome, exitCode: number | null, seconds: number): string | null {
  if (reason === "cancelled") throw cancelledFailure();
  if (reason === "timeout") return describeCut(receipt, seconds);
  if (exitCode === 0) return null;
  return signal === null ? `exit code ${exitCode}` : `ended by ${signal}`;
}

/** Checks every job with an active allocation on the batch's workers, on all its active ones; stores nothing. */
async function checkBatch(command: WorkersCommand, number: number, batch: readonly CommandResult[]): Promise<void> {
  const { context, fleet, hooks, health } = command;
  const { db, log, signal } = context;
  const hosts = new Set(batch.map(({ worker }) => worker));
  const present = catalogAllocations(db).filter(({ removed }) => !removed);
  const allocations = Map.groupBy(present, ({ job }) => job);
  const effects = effectsOf(context, fleet, hooks, present);
  const isTouched = (own: readonly CatalogAllocation[]) => own.some(({ disabled, worker }) => !disabled && hosts.has(worker));
  const jobs = catalogJobs(db).filter((job) => hasGate(job) && isTouched(allocations.get(job.name) ?? []));
  const check = async (job: CatalogJob) => {
    const own = allocations.get(job.name) ?? [];
    const probed = own.filter(({ disabled }) => !disabled).map(({ worker }) => worker);
    await passGate(context, effects, job, { probed, hooked: own.map(({ worker }) => worker) });
    log.info(`${job.name}: health check passed`, { job: job.name });
  };
  const ended = await runAll(jobs, CHECKS_AT_ONCE, check, signal);
  for (const [index, one] of ended.entries()) {
    const error = one.status === "rejected" ? messageOf(one.reason) : null;
    const { name: job } = jobs[index] as CatalogJob;
    if (error !== null && !signal.aborted) log.error(error, { job });
    health.push({ batch: number, job, error });
  }
}

function reportCommand({ context, results }: WorkersCommand): void {
  const done = results.filter(({ outcome }) => outcome !== "not_started").length;
  context.progress.report({ phase: PHASE, done, total: results.length });
}

/** What is kept of an output: its first and its last lines, and a digest of all of it. */
export class KeptOutput {
  readonly #limit: number;
  readonly #hash = createHash("sha256");
  readonly #tail: string[] = [];
  #head = "";
  #headBytes = 0;
  #tailBytes = 0;
  #leftOut = 0;

  /** Keeps at most `limit` bytes from the beginning and as many from the end. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Adds a line, given without its newline. */
  add(line: string): void {
    const text = `${line}\n`;
    this.#hash.update(text);
    const size = Buffer.byteLength(text);
    if (this.#tail.length === 0 && this.#headBytes + size <= this.#limit) {
      this.#head += text;
      this.#headBytes += size;
      return;
    }
    this.#tail.push(text);
    this.#tailBytes += size;
    while (this.#tailBytes > this.#limit && this.#tail.length > 1) this.#leaveOut(this.#tail.shift() as string);
  }

  /** All that is kept, with a line that tells how much was left out between the two. */
  get text(): string {
    const tail = this.#tail.map((line) => endOf(line, this.#limit));
    const cut = this.#tailBytes - tail.reduce((sum, line) => sum + Buffer.byteLength(line), 0);
    const left = this.#leftOut + cut;
    return `${this.#head}${left > 0 ? `… ${left} bytes left out …\n` : ""}${tail.join("")}`;
  }

  /** Of the whole output. */
  get sha256(): string {
    return this.#hash.copy().digest("hex");
  }

  #leaveOut(line: string): void {
    const size = Buffer.byteLength(line);
    this.#tailBytes -= size;
    this.#leftOut += size;
  }
}

/** The last bytes of a line that alone is too long, from the beginning of a character on. */
function endOf(line: string, limit: number): string {
  const bytes = Buffer.from(line);
  let start = Math.max(0, bytes.length - limit);
  while (((bytes[start] ?? 0) & 0xc0) === 0x80) start++;
  return bytes.subarray(start).toString();
}
