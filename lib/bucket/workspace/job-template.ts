import { randomUUID } from "node:crypto";
import { lstat, mkdir, rename } from "node:fs/promises";
import path from "node:path";
import { formatJson } from "../../codec/config/json.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { createExclusive, exists, flushFolder, makePrivateFolder, namesIn, remove, unlessMissing } from "../../core/files.ts";
import { PROGRAM_ROOT } from "../../core/self.ts";
import { isObject, quote } from "../../core/shape.ts";
import { type FoundFile, readFound, walk } from "../../core/walk.ts";
import { type Layout, SKIPPED_FOLDERS } from "../base/layout.ts";
import { NAME, NAME_RULE } from "../base/names.ts";
import { relative } from "../source/source-file.ts";
import { flushTree } from "../source/swap.ts";

/** The job that is to be made. */
export interface NewJob {
  name: string;
  /** Labels that a worker must carry; without them those of the template, or the job's name. */
  selectors?: readonly string[];
  /** A folder of templates/, or a template of ops; without it a job to begin with is written. */
  template?: string;
}

interface JobFile extends Pick<FoundFile, "path" | "executable"> {
  content: string | Uint8Array;
}

/** How much of the job's name its port gets: the name of a port has at most 100 characters. */
const PORT_STEM = 95;
const SHARED_FOLDER = 0o755;
const MANIFEST_NAME = "manifest.json";
/** The templates of ops. In their files `@job@` is the job's name and `@port@` the name of its port. */
const TEMPLATES = path.join(PROGRAM_ROOT, "lib", "bucket", "templates");
/** The files for a Prometheus that watches ops itself. In them `@target@` is the server. */
const OWN_METRICS = path.join(PROGRAM_ROOT, "lib", "bucket", "prometheus", "files", "metrics");
/** What a job has that is made without a template: a Makefile to fill in and an example of a hook. */
const FIRST_JOB = path.join(PROGRAM_ROOT, "lib", "bucket", "workspace", "first-job");

/**
 * Makes the folder of a new job in the workspace, whole or not at all, and answers its files, relative to the bucket.
 * Only for the holder of the bucket's lock. Throws `usage` for a name that cannot be used, a job that exists and a
 * template that does not; `invalid_source` for what a source may not hold, symbolic links above all.
 */
export async function createJob(layout: Layout, { name, selectors, template }: NewJob): Promise<string[]> {
  for (const one of [name, ...(selectors ?? [])])
    if (!NAME.test(one)) throw new Failure("usage", `Cannot use ${quote(one)} as a name: it needs ${NAME_RULE}`);
  await refuseExisting(layout, name);
  const files = template === undefined ? ownFiles(FIRST_JOB, name) : await templateFiles(layout, name, template);
  if (selectors && !files.some((file) => file.path === MANIFEST_NAME))
    throw new Failure("usage", `Cannot set selectors: the template ${template} has no ${MANIFEST_NAME}`);
  const chosen = selectors ? files.map((file) => withSelectors(file, selectors)) : files;
  const folder = path.join(layout.jobs, name);
  const staging = path.join(layout.tmp, `job-${randomUUID()}`);
  try {
    await makePrivateFolder(layout.tmp);
    await writeJobFiles(staging, chosen);
    await mkdir(layout.jobs, { recursive: true, mode: SHARED_FOLDER });
    await rename(staging, folder);
    await flushFolder(layout.jobs);
  } finally {
    await remove(staging);
  }
  return chosen.map((file) => relative(layout, path.join(folder, file.path)));
}

/**
 * Writes what a Prometheus needs to watch the server of ops itself below `_prometheus/` of a job, and answers the files,
 * relative to the bucket. A file that is there stays. Only for the holder of the bucket's lock. Throws `usage` where there
 * is no such job, `invalid_source` for links.
 */
