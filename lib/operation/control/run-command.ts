import { createHash } from "node:crypto";
import { constants } from "node:os";
import type { CatalogAllocation, CatalogJob } from "../../bucket/base/model.ts";
import { catalogAllocations, catalogJobs, catalogWorkers } from "../../bucket/catalog/catalog.ts";
import { batches, runAll } from "../../core/async.ts";
import { cancelledFailure, messageOf } from "../../core/errors.ts";
import type { CommandOutcome } from "../../core/spawn.ts";
import { parametersOf, type RunParameters } from "../../run/protocol.ts";
import { describeCut } from "../../transport/base/transport.ts";
import type { Operation, OperationContext } from "../base/context.ts";
import { Fleet } from "../base/fleet.ts";
import { concludeWorkers, type Graded, gradeOf } from "../base/grades.ts";
import { chooseWorkers } from "../base/workers.ts";
import { hasGate, passGate } from "../health/gate.ts";
import { HookSession } from "../hooks/hooks.ts";
import { effectsOf } from "../reach/effects.ts";

const PHASE = "run_command";
const CHECKS_AT_ONCE = 8;
/** Of all outputs together, and of one, that a result keeps from the beginning and again from the end. */
const ALL_BYTES = 2 * 1024 * 1024;
const MOST_BYTES = 8 * 1024;
const LEAST_BYTES = 512;

/** How the command went on a worker. */
export interface CommandResult extends Graded {
  /** Null where it has not ended by itself; 128 and the signal's number where a signal ended it. */
  exit_code: number | null;
  /** Both streams in the order they came, secrets masked; of a long one the first and last lines. */
  output: string;
  /** Of all of it. */
  output_sha256: string | null;
  duration_ms: number | null;
}

/** How a job was after a batch. */
interface HealthResult {
  batch: number;
  job: string;
  error: string | null;
}

/**
 * Runs a script on workers in the order of the catalog, `concurrency` at a time; after a batch in which one failed, or
 * after which a job on its workers is not healthy (`health_check`), nothing further starts, unless `ignore_failure` says
 * so. Throws `failed` at the end, or `cancelled`, with the whole result in the details.
 */
export const runCommand: Operation = async (context, params) => {
  const given = parametersOf("run_command", params);
  const catalog = catalogWorkers(context.db);
  const hosts = chooseWorkers(context, given).map(({ host }) => host);
  const fleet = new Fleet(context, catalog);
  const hooks = new HookSession(context, fleet);
  const work = new WorkersCommand(context, fleet, hooks, given, hosts);
  try {
    await work.carryOut();
    return work.conclude();
  } finally {
    await hooks.close();
    await fleet.close();
  }
};

class WorkersCommand {
  readonly #context: OperationContext;
  readonly #fleet: Fleet;
  readonly #hooks: HookSession;
  readonly #given: RunParameters<"run_command">;
  readonly #results: CommandResult[];
  readonly #health: HealthResult[] = [];

