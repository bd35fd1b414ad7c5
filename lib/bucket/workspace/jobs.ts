import { hash } from "node:crypto";
import { lstatSync } from "node:fs";
import path from "node:path";
import { parseTemplate } from "../../codec/template/parse.ts";
import { messageOf, throwIfCancelled } from "../../core/errors.ts";
import { decodeUtf8, lineAndColumn } from "../../core/plain-text.ts";
import { type FoundFile, foundPieces, readFound } from "../../core/walk.ts";
import { bytesOf, digestOf, LARGEST_ROW_BYTES, type Pieces } from "../base/contents.ts";
import type { Layout } from "../base/layout.ts";
import type { CatalogFile } from "../base/model.ts";
import { NAME, NAME_RULE } from "../base/names.ts";
import type { FileProblems, Problems } from "../base/problems.ts";
import { BUCKET_FUNCTIONS } from "../kv/kv-access.ts";
import { parseSourceJson, relative } from "../source/source-file.ts";
import type { SourceTree } from "../source/source-rules.ts";
import { valuesIn } from "./bucket-conf.ts";
import { checkManifest, hookNames } from "./manifest.ts";
import { isCertFile } from "./manifest-blocks.ts";

/** A job as its folder in the workspace describes it. */
export type JobSource = NonNullable<ReturnType<typeof readJob>>;

const RESERVED = ["data", "logs", "bin"];
const HOOKS = "_hooks/";
const OLD_HOOKS = "_modules/";

/**
 * Reads every folder of `workspace/jobs/` that has a manifest.json, by name. Errors: `ErrInvalidJob`,
 * `ErrInvalidJobVars`, `ErrInvalidTemplate`, `ErrHookFileNotFound` and those of {@link checkManifest}.
 */
export function readJobs(layout: Layout, tree: SourceTree, problems: Problems, signal: AbortSignal) {
  const result = { jobs: [] as JobSource[], broken: new Set<string>() };
  for (const [entry, inFolder] of tree.jobs) {
    throwIfCancelled(signal);
    if (!inFolder.some((file) => file.path === "manifest.json")) continue;
    const name = entry.toLowerCase();
    const folder = path.join(layout.jobs, entry);
    const found = problems.in(relative(layout, folder), "ErrInvalidJob");
    if (!NAME.test(name)) found.error("", `a job's name has ${NAME_RULE}`);
    const read = readFiles(folder, inFolder, found);
    checkTemplates(read, found.file, problems);
    const files = withNewNames(read, found);
    checkFolder(folder, files, found);
    const job = readJob(name, files, found, problems);
    if (job) result.jobs.push(job);
    else result.broken.add(name);
  }
  return result;
}

function readJob(name: string, files: CatalogFile[], folder: FileProblems, problems: Problems) {
  const contentOf = (path: string) => {
    const file = files.find((one) => one.path === path);
    return file && bytesOf(file.content);
  };
  const found = problems.in(`${folder.file}/manifest.json`, "ErrInvalidManifest");
  const text = contentOf("manifest.json");
  const value = text && parseSourceJson(text, found);
  const manifest = value === undefined ? undefined : checkManifest(name, value, found);
  for (const { path: at } of files)
    if (manifest && isCertFile(manifest.certs, at)) folder.error(at, "a certificate is put there: use another name");
  for (const hook of hookNames(value)) findScript(hook, files, found);
  const vars = valuesIn(contentOf("vars.toml"), problems.in(`${folder.file}/vars.toml`, "ErrInvalidJobVars"));
  // `file` is the manifest's path, for problems; `vars` is vars.toml.
  return manifest && { name, file: found.file, manifest, files, vars };
}

function readFiles(folder: string, inFolder: readonly FoundFile[], found: FileProblems): CatalogFile[] {
  return inFolder.flatMap((file) => {
    try {
      const mode = file.executable ? 0o755 : 0o644;
      return [{ path: file.path, mode, ...readFile(folder, file) }];
    } catch (error) {
      found.error(file.path, messageOf(error));
      return [];
    }
  });
}

