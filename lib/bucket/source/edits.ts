import { chown, lstat, rename, stat } from "node:fs/promises";
import path from "node:path";
import { hasErrno } from "../../core/errors.ts";
import { flushFolder, namesIn, remove, requireFolder, writeAtomic } from "../../core/files.ts";
import type { Layout } from "../base/layout.ts";

/** A new text for a file of the source; the path is below the bucket's folder. */
export interface SourceEdit {
  file: string;
  after: string;
  mode: number;
}

/** In workspace/, in templates/ or beside ops.conf: what lies beside a file of a job would be a file of the job. */
const TEMPORARY = ".ops-edit.tmp";

/**
 * Replaces files of the source, each at once, with its owner where that can be. A kill in between leaves whole files and at
 * most one temporary file, which belongs to no job; the next call takes that away. Throws where a file cannot be written.
 */
export async function writeEdits({ root }: Pick<Layout, "root">, edits: readonly SourceEdit[]): Promise<void> {
  for (const place of ["", "workspace", "templates"]) await clearTemporary(path.join(root, place));
  for (const { file, after, mode } of edits) {
    // Each of the three may be a mount of its own.
    const temporary = path.join(root, file.includes("/") ? (file.split("/")[0] as string) : "", TEMPORARY);
    try {
      await replaceFile(path.join(root, file), temporary, { after, mode });
    } catch (error) {
      await remove(temporary);
      throw error;
    }
  }
}

async function clearTemporary(folder: string): Promise<void> {
  for (const name of await namesIn(folder)) {
    const place = path.join(folder, name);
    if (/^\.?\.ops-edit\.tmp(\.|$)/.test(name) && (await lstat(place)).isFile()) await remove(place);
  }
}

async function replaceFile(file: string, temporary: string, { after, mode }: { after: string; mode: number }): Promise<void> {
  const { uid, gid } = await stat(file);
  await writeAtomic(temporary, after, mode);
  await chown(temporary, uid, gid).catch((error: unknown) => {
    if (!hasErrno(error, "EPERM")) throw error;
  });
  const folder = path.dirname(file);
  await requireFolder(folder);
  await rename(temporary, file);
  await flushFolder(folder);
}
