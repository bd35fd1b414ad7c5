import { type Layout, layoutOf } from "../../bucket/base/layout.ts";
import { restoreBucket, verifySnapshot } from "../../bucket/snapshots/restore.ts";
import { findSnapshot, snapshotNames } from "../../bucket/snapshots/snapshots.ts";
import { idNamed } from "../../codec/uuid.ts";
import { exists, realPlace } from "../../core/files.ts";
import { counted } from "../../core/plain-text.ts";
import { bucketDir, EXIT, type Parsed, wantsJson } from "../base/flags.ts";
import { printJson, stopRequest, toStdout } from "../base/terminal.ts";

/** `ops snapshot verify`. Takes no lock: the live bucket is not read. */
export async function verifySnapshotCommand(input: Parsed): Promise<number> {
  using stop = stopRequest();
  const found = await verifySnapshot(await snapshotFile(bucketDir(input), input.operands[0] ?? ""), stop.signal);
  if (wantsJson(input)) printJson(found);
  else
    toStdout(
      `the snapshot of ${found.created_at} of bucket ${found.bucket_id} can be restored: ${counted(found.files, "file")}, ${counted(found.size_bytes, "byte")}, ${counted(found.rows, "row")}, ${counted(found.sealed_values, "sealed value")} opened\n`,
    );
  return EXIT.done;
}

/** `ops snapshot restore` into an empty folder: makes a whole bucket. */
export async function restoreCommand(input: Parsed): Promise<number> {
  using stop = stopRequest();
  const dir = bucketDir(input);
  const file = await snapshotFile(dir, input.operands[0] ?? "");
  const { bucket_id, created_at } = await restoreBucket(dir, file, stop.signal);
  // A shell that stands in the folder is still in the one that was replaced.
  const hint = dir === realPlace(".") ? `; enter it again: cd ${dir}` : "";
  if (wantsJson(input)) printJson({ bucket_id, dir, created_at });
  else toStdout(`bucket ${bucket_id} is restored in ${dir} as it was at ${created_at}${hint}\n`);
  return EXIT.done;
}

/** The name of the snapshot that a whole name, or its beginning or end, names, also with its suffix. */
export async function snapshotNamed(layout: Layout, given: string): Promise<string> {
  return idNamed(given.replace(/\.tar\.gz$/, ""), await snapshotNames(layout), "snapshot");
}

/** The file of a snapshot: text that names no snapshot of the bucket is the path of a file. */
export async function snapshotFile(dir: string, given: string): Promise<string> {
  try {
    return await findSnapshot(layoutOf(dir), await snapshotNamed(layoutOf(dir), given));
  } catch (error) {
    const file = realPlace(given);
    if (await exists(file)) return file;
    throw error;
  }
}
