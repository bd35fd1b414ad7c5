import path from "node:path";
import { type Layout, layoutOf } from "../../bucket/base/layout.ts";
import { type Opening, ofSnapshot, readFace, requireTrusted, trustAt } from "../../bucket/snapshots/envelope.ts";
import { restoreBucket, verifySnapshot } from "../../bucket/snapshots/restore.ts";
import { findSnapshot, snapshotNames, withoutSuffix } from "../../bucket/snapshots/snapshots.ts";
import { idNamed } from "../../codec/uuid.ts";
import { exists, realPlace } from "../../core/files.ts";
import { byteSize, counted } from "../../core/plain-text.ts";
import { bucketDir, EXIT, type Parsed, wantsJson } from "../base/flags.ts";
import { printJson, stopRequest, toStdout } from "../base/terminal.ts";
import { openingSecrets } from "./snapshot-keys.ts";

/** `ops snapshot verify`. Takes no lock: the live bucket is not read. */
export async function verifySnapshotCommand(input: Parsed): Promise<number> {
  using stop = stopRequest();
  const file = await snapshotFile(bucketDir(input), input.operands[0] ?? "");
  const opening = await openingFor(bucketDir(input), file, input, stop.signal);
  return showVerdict(withoutSuffix(path.basename(file)), await verifySnapshot(file, opening), input);
}

/** What the command line says about the signer of a snapshot. */
export function trustIn({ values, switches }: Parsed): { signer?: string; unsigned?: boolean } {
  const signer = values.get("signer");
  return { ...(signer !== undefined && { signer }), ...(switches.has("unsigned") && { unsigned: true }) };
}

/** The trust is that of the bucket's folder; the key comes from the flags, or is asked for. */
async function openingFor(dir: string, file: string, input: Parsed, signal: AbortSignal): Promise<Opening> {
  const { signer, seal } = await readFace(file);
  const trust = await trustAt(layoutOf(dir), trustIn(input));
  // Before anybody types a passphrase.
  await ofSnapshot(file, () => requireTrusted(signer, trust));
  return { trust, secret: await openingSecrets(input, seal), signal };
}

/** Shows what was found in a snapshot that can be restored. */
export function showVerdict(name: string, found: Pick<Verdict, "files" | "size_bytes" | "sealed_values">, input: Parsed): number {
  const { files, size_bytes: bytes, sealed_values: sealed } = found;
  const held = `${counted(files, "file")}, ${byteSize(bytes)}, ${counted(sealed, "sealed value")} opened`;
  if (wantsJson(input)) printJson({ name, ...found });
  else toStdout(`the snapshot ${name} can be restored: ${held}\n`);
  return EXIT.done;
}

type Verdict = Awaited<ReturnType<typeof verifySnapshot>>;

/** `ops snapshot restore` into an empty folder: makes a whole bucket. */
export async function restoreCommand(input: Parsed): Promise<number> {
  using stop = stopRequest();
  const dir = bucketDir(input);
  const file = await snapshotFile(dir, input.operands[0] ?? "");
  const { bucket_id, created_at } = await restoreBucket(dir, file, await openingFor(dir, file, input, stop.signal));
  // A shell that stands in the folder is still in the one that was replaced.
  const hint = dir === realPlace(".") ? `; enter it again: cd ${dir}` : "";
  if (wantsJson(input)) printJson({ bucket_id, dir, created_at });
  else toStdout(`bucket ${bucket_id} is restored in ${dir} as it was at ${created_at}${hint}\n`);
  return EXIT.done;
}

/** The name of the snapshot that a whole name, or its beginning or end, names, also with its suffix. */
export async function snapshotNamed(layout: Layout, given: string): Promise<string> {
  return idNamed(withoutSuffix(given), await snapshotNames(layout), "snapshot");
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
