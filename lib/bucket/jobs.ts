import { createHash } from "node:crypto";
import { lstat, readdir } from "node:fs/promises";
import path from "node:path";
import { messageOf, throwIfCancelled } from "../core/errors.ts";
import { exists, readBounded, walk } from "../core/files.ts";
import { readValues } from "./bucket-conf.ts";
import type { CatalogFile } from "./catalog.ts";
import { type Layout, SKIPPED_FOLDERS } from "./layout.ts";
import { checkManifest, type Manifest } from "./manifest.ts";
import { NAME, NAME_RULE } from "./names.ts";
import type { Problems } from "./problems.ts";
import { readSourceJson, relative } from "./source-file.ts";

/** A job as its folder in the workspace describes it. */
export interface JobSource {
  name: string;
  /** The manifest's path, for problems. */
  file: string;
  manifest: Manifest;
  /** By path. */
  files: CatalogFile[];
  /** vars.toml. */
  vars: Map<string, string>;
}

/** The jobs of a workspace, and the names of those that have problems. */
export interface JobSources {
  jobs: JobSource[];
  broken: Set<string>;
}

const FILE_LIMIT_BYTES = 256 * 1024 * 1024;
const EXECUTABLE = 0o755;
const PLAIN = 0o644;
const RESERVED = ["data", "logs", "bin"];
const HOOKS = "_hooks/";
const OLD_HOOKS = "_modules/";

/**
 * Reads every folder of `workspace/jobs/` that has a manifest.json, by name. Errors: `ErrInvalidJob`,
 * `ErrInvalidJobVars`, `ErrHookFileNotFound` and those of {@link checkManifest}.
 */
export async function readJobs(layout: Layout, problems: Problems, signal: AbortSignal): Promise<JobSources> {
  const found: JobSources = { jobs: [], broken: new Set() };
  const seen = new Set<string>();
  for (const entry of await foldersOf(layout, problems)) {
    throwIfCancelled(signal);
    const folder = path.join(layout.jobs, entry);
    if (!(await exists(path.join(folder, "manifest.json")))) continue;
    const name = entry.toLowerCase();
    const before = problems.errors.length;
    const where = relative(layout, folder);
    if (!NAME.test(name)) problems.error("ErrInvalidJob", where, "", `a job's name has ${NAME_RULE}`);
    if (seen.has(name))
      problems.error("ErrInvalidJob", where, "", `there are two jobs ${name}, in other capitals`);
    seen.add(name);
    const job = await readJob(layout, folder, name, problems);
    if (job && problems.errors.length === before) found.jobs.push(job);
    else found.broken.add(name);
  }
  return found;
}

async function foldersOf(layout: Layout, problems: Problems): Promise<string[]> {
  const wrong = (name: string, message: string) =>
    problems.error("ErrInvalidJob", relative(layout, path.join(layout.jobs, name)), "", message);
  if (!(await exists(layout.jobs))) return [];
  if (!(await lstat(layout.jobs)).isDirectory()) {
    wrong("", "is not a folder");
    return [];
  }
  const entries = await readdir(layout.jobs, { withFileTypes: true });
  for (const entry of entries)
    if (entry.isSymbolicLink()) wrong(entry.name, "is a symbolic link, which is not allowed");
  return entries
    .filter((entry) => entry.isDirectory() && !SKIPPED_FOLDERS.has(entry.name))
    .map((entry) => entry.name)
    .sort();
}

async function readJob(
  layout: Layout,
  folder: string,
  name: string,
  problems: Problems,
): Promise<JobSource | undefined> {
  const manifestFile = path.join(folder, "manifest.json");
  const file = relative(layout, manifestFile);
  const value = await readSourceJson(layout, manifestFile, "ErrInvalidManifest", problems);
  const manifest = value === undefined ? undefined : checkManifest(name, value, file, problems);
  const vars = await readValues(layout, path.join(folder, "vars.toml"), "ErrInvalidJobVars", problems);
  const files = await readFiles(layout, folder, problems);
  if (files) await checkFolder(folder, relative(layout, folder), files, problems);
  if (!files || !manifest) return undefined;
  for (const hook of manifest.hooks) checkScript(hook.name, files, file, problems);
  return { name, file, manifest, files, vars };
}

