import path from "node:path";
import { type Layout, layoutOf } from "../../bucket/base/layout.ts";
import { restoreBucket, verifySnapshot } from "../../bucket/snapshots/restore.ts";
import { deleteSnapshot, findSnapshot, listSnapshots, snapshotNames } from "../../bucket/snapshots/snapshots.ts";
import { idNamed, uuidV7 } from "../../codec/uuid.ts";
import { exists, realPlace } from "../../core/files.ts";
import { counted } from "../../core/plain-text.ts";
import { Launcher } from "../../core/spawn.ts";
import type { Finding } from "../../operation/tend/doctor-bucket.ts";
import { takeBucket } from "../../run/recovery.ts";
import { bucketDir, EXIT, type Parsed, wantsJson } from "../base/flags.ts";
import { jsonText, printJson, printTable, stopRequest, toStderr, toStdout, visible } from "../base/terminal.ts";
import { initialisedBucket, withoutServerVariables } from "./bucket.ts";

/** `ops doctor`. Answers the exit code: 0, or 1 where there is a problem. */
export async function doctorCommand(input: Parsed): Promise<number> {
  const [{ examine }, { FINDING_GRADES }] = await Promise.all([
    import("../../operation/tend/doctor.ts"),
    import("../../operation/tend/doctor-bucket.ts"),
  ]);
  using stop = stopRequest();
  const launcher = new Launcher(withoutServerVariables(process.env));
  void stop.insisted.then(() => launcher.endAll(0));
  const findings = await examine({ layout: layoutOf(bucketDir(input)), launcher, signal: stop.signal });
  const worst = Math.max(...findings.map(({ grade }) => FINDING_GRADES.indexOf(grade)));
  toStdout(wantsJson(input) ? jsonText({ grade: FINDING_GRADES[worst], findings }) : doctorReport(findings));
  return FINDING_GRADES[worst] === "problem" ? EXIT.failed : EXIT.done;
}

function doctorReport(findings: readonly Finding[]): string {
  const width = Math.max(...findings.map(({ check }) => check.length));
  const places = Map.groupBy(findings, ({ where }) => where);
  const line = ({ grade, check, message, advice }: Finding) => {
    const told = `  ${grade.padEnd("warning".length)}  ${check.padEnd(width)}  ${visible(message)}\n`;
    return advice === null ? told : `${told}${" ".repeat(width + 13)}${visible(advice)}\n`;
  };
  const parts = [...places].map(([where, all]) => `${visible(where)}\n${all.map(line).join("")}`);
  const count = (grade: Finding["grade"]) => findings.filter((one) => one.grade === grade).length;
  return `${parts.join("")}${counted(count("problem"), "problem")}, ${counted(count("warning"), "warning")}, ${count("ok")} ok\n`;
}

/** `ops snapshot list`. Answers exit code 1 where a snapshot cannot be used. */
export async function listSnapshotsCommand(input: Parsed): Promise<number> {
  const { items } = await listSnapshots(await initialisedBucket(bucketDir(input)), { limit: Number.POSITIVE_INFINITY });
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
  toStdout(`bucket ${bucket_id} is restored in ${dir} as it was at ${created_at}${hint}\n`);
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
  toStdout(`${file} is removed\n`);
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