  constructor(
    context: OperationContext,
    fleet: Fleet,
    hooks: HookSession,
    given: RunParameters<"run_command">,
    hosts: readonly string[],
  ) {
    this.#context = context;
    this.#fleet = fleet;
    this.#hooks = hooks;
    this.#given = given;
    this.#results = hosts.map((worker) => ({
      worker,
      outcome: "not_started",
      error: null,
      exit_code: null,
      output: "",
      output_sha256: null,
      duration_ms: null,
    }));
  }

  async carryOut(): Promise<void> {
    const { log, signal } = this.#context;
    const { concurrency, health_check: isChecked, ignore_failure: isIgnored } = this.#given;
    const all = batches(this.#results, concurrency);
    this.#progress();
    for (const [index, batch] of all.entries()) {
      await runAll(batch, batch.length, (result) => this.#run(result), signal);
      if (isChecked) await this.#checkHealth(index + 1, batch);
      if (signal.aborted) return;
      if (isIgnored || this.#isFine()) continue;
      if (index + 1 < all.length) log.error(`batch ${index + 1} of ${all.length} failed: no other one is started`);
      return;
    }
  }

  /** The result. Throws as {@link runCommand} does. */
  conclude() {
    const checks = this.#given.health_check ? { health_checks: this.#health } : {};
    const result = { workers: this.#results, ...checks };
    return concludeWorkers(this.#context, this.#fleet, result, {
      reasons: [...new Set(this.#health.flatMap(({ error }) => error ?? []))],
      isTolerant: this.#given.ignore_failure,
    });
  }

  #isFine(): boolean {
    const isBad = ({ outcome }: Graded) => outcome !== "ok" && outcome !== "not_started";
    return !this.#results.some(isBad) && this.#health.every(({ error }) => error === null);
  }

  async #run(result: CommandResult): Promise<void> {
    const { log } = this.#context;
    const { worker } = result;
    const kept = new KeptOutput(outputLimit(this.#results.length));
    const fields = { worker, phase: PHASE };
    log.record({ ...fields, event: "command_begin", cmd: log.redactor.apply(this.#given.command) });
    const started = performance.now();
    try {
      const outcome = await this.#script(worker, kept);
      result.exit_code = exitCodeOf(outcome);
      result.outcome = result.exit_code === 0 ? "ok" : "failed";
      result.error = this.#errorOf(outcome, result.exit_code);
    } catch (error) {
      Object.assign(result, gradeOf(error));
    }
    result.duration_ms = Math.round(performance.now() - started);
    result.output = kept.text;
    result.output_sha256 = kept.sha256;
    const { outcome, exit_code: exit, duration_ms } = result;
    log.record({ ...fields, event: "command_end", duration_ms, ...(exit === null ? { reason: outcome } : { exit }) });
    this.#progress();
  }

  async #script(host: string, kept: KeptOutput): Promise<CommandOutcome> {
    const { log, progress, run, signal } = this.#context;
    const { command, timeout_seconds: seconds } = this.#given;
    const transport = await this.#fleet.open(host);
    const running = transport.script(`exec ${shellOf(command)} -s`, {
      input: inputOf(command),
      env: { BUCKET_ID: run.bucketId, WORKER_IP: host },
      onLine: (line, stream) => {
        kept.add(log.redactor.apply(line));
        log.output(undefined, host, line, stream, { phase: PHASE });
      },
      keepBytes: 0,
      isFolderOptional: true,
      timeoutMs: seconds * 1000,
      signal,
    });
    return await progress.during(`${host}: the command`, seconds * 1000, running);
  }

  /** Throws `cancelled` for a script that was cancelled. */
  #errorOf({ reason, receipt, signal }: CommandOutcome, exitCode: number | null): string | null {
    if (reason === "cancelled") throw cancelledFailure();
    if (reason === "timeout") return describeCut(receipt, this.#given.timeout_seconds);
    if (exitCode === 0) return null;
    return signal === null ? `exit code ${exitCode}` : `ended by ${signal}`;
  }

  /** Checks every job with an active allocation on the batch's workers, on all its active ones; stores nothing. */
  async #checkHealth(number: number, batch: readonly CommandResult[]): Promise<void> {
    const { db, log, signal } = this.#context;
    const hosts = new Set(batch.map(({ worker }) => worker));
    const present = catalogAllocations(db).filter(({ removed }) => !removed);
    const allocations = Map.groupBy(present, ({ job }) => job);
    const effects = effectsOf(this.#context, this.#fleet, this.#hooks, present);
    const isTouched = (own: readonly CatalogAllocation[]) =>
      own.some(({ disabled, worker }) => !disabled && hosts.has(worker));
    const jobs = catalogJobs(db).filter((job) => hasGate(job) && isTouched(allocations.get(job.name) ?? []));
    const check = async (job: CatalogJob) => {
      const own = allocations.get(job.name) ?? [];
      const probed = own.filter(({ disabled }) => !disabled).map(({ worker }) => worker);
      const hooked = own.map(({ worker }) => worker);
      await passGate(this.#context, effects, job, { probed, hooked });
      log.info(`${job.name}: health check passed`);
    };
    const ended = await runAll(jobs, CHECKS_AT_ONCE, check, signal);
    for (const [index, one] of ended.entries()) {
      const error = one.status === "rejected" ? messageOf(one.reason) : null;
      if (error !== null && !signal.aborted) log.error(error);
      this.#health.push({ batch: number, job: (jobs[index] as CatalogJob).name, error });
    }
  }

  #progress(): void {
    const total = this.#results.length;
    const done = this.#results.filter(({ outcome }) => outcome !== "not_started").length;
    this.#context.progress.report({ phase: PHASE, done, total });
  }
}

function outputLimit(workers: number): number {
  return Math.max(LEAST_BYTES, Math.min(MOST_BYTES, Math.floor(ALL_BYTES / workers)));
}

function shellOf(command: string): string {
  return /^#!.*\bbash\b/.test(command) ? "bash" : "sh";
}

/**
 * As one compound command: a shell reads all of it before it runs any of it, and the command cannot read its own text
 * from standard input. Its first line stays the first one.
 */
function inputOf(command: string): string {
  return `{ :; ${command}\n} </dev/null\n`;
}

function exitCodeOf({ reason, exitCode, signal }: CommandOutcome): number | null {
  if (reason !== "exit") return null;
  return exitCode ?? 128 + (constants.signals[signal as NodeJS.Signals] ?? 0);
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