async function readFiles(
  layout: Layout,
  folder: string,
  problems: Problems,
): Promise<CatalogFile[] | undefined> {
  const files: CatalogFile[] = [];
  try {
    for (const found of await walk(folder, SKIPPED_FOLDERS)) {
      const content = await readBounded(path.join(folder, found.path), FILE_LIMIT_BYTES);
      if (!content) continue;
      const sha256 = createHash("sha256").update(content).digest("hex");
      files.push({ path: found.path, mode: found.executable ? EXECUTABLE : PLAIN, sha256, content });
    }
  } catch (error) {
    problems.error("ErrInvalidJob", relative(layout, folder), "", messageOf(error));
    return undefined;
  }
  return withNewNames(files, relative(layout, folder), problems);
}

/** `_modules/`, the older name of `_hooks/`, is taken under its new name. */
function withNewNames(files: CatalogFile[], where: string, problems: Problems): CatalogFile[] {
  if (!files.some((file) => file.path.startsWith(OLD_HOOKS))) return files;
  if (files.some((file) => file.path.startsWith(HOOKS))) {
    problems.error(
      "ErrInvalidJob",
      where,
      "_modules",
      "is an older name of _hooks, which is there too: keep only _hooks",
    );
    return files;
  }
  problems.warn(where, "_modules", "is an older name of _hooks");
  return files
    .map((file) =>
      file.path.startsWith(OLD_HOOKS) ? { ...file, path: HOOKS + file.path.slice(OLD_HOOKS.length) } : file,
    )
    .sort((a, b) => (a.path < b.path ? -1 : 1));
}

async function checkFolder(
  folder: string,
  where: string,
  files: CatalogFile[],
  problems: Problems,
): Promise<void> {
  const names = new Set(files.map((file) => file.path));
  const wrong = (at: string, message: string) => problems.error("ErrInvalidJob", where, at, message);
  if (!names.has("Makefile") && !names.has("Makefile.tpl"))
    wrong("", "has no Makefile (or Makefile.tpl) with the targets start, stop and restart");
  for (const reserved of RESERVED)
    for (const name of [reserved, `${reserved}.tpl`])
      if (await exists(path.join(folder, name)))
        wrong(name, `${reserved} is kept on the workers for the running service: use another name`);
  for (const name of names)
    if (/[\x00-\x1f\x7f]/.test(name)) wrong(JSON.stringify(name), "the name has control characters");
  if (names.has("prometheus.yml") && names.has("prometheus.yml.tpl"))
    wrong("prometheus.yml", "there is prometheus.yml.tpl too: keep one of them");
  for (const name of ["prometheus.yml", "prometheus.yml.tpl"])
    if (names.has(name)) problems.warn(where, name, "is not used by this version of ops");
  if (files.some((file) => file.path.startsWith("_prometheus/")))
    problems.warn(where, "_prometheus", "is not used by this version of ops");
}

function checkScript(hook: string, files: CatalogFile[], manifest: string, problems: Problems): void {
  const scripts = files.filter(({ path }) => {
    const [, name] = /^_hooks\/([^/]+)\.(?:py|ts|js)(?:\.tpl)?$/.exec(path) ?? [];
    return name === hook;
  });
  const kinds = new Set(scripts.map(({ path }) => path.replace(/\.tpl$/, "")));
  const at = `hooks/${hook}`;
  if (kinds.size === 0)
    problems.error("ErrHookFileNotFound", manifest, at, `there is no _hooks/${hook}.py, .ts or .js`);
  if (kinds.size > 1)
    problems.error(
      "ErrInvalidHookConfiguration",
      manifest,
      at,
      `has several scripts: ${[...kinds].join(", ")}`,
    );
}