export async function writeOwnMetrics(
  layout: Layout,
  job: string,
  target: string,
): Promise<{ written: string[]; kept: string[] }> {
  const folder = path.join(layout.jobs, job);
  if (!NAME.test(job) || !(await exists(path.join(folder, MANIFEST_NAME))))
    throw new Failure("usage", `Cannot write files of job ${quote(job)}: it is not in workspace/jobs/; make it first`);
  const own = path.join(folder, "_prometheus");
  const hasScrape = await exists(path.join(own, "scrape.yaml"));
  const written: string[] = [];
  const kept: string[] = [];
  for (const file of walk(OWN_METRICS)) {
    const place = path.join(own, file.path);
    for (const above of [folder, own, path.dirname(place)]) await requireFolder(layout, above);
    await mkdir(path.dirname(place), { recursive: true, mode: SHARED_FOLDER });
    const text = readFound(OWN_METRICS, file).toString().replaceAll("@job@", job).replaceAll("@target@", target);
    const isTaken = hasScrape && file.path === "scrape.yaml.tpl";
    const list = !isTaken && (await createExclusive(place, text, 0o644)) ? written : kept;
    list.push(relative(layout, place));
  }
  await flushTree(own);
  return { written, kept };
}

/** Names of jobs compare without case. */
async function refuseExisting(layout: Layout, name: string): Promise<void> {
  for (const folder of [layout.workspace, layout.jobs]) await requireFolder(layout, folder);
  const taken = (await namesIn(layout.jobs)).find((one) => one.toLowerCase() === name);
  if (taken === undefined) return;
  const where = relative(layout, path.join(layout.jobs, taken));
  throw new Failure("usage", `Cannot make job ${name}: there is ${where} already`);
}

/** What is made through a link would lie elsewhere. */
async function requireFolder(layout: Layout, folder: string): Promise<void> {
  const found = await unlessMissing(lstat(folder));
  if (found && !found.isDirectory())
    throw new Failure("invalid_source", `Cannot use ${relative(layout, folder)}: it is not a folder`);
}

/** A folder of templates/ goes before a template of ops that has the same name. */
async function templateFiles(layout: Layout, job: string, template: string): Promise<JobFile[]> {
  await requireFolder(layout, layout.templates);
  const names = (await namesIn(layout.templates)).sort();
  const given = path.join(layout.templates, template);
  if (names.includes(template)) return walk(given, SKIPPED_FOLDERS).map((file) => ({ ...file, content: readFound(given, file) }));
  const own = (await namesIn(TEMPLATES)).sort();
  if (own.includes(template)) return ownFiles(path.join(TEMPLATES, template), job);
  const known = `ops has ${own.join(", ")}; templates/ has ${names.join(", ") || "none"}`;
  throw new Failure("usage", `there is no template ${quote(template)}; ${known}`);
}

function ownFiles(folder: string, job: string): JobFile[] {
  const port = `${job.replaceAll("-", "_").slice(0, PORT_STEM)}_http`;
  return walk(folder).map((file) => {
    const content = readFound(folder, file).toString().replaceAll("@job@", job).replaceAll("@port@", port);
    return { path: file.path, executable: false, content };
  });
}

function withSelectors(file: JobFile, selectors: readonly string[]): JobFile {
  if (file.path !== MANIFEST_NAME) return file;
  try {
    const manifest: unknown = JSON.parse(String(file.content));
    if (!isObject(manifest)) throw new Error("it is not an object");
    return { ...file, content: formatJson(JSON.stringify({ ...manifest, selectors })) };
  } catch (cause) {
    throw new Failure("usage", `Cannot set selectors in ${MANIFEST_NAME} of the template: ${messageOf(cause)}`, { cause });
  }
}

async function writeJobFiles(folder: string, files: readonly JobFile[]): Promise<void> {
  await mkdir(folder, { recursive: true, mode: SHARED_FOLDER });
  for (const file of files) {
    const target = path.join(folder, file.path);
    await mkdir(path.dirname(target), { recursive: true, mode: SHARED_FOLDER });
    await createExclusive(target, file.content, file.executable ? 0o755 : 0o644);
  }
  await flushTree(folder);
}
