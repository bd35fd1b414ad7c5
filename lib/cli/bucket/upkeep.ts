import path from "node:path";
import { type Layout, layoutOf } from "../../bucket/base/layout.ts";
import { restoreBucket, verifySnapshot } from "../../bucket/snapshots/restore.ts";
import { deleteSnapshot, findSnapshot, listSnapshots, snapshotNames } from "../../bucket/snapshots/snapshots.ts";
import { idNamed, uuidV7 } from "../../codec/uuid.ts";
import { exists, realPlace } from "../../core/files.ts";
import { counted } from "../../core/plain-text.ts";
import { takeBucket } from "../../run/recovery.ts";
import { bucketDir, EXIT, type Parsed, wantsJson } from "../base/flags.ts";
import { printJson, printTable, stopRequest, toStderr, toStdout } from "../base/terminal.ts";
import { initialisedBucket } from "./bucket.ts";

/** `ops snapshot list`. Answers exit code 1 where a snapshot cannot be used. */
export async function listSnapshotsCommand(input: Parsed): Promise<number> {
  const { items } = await listSnapshots(await initialisedBucket(bucketDir(input)), { limit: Number.POSITIVE_INFINITY });
  return showSnapshots(items, input);
}

/** Shows snapshots; exit code 1 where one cannot be used. */
export function showSnapshots(items: Awaited<ReturnType<typeof listSnapshots>>["items"], input: Parsed): number {
  const damaged = items.filter(({ error }) => error !== null);
  if (wantsJson(input)) printJson(items);
  else if (items.length === 0) toStdout("there are no snapshots; make one with `ops snapshot create`\n");
  else {
    const rows = items.map(({ name, created_at, size_bytes, note }) => [name, created_at, size_bytes, note]);
    printTable(["name", "created_at", "size_bytes", "note"], rows);
  }
  for (const { error } of damaged) toStderr(`ops: ${error ?? ""}\n`);
  return damaged.length === 0 ? EXIT.done : EXIT.failed;
}

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

/** `ops snapshot delete`. */
export async function deleteSnapshotCommand(input: Parsed): Promise<number> {
  const [name = ""] = input.operands;
  const layout = await initialisedBucket(bucketDir(input));
  const file = await findSnapshot(layout, await snapshotNamed(layout, name));
  {
    await using _ = await takeBucket(layout, uuidV7(), "snapshot delete");
    await deleteSnapshot(layout, path.basename(file));
  }
  if (wantsJson(input)) printJson({ name: path.basename(file, ".tar.gz") });
  else toStdout(`${file} is removed\n`);
  return EXIT.done;
}

/** The name of the snapshot that a whole name, or its beginning or end, names, also with its suffix. */
async function snapshotNamed(layout: Layout, given: string): Promise<string> {
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
