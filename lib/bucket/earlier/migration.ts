import { existsSync } from "node:fs";
import { rename, stat } from "node:fs/promises";
import path from "node:path";
import { textOfFile, unifiedDiff } from "../../codec/diff.ts";
import { exists, flushFolder, namesIn, readBounded, readRegularSync } from "../../core/files.ts";
import { isObject } from "../../core/shape.ts";
import { readFound, walk } from "../../core/walk.ts";
import { type Layout, SKIPPED_FOLDERS } from "../base/layout.ts";
import { SOURCE_FILE_BYTES, type SourceEdit, writeEdits } from "../source/source-file.ts";
import { type KnownHooks, migratedText } from "./texts.ts";

/** A line that a person must look at; `file` is below the bucket. */
interface Look {
  file: string;
  line: number;
  message: string;
}

/** How the source of a bucket comes from the earlier form to the present one. All paths are below the bucket. */
export interface Migration {
  edits: (SourceEdit & { before: string })[];
  /** Files first, then folders. */
  renames: { from: string; to: string }[];
  looks: Look[];
}

interface SourceFile {
  file: string;
  mode: number;
  bytes: Buffer | undefined;
}

const OLD_CONF = "maand.conf";
/** What gets another name, at the beginning of a file's path. */
const OLD_PLACE = /^maand\.conf$|^(?:workspace\/jobs|templates)\/[^/]+\/_modules(?=\/)/;
const HELPER_COPY = /\/(_modules|_hooks)\/maand\.(py|ts|js)$/;

/** Finds what there is to change, and changes nothing. */
export async function planMigration(layout: Layout): Promise<Migration> {
  const plan: Migration = { edits: [], renames: [], looks: [] };
  const hooks = await knownHooks(layout);
  const files: string[] = [];
  for await (const { file, mode, bytes } of sourceFiles(layout, plan.looks)) {
    files.push(file);
    const look = (message: string) => plan.looks.push({ file, line: 1, message });
    const before = bytes && textOfFile(bytes);
    if (HELPER_COPY.test(file)) look("a copy of the earlier helper: ops brings its own, so remove this one");
    else if (bytes === undefined) look(`has more than ${SOURCE_FILE_BYTES} bytes and was not read`);
    else if (before === undefined) {
      if (bytes.includes("maand")) look(`is no text, and the name "maand" is in it`);
    } else {
      const { text: after, looks } = migratedText(file, before, hooks);
      if (after !== before) plan.edits.push({ file, before, after, mode });
      plan.looks.push(...looks.map((one) => ({ file, ...one })));
    }
  }
  await planRenames(layout, files, plan);
  if (existsSync(path.join(layout.data, "maand.db")))
    plan.looks.push({ file: "data/maand.db", line: 1, message: "live data of the earlier program, which ops does not read" });
  return plan;
}

/** The files of the source in order, their bytes only where there are not too many. What cannot be taken is told. */
async function* sourceFiles({ root }: Layout, looks: Look[]): AsyncGenerator<SourceFile> {
  for (const file of [OLD_CONF, "ops.conf"]) {
    const bytes = await readBounded(path.join(root, file), SOURCE_FILE_BYTES);
    if (bytes) yield { file, mode: (await stat(path.join(root, file))).mode & 0o777, bytes };
  }
  for (const folder of ["workspace", "templates"]) {
    const refuse = (below: string, why: string) => looks.push({ file: path.join(folder, below), line: 1, message: why });
    for (const found of walk(path.join(root, folder), SKIPPED_FOLDERS, refuse)) {
      const bytes = found.sizeBytes > SOURCE_FILE_BYTES ? undefined : readFound(path.join(root, folder), found);
      yield { file: `${folder}/${found.path}`, mode: found.state.mode & 0o777, bytes };
    }
  }
}

/** The hooks of each job, as far as its manifest can be read. */
async function knownHooks({ jobs }: Layout): Promise<KnownHooks> {
  const known = new Map<string, Set<string>>();
  for (const job of await namesIn(jobs)) {
    try {
      const manifest: unknown = JSON.parse(readRegularSync(path.join(jobs, job, "manifest.json"), SOURCE_FILE_BYTES));
      const fields = isObject(manifest) ? Object.entries(manifest) : [];
      const hooks = fields
        .filter(([key]) => /^(hooks|commands)$/i.test(key))
        .flatMap(([, all]) => (isObject(all) ? Object.keys(all) : []));
      known.set(job.toLowerCase(), new Set(hooks.map((hook) => hook.toLowerCase())));
    } catch {
      // The build tells what is wrong with it.
    }
  }
  return known;
}

async function planRenames({ root }: Layout, files: readonly string[], { renames, looks }: Migration): Promise<void> {
  for (const from of new Set(files.flatMap((file) => OLD_PLACE.exec(file)?.[0] ?? []))) {
    const to = from === OLD_CONF ? "ops.conf" : from.replace(/_modules$/, "_hooks");
    if (await exists(path.join(root, to))) looks.push({ file: from, line: 1, message: `${to} is there too: keep only ${to}` });
    else renames.push({ from, to });
  }
}

/** The changes as `diff -u` prints them, and a line for each new name. */
export function migrationDiff({ edits, renames }: Migration): string {
  const texts = edits.map(({ file, before, after }) => `--- a/${file}\n+++ b/${file}\n${unifiedDiff(before, after)}`);
  return [...texts, ...renames.map(({ from, to }) => `rename ${from} to ${to}\n`)].join("");
}

/**
 * Carries the changes out: the edits as {@link writeEdits} does, then the renames. A kill in between leaves whole files;
 * another migration does the rest.
 */
export async function carryOutMigration(layout: Layout, { edits, renames }: Migration): Promise<void> {
  const { root } = layout;
  await writeEdits(layout, edits);
  for (const { from, to } of renames) {
    await rename(path.join(root, from), path.join(root, to));
    await flushFolder(path.dirname(path.join(root, to)));
  }
}
