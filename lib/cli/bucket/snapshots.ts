import { layoutOf } from "../../bucket/base/layout.ts";
import { restoreBucket, verifySnapshot } from "../../bucket/snapshots/restore.ts";
import { deleteSnapshot, findSnapshot, listSnapshots } from "../../bucket/snapshots/snapshots.ts";
import { uuidV7 } from "../../codec/uuid.ts";
import { exists, realPlace } from "../../core/files.ts";
import { takeBucket } from "../../run/recovery.ts";
import { EXIT } from "../base/flags.ts";
import { stopRequest } from "../base/stop.ts";
import { jsonText, textTable } from "../base/table.ts";
import { toStderr, toStdout } from "../base/terminal.ts";
import { initialisedBucket } from "./bucket.ts";

/** `ops snapshot list`. Exit code 1 where one of them cannot be used. */
export async function listCommand(dir: string, asJson: boolean): Promise<number> {
  const { items } = await listSnapshots(await initialisedBucket(dir), { limit: Number.POSITIVE_INFINITY });
  const damaged = items.filter(({ error }) => error !== null);
  if (asJson) toStdout(jsonText(items));
  else if (items.length === 0) toStdout("there are no snapshots; make one with `ops snapshot create`\n");
  else {
    const rows = items.map(({ name, created_at, size_bytes, note }) => [name, created_at, size_bytes, note]);
    toStdout(textTable(["name", "created_at", "size_bytes", "note"], rows, process.stdout.columns));
  }
  for (const { error } of damaged) toStderr(`ops: ${error ?? ""}\n`);
  return damaged.length === 0 ? EXIT.done : EXIT.failed;
}

/** `ops snapshot verify`: takes no lock, since it does not look at the live bucket. */
export async function verifyCommand(dir: string, given: string, asJson: boolean): Promise<number> {
  using stop = stopRequest();
  const found = await verifySnapshot(await snapshotFile(dir, given), stop.signal);
  if (asJson) toStdout(jsonText(found));
  else
    toStdout(
      `the snapshot of ${found.created_at} of bucket ${found.bucket_id} can be restored: ${found.files} files, ${found.size_bytes} bytes, ${found.rows} rows, ${found.sealed_values} sealed values opened\n`,
    );
  return EXIT.done;
}

/** `ops snapshot restore` into an empty folder: a whole bucket arises. */
export async function restoreCommand(dir: string, given: string): Promise<number> {
  using stop = stopRequest();
  const { bucket_id, created_at } = await restoreBucket(dir, await snapshotFile(dir, given), stop.signal);
  // The folder a shell stands in has been replaced by another one of the same name.
  const hint = dir === realPlace(".") ? `; enter it again: cd ${dir}` : "";
  toStdout(`bucket ${bucket_id} is restored in ${dir} as it was at ${created_at}${hint}\n`);
  return EXIT.done;
}

/** `ops snapshot delete`. */
export async function deleteCommand(dir: string, name: string): Promise<number> {
  const layout = await initialisedBucket(dir);
  const file = await findSnapshot(layout, name);
  const lock = await takeBucket(layout, uuidV7(), "snapshot delete");
  try {
    await deleteSnapshot(layout, name);
  } finally {
    await lock.release();
  }
  toStdout(`${file} is removed\n`);
  return EXIT.done;
}

/** The file of a snapshot: what is no name of one of the bucket is the path of a file. */
export async function snapshotFile(dir: string, given: string): Promise<string> {
  try {
    return await findSnapshot(layoutOf(dir), given);
  } catch (error) {
    const file = realPlace(given);
    if (await exists(file)) return file;
    throw error;
  }
}
