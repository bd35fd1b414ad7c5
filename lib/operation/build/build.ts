import { randomUUID } from "node:crypto";
import type { Layout } from "../../bucket/base/layout.ts";
import { Problems, sentenceOf } from "../../bucket/base/problems.ts";
import { SETTLE } from "../../bucket/base/schema.ts";
import { catalogJobs, catalogPorts, catalogWorkers, saveCatalog, unorderedAllocations } from "../../bucket/catalog/catalog.ts";
import { removeUnnamedContents, storeLargeContents } from "../../bucket/catalog/contents.ts";
import { bucketNames } from "../../bucket/catalog/info.ts";
import { PROMETHEUS_NAMESPACE } from "../../bucket/kv/kv-access.ts";
import { scrapeEntries } from "../../bucket/prometheus/scrape.ts";
import { markBuilt } from "../../bucket/source/revisions.ts";
import { isPrometheus } from "../../bucket/workspace/prometheus.ts";
import { readWorkspace } from "../../bucket/workspace/workspace.ts";
import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { exists } from "../../core/files.ts";
import { counted } from "../../core/plain-text.ts";
import { faultPoint } from "../../core/self.ts";
import { quote } from "../../core/shape.ts";
import { parametersOf } from "../../run/protocol.ts";
import type { Operation, OperationContext } from "../base/context.ts";
import { type Built, buildCatalog } from "./build-catalog.ts";
import { writeKv } from "./build-kv.ts";
import { issueCertificates, writeCertificates } from "./certificates.ts";

const PHASES = ["read", "check", "store", "post_build"] as const;
/** How many days deleted keys and old versions are kept. */
const PURGE_DAYS = 7;

/** The result of a build. */
export type BuildResult = ReturnType<typeof buildResult>;

/**
 * Reads the workspace and makes the catalog and the build's part of the KV store equal to it, in one transaction: a
 * build that fails or is cancelled before leaves both as they were. Then the hooks for post_build run. When a hook fails,
 * the build fails, and the catalog stays (hook-runtime.md, Deploy order 7). One run reports all problems: the failure has
 * the code and sentence of the first problem, and all of them in `details.problems`. At the end the current source
 * revision is marked as built. Without a workspace, before the first push, nothing is built.
 */
export const build: Operation = async (context, params) => {
  const { purge_job_kv: purgeJobs } = parametersOf("build", params);
  const started = Date.now();
  try {
    const result = await buildBucket(context, purgeJobs);
    await markBuilt(context.layout, "succeeded");
    context.log.info(`${buildSummary(result)}, ${((Date.now() - started) / 1000).toFixed(1)} s`);
    return result;
  } catch (error) {
    context.kv.discard();
    const unmarked = (failure: unknown) => context.log.warn(`Cannot mark the revision: ${messageOf(failure)}`);
    await markBuilt(context.layout, "failed").catch(unmarked);
    throw error;
  }
};

async function buildBucket(context: OperationContext, purgeJobs: boolean): Promise<BuildResult> {
  const { db, kv, log, run } = context;
  const problems = new Problems();
  const { workspace, built, certificates } = await prepareBuild(context, problems).finally(() => {
    for (const warning of problems.warnings) log.warn(sentenceOf(warning));
    for (const problem of problems.errors) log.error(sentenceOf(problem));
  });
  const told = problems.warnings.length;
  beginPhase("store", context);
  await storeLargeContents(db, built.jobs, context.signal);
  db.transaction(() => {
    saveCatalog(db, built, new Date());
    const bucketValues = workspace.bucketConf.values;
    writeCertificates(db, kv, certificates);
    db.script(SETTLE);
    writeKv(kv, { ...built, ca: certificates.pem, bucketId: run.bucketId, bucketValues, purgeJobs });
    writeScrapes(context, built, problems);
    kv.flush();
    kv.purge(PURGE_DAYS);
  });
  faultPoint("build: stored");
  await removeUnnamedContents(db);
  warnOfNames(context, problems);
  for (const warning of problems.warnings.slice(told)) log.warn(sentenceOf(warning));
  beginPhase("post_build", context);
  if (built.jobs.some(({ hooks }) => hooks.some(({ events }) => events.includes("post_build")))) await runPostBuild(context);
  return buildResult(built, problems);
}

/** Reads and checks everything and issues certificates; throws when anything is wrong. */
async function prepareBuild(context: OperationContext, problems: Problems) {
  const { db, kv, layout, log, run, signal } = context;
  beginPhase("read", context);
  kv.loadAll();
  const last = { workers: catalogWorkers(db), allocations: unorderedAllocations(db), ports: catalogPorts(db) };
  if (!(await exists(layout.workspace)) && catalogJobs(db).length > 0)
    throw new Failure("failed", `Cannot build: ${layout.workspace} is missing, though the bucket has jobs; push it again`);
  const workspace = await readWorkspace(layout, problems, signal);
  const { workers, jobs, broken, files } = workspace;
  log.redactor.keep([...files, ...workers.flatMap(({ host, labels }) => [host, ...labels])]);
  log.info(`read ${counted(workers.length, "worker")} and ${counted(jobs.length + broken.size, "job")}`);
  beginPhase("check", context);
  const built = buildCatalog(run.bucketId, workspace, last, problems);
  const certificates = await issueCertificates(context, workspace, built.allocations, problems);
  return { workspace, built, certificates };
}