function readFile(folder: string, file: FoundFile): Pick<CatalogFile, "sha256" | "content"> {
  if (file.sizeBytes > LARGEST_ROW_BYTES) {
    const pieces: Pieces = (buffer) => foundPieces(folder, file, buffer);
    return { sha256: digestOf(pieces), content: { length: file.sizeBytes, pieces } };
  }
  const content = readFound(folder, file);
  return { sha256: hash("sha256", content), content };
}

/** `_modules/`, the older name of `_hooks/`, is taken under its new name. */
function withNewNames(files: CatalogFile[], found: FileProblems): CatalogFile[] {
  if (!files.some((file) => file.path.startsWith(OLD_HOOKS))) return files;
  const isBoth = files.some((file) => file.path.startsWith(HOOKS));
  if (isBoth) found.error("_modules", "is an older name of _hooks, which is there too: keep only _hooks");
  else found.warn("_modules", "is an older name of _hooks");
  if (isBoth) return files;
  const renamed = files.map((file) => ({ ...file, path: file.path.replace(/^_modules\//, HOOKS) }));
  return renamed.sort((a, b) => (a.path < b.path ? -1 : 1));
}

function checkFolder(folder: string, files: readonly CatalogFile[], found: FileProblems): void {
  const names = new Set(files.map((file) => file.path));
  if (!names.has("Makefile") && !names.has("Makefile.tpl"))
    found.error("", "has no Makefile (or Makefile.tpl) with the targets start, stop and restart");
  const onDisk = (name: string) => lstatSync(path.join(folder, name), { throwIfNoEntry: false });
  for (const reserved of RESERVED)
    for (const name of [reserved, `${reserved}.tpl`])
      if (onDisk(name)) found.error(name, `${reserved} is kept on the workers for the running service: use another name`);
  for (const name of names)
    if (name.endsWith(".tpl") && onDisk(name.slice(0, -4))?.isDirectory())
      found.error(name, "it would be rendered in the place of a folder: use another name");
  if (names.has("prometheus.yml") && names.has("prometheus.yml.tpl"))
    found.error("prometheus.yml", "there is prometheus.yml.tpl too: keep one of them");
}

/** Looks for the one script of a hook and gives it the hook's name in small letters, as hooks are called everywhere. */
function findScript(hook: string, files: readonly CatalogFile[], manifest: FileProblems): void {
  const scripts = files.filter(({ path }) => {
    const [, name = ""] = /^_hooks\/([^/]+)\.(?:py|ts|js)(?:\.tpl)?$/.exec(path) ?? [];
    return name.toLowerCase() === hook;
  });
  for (const script of scripts) script.path = HOOKS + hook + script.path.slice(HOOKS.length + hook.length);
  const kinds = new Set(scripts.map(({ path }) => path.replace(/\.tpl$/, "")));
  const at = `hooks/${hook}`;
  if (kinds.size === 0) manifest.error(at, `there is no _hooks/${hook}.py, .ts or .js`, "ErrHookFileNotFound");
  if (kinds.size > 1) manifest.error(at, `has several scripts: ${[...kinds].join(", ")}`, "ErrInvalidHookConfiguration");
}

/** Parses the templates of a job: `ErrInvalidTemplate` with line and column for each that is none. */
export function checkTemplates(files: readonly CatalogFile[], folder: string, problems: Problems): void {
  for (const { path, content } of files) {
    if (!path.endsWith(".tpl") || (path.startsWith("_prometheus/") && path !== "_prometheus/scrape.yaml.tpl")) continue;
    const found = problems.in(`${folder}/${path}`, "ErrInvalidTemplate");
    const text = decodeUtf8(bytesOf(content));
    if (text === undefined) found.error("", "is not UTF-8 text");
    else checkTemplateText(path, text, found);
  }
}

function checkTemplateText(path: string, text: string, found: FileProblems): void {
  try {
    parseTemplate(path, text, BUCKET_FUNCTIONS);
  } catch (error) {
    const told = messageOf(error).slice(`template: ${path}:`.length);
    const [, line = "1", bytes = "0", message = told] = /^(\d+):(\d+): (.*)$/s.exec(told) ?? [];
    // Go counts columns in bytes from 0; people count characters from 1.
    const before = Buffer.from(text.split("\n")[Number(line) - 1] ?? "").subarray(0, Number(bytes));
    found.error(`line ${line}, column ${lineAndColumn(before.toString(), before.length).column}`, message);
  }
}
