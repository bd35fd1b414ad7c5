import { hash } from "node:crypto";
import { lstatSync } from "node:fs";
import path from "node:path";
import { parseTemplate } from "../../codec/template/parse.ts";
import { messageOf, throwIfCancelled } from "../../core/errors.ts";
import { decodeUtf8 } from "../../core/plain-text.ts";
import { type FoundFile, readFound } from "../../core/walk.ts";
import type { Layout } from "../base/layout.ts";
import type { CatalogFile } from "../base/model.ts";
import { NAME, NAME_RULE } from "../base/names.ts";
import type { Problems } from "../base/problems.ts";
import { KV_FUNCTIONS } from "../kv/kv-access.ts";
import { parseSourceJson, relative, type SourceTree } from "../source/source-file.ts";
import { valuesIn } from "./bucket-conf.ts";
import { checkManifest, hookNames, type Manifest } from "./manifest.ts";
import { isCertFile } from "./manifest-blocks.ts";

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

/** The jobs of a workspace, and the names of those whose manifest cannot be used. */
interface JobSources {
  jobs: JobSource[];
  broken: Set<string>;
}

const MANIFEST = "manifest.json";
const VARS = "vars.toml";
const EXECUTABLE = 0o755;
const PLAIN = 0o644;
const RESERVED = ["data", "logs", "bin"];
const HOOKS = "_hooks/";
const OLD_HOOKS = "_modules/";

/**
 * Reads every folder of `workspace/jobs/` that has a manifest.json, by name. Errors: `ErrInvalidJob`,
 * `ErrInvalidJobVars`, `ErrInvalidTemplate`, `ErrHookFileNotFound` and those of {@link checkManifest}.
 */
export function readJobs(layout: Layout, tree: SourceTree, problems: Problems, signal: AbortSignal): JobSources {
  const found: JobSources = { jobs: [], broken: new Set() };
  for (const [entry, inFolder] of tree.jobs) {
    throwIfCancelled(signal);
    if (!inFolder.some((file) => file.path === MANIFEST)) continue;
    const name = entry.toLowerCase();
    const folder = path.join(layout.jobs, entry);
    const where = relative(layout, folder);
    if (!NAME.test(name)) problems.error("ErrInvalidJob", where, "", `a job's name has ${NAME_RULE}`);
    const files = readFiles(folder, where, inFolder, problems);
    checkTemplates(where, files, problems);
    const job = readJob(name, folder, where, files, problems);
    if (job) found.jobs.push(job);
    else found.broken.add(name);
  }
  return found;
}

function readJob(
  name: string,
  folder: string,
  where: string,
  read: CatalogFile[],
  problems: Problems,
): JobSource | undefined {
  const files = withNewNames(read, where, problems);
  checkFolder(folder, where, files, problems);
  const contentOf = (file: string) => files.find((one) => one.path === file)?.content;
  const file = `${where}/${MANIFEST}`;
  const text = contentOf(MANIFEST);
  const value = text && parseSourceJson(text, file, "ErrInvalidManifest", problems);
  const manifest = value === undefined ? undefined : checkManifest(name, value, file, problems);
  for (const { path: at } of files)
    if (manifest && isCertFile(manifest.certs, at))
      problems.error("ErrInvalidJob", where, at, "a certificate is put there: use another name");
  for (const hook of hookNames(value)) findScript(hook, files, file, problems);
  const vars = valuesIn(contentOf(VARS), `${where}/${VARS}`, "ErrInvalidJobVars", problems);
  return manifest && { name, file, manifest, files, vars };
}

function readFiles(folder: string, where: string, found: readonly FoundFile[], problems: Problems): CatalogFile[] {
  return found.flatMap((file) => {
    try {
      const content = readFound(folder, file);
      const sha256 = hash("sha256", content);
      return [{ path: file.path, mode: file.executable ? EXECUTABLE : PLAIN, sha256, content }];
    } catch (error) {
      problems.error("ErrInvalidJob", where, file.path, messageOf(error));
      return [];
    }
  });
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

function checkFolder(folder: string, where: string, files: readonly CatalogFile[], problems: Problems): void {
  const names = new Set(files.map((file) => file.path));
  const wrong = (at: string, message: string) => problems.error("ErrInvalidJob", where, at, message);
  if (!names.has("Makefile") && !names.has("Makefile.tpl"))
    wrong("", "has no Makefile (or Makefile.tpl) with the targets start, stop and restart");
  for (const reserved of RESERVED)
    for (const name of [reserved, `${reserved}.tpl`])
      if (lstatSync(path.join(folder, name), { throwIfNoEntry: false }))
        wrong(name, `${reserved} is kept on the workers for the running service: use another name`);
  if (names.has("prometheus.yml") && names.has("prometheus.yml.tpl"))
    wrong("prometheus.yml", "there is prometheus.yml.tpl too: keep one of them");
}

/** Looks for the one script of a hook and gives it the hook's name in small letters, as hooks are called everywhere. */
function findScript(hook: string, files: readonly CatalogFile[], manifest: string, problems: Problems): void {
  const scripts = files.filter(({ path }) => {
    const [, name = ""] = /^_hooks\/([^/]+)\.(?:py|ts|js)(?:\.tpl)?$/.exec(path) ?? [];
    return name.toLowerCase() === hook;
  });
  for (const script of scripts) script.path = HOOKS + hook + script.path.slice(HOOKS.length + hook.length);
  const kinds = new Set(scripts.map(({ path }) => path.replace(/\.tpl$/, "")));
  const at = `hooks/${hook}`;
  if (kinds.size === 0)
    problems.error("ErrHookFileNotFound", manifest, at, `there is no _hooks/${hook}.py, .ts or .js`);
  if (kinds.size > 1)
    problems.error("ErrInvalidHookConfiguration", manifest, at, `has several scripts: ${[...kinds].join(", ")}`);
}

/** Parses the templates of a job: `ErrInvalidTemplate` with line and column for each that is none. */
export function checkTemplates(where: string, files: readonly CatalogFile[], problems: Problems): void {
  for (const { path, content } of files.filter((file) => isTemplate(file.path))) {
    const found = problemOf(path, content);
    if (found) problems.error("ErrInvalidTemplate", `${where}/${path}`, ...found);
  }
}

/** True for a file that is rendered; below `_prometheus/` that is only the scrape template. */
function isTemplate(path: string): boolean {
  return path.endsWith(".tpl") && (!path.startsWith("_prometheus/") || path === "_prometheus/scrape.yaml.tpl");
}

function problemOf(path: string, content: Uint8Array): [place: string, message: string] | undefined {
  const text = decodeUtf8(content);
  if (text === undefined) return ["", "is not UTF-8 text"];
  try {
    parseTemplate(path, text, KV_FUNCTIONS);
    return undefined;
  } catch (error) {
    return placed(messageOf(error).slice(`template: ${path}:`.length), text);
  }
}

/**
 * Splits an error into its place and its message. Go counts columns in bytes from 0; people count characters from 1.
 */
function placed(found: string, text: string): [place: string, message: string] {
  const [, line = "1", bytes = "0", message = found] = /^(\d+):(\d+): (.*)$/s.exec(found) ?? [];
  const before = Buffer.from(text.split("\n")[Number(line) - 1] ?? "").subarray(0, Number(bytes));
  return [`line ${line}, column ${[...before.toString()].length + 1}`, message];
}