/** Writes what the jobs have to be scraped, where a job runs a Prometheus. */
function writeScrapes({ db, kv }: OperationContext, { jobs }: Built, problems: Problems): void {
  const follows = `${PROMETHEUS_NAMESPACE} has nothing of the job until a build finds the key`;
  const warn = ({ message }: Failure) => problems.warn("", "", `${message}; ${follows}`);
  const isWanted = jobs.some(({ files }) => isPrometheus(files));
  const { entries = new Map(), scrapeNames } = isWanted ? scrapeEntries(db, kv, warn) : {};
  kv.sync(PROMETHEUS_NAMESPACE, entries);
  for (const { name } of jobs) {
    const scrapeName = scrapeNames?.get(name);
    if (scrapeName === undefined) kv.delete(`ops/job/${name}`, "job_name");
    else if (kv.get(`ops/job/${name}`, "name") !== undefined) kv.put(`ops/job/${name}`, "job_name", scrapeName);
  }
}

/** Warns of secrets whose value equals a name of the bucket, because names are not masked. */
function warnOfNames({ db, kv, log }: OperationContext, problems: Problems): void {
  const names = bucketNames(db);
  log.redactor.keep(names);
  const secrets = kv.secrets();
  const known = new Set(secrets.length === 0 ? [] : names.flatMap((name) => [name, ...name.split("/")]));
  for (const { namespace, key, value } of secrets) {
    if (!known.has(value)) continue;
    const sentence = `the secret's value equals the name ${quote(value)} in this bucket, and names are not masked; give the secret another value`;
    problems.warn(`${namespace}/${key}`, "", sentence);
  }
}

/**
 * Runs the hooks for post_build, by deployment_seq and then by job (hook-runtime.md, Deploy order 7). All jobs have
 * their turn; what the scripts wrote is stored at the end as one, and dropped when any failed. Throws `ErrHookFailed`,
 * or `cancelled`.
 */
async function runPostBuild(context: OperationContext): Promise<void> {
  const { db, kv, signal } = context;
  // Loaded here: most builds run no hook.
  const { hooksOn, withHooks } = await import("../hooks/hooks.ts");
  const jobs = catalogJobs(db).filter((job) => hooksOn(job, "post_build").length > 0);
  const errors: string[] = [];
  await withHooks(context, async (hooks) => {
    for (const job of jobs.sort((a, b) => a.deploymentSeq - b.deploymentSeq)) {
      await hooks.run({ kind: "post_build", job }).catch((error) => errors.push(messageOf(error)));
      throwIfCancelled(signal);
    }
  });
  if (errors.length > 0)
    throw new Failure("ErrHookFailed", `the catalog is stored, but not the values that hooks wrote: ${errors.join("; ")}`);
  kv.flush();
}

/** Reports the next phase, unless the run was cancelled. */
function beginPhase(phase: (typeof PHASES)[number], { progress, signal }: OperationContext): void {
  throwIfCancelled(signal);
  progress.report({ phase, done: PHASES.indexOf(phase), total: PHASES.length });
}

function buildResult(built: Built, problems: Problems) {
  const removed = built.allocations.filter((allocation) => allocation.removed).length;
  return {
    jobs: built.jobs.length,
    workers: built.workers.length,
    /** Those that are not removed. */
    allocations: built.allocations.length - removed,
    removed_allocations: removed,
    warnings: problems.warnings.map(sentenceOf),
  };
}

function buildSummary(result: BuildResult): string {
  const placed = `${counted(result.jobs, "job")} on ${counted(result.workers, "worker")}`;
  const removed = result.removed_allocations === 0 ? "" : `, ${result.removed_allocations} removed`;
  const warnings = result.warnings.length === 0 ? "" : `, ${counted(result.warnings.length, "warning")}`;
  return `built ${placed}: ${counted(result.allocations, "allocation")}${removed}${warnings}`;
}

/**
 * Reads the source in a folder as a first build of it would and answers what is wrong. Writes nothing and needs no
 * database. What only a build sees stays out: hooks on post_build, and facts of earlier builds. Throws `failed` where there
 * is no workspace.
 */
export async function checkWorkspace(layout: Layout, signal: AbortSignal) {
  if (!(await exists(layout.workspace)))
    throw new Failure("failed", `Cannot check ${layout.root}: it has no folder workspace/; name the bucket with --bucket-dir`);
  const problems = new Problems();
  const workspace = await readWorkspace(layout, problems, signal);
  try {
    buildCatalog(randomUUID(), workspace, { workers: [], allocations: [], ports: new Map() }, problems);
  } catch (error) {
    if (problems.errors.length === 0) throw error;
  }
  return { problems, jobs: workspace.jobs.length, workers: workspace.workers.length };
}

/**
 * The run of a push or a rollback. The source is in place already: the run records the revision in ops.log for good
 * (control-plane.md, Source push 4) and builds the source.
 */
export const push: Operation = async (context, params) => {
  const message = `revision ${params.revision} is the source now`;
  context.log.info(message);
  context.log.record({ event: context.run.kind, action: "accepted", msg: message });
  return await build(context, {});
};
