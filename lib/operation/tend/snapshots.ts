import { link } from "node:fs/promises";
import path from "node:path";
import type { Database } from "../../bucket/base/database.ts";
import { trustAt } from "../../bucket/snapshots/envelope.ts";
import { commitRestore, type PreparedRestore, prepareRestore } from "../../bucket/snapshots/restore.ts";
import { createSnapshot, findSnapshot, keepSnapshots, type SnapshotWish } from "../../bucket/snapshots/snapshots.ts";
import { listRevisions } from "../../bucket/source/revisions.ts";
import { discardLeftovers } from "../../bucket/source/swap.ts";
import { loadOpsConf } from "../../bucket/workspace/settings.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import { exists, remove } from "../../core/files.ts";
import { counted } from "../../core/plain-text.ts";
import { parametersOf } from "../../run/protocol.ts";
import type { Operation, OperationContext } from "../base/context.ts";

/**
 * Makes a snapshot of the bucket and removes those that are more than `snapshot_keep`; answers it as lists show it, and what
 * was removed.
 */
export const takeSnapshot: Operation = async ({ layout, db, log, secrets, signal }, params) => {
  const { note = "", recipient } = parametersOf("snapshot_create", params);
  const { settings } = await loadOpsConf(layout);
  const passphrase = secrets?.passphrase;
  if (recipient !== undefined && passphrase !== undefined)
    throw new Failure("invalid_request", "Cannot seal a snapshot for a recipient and for a passphrase: give one of them");
  const sealFor = passphrase !== undefined ? { passphrase } : sealedFor(recipient ?? settings.snapshotRecipient);
  const snapshot = await createSnapshot(layout, db, { note, sealFor }, signal);
  log.info(`snapshot ${snapshot.name}: ${snapshot.size_bytes} bytes, ${sealFor ? "sealed" : "in clear"}`);
  const removed = await keepSnapshots(layout, settings.snapshotKeep);
  for (const name of removed) log.info(`removed the old snapshot ${name} (snapshot_keep)`);
  return { ...snapshot, removed };
};

function sealedFor(recipient: string | undefined): SnapshotWish["sealFor"] {
  return recipient === undefined ? undefined : { recipient };
}

/** The context of a restore; `db` is undefined where the database is damaged. */
type RestoreContext = Omit<OperationContext, "db" | "kv"> & { db: Database | undefined };

/**
 * Restores a snapshot of this bucket (decisions: Snapshots). In order: the snapshot is unpacked and all of it checked,
 * a snapshot of the present is taken, and only then is anything replaced, wholly or not at all; from there on a cancel
 * comes too late. A damaged database cannot go into a snapshot: its file is kept beside the new one.
 */
export const restoreSnapshot = async (context: RestoreContext, params: Record<string, unknown>) => {
  const { layout, log, run, secrets = {}, signal } = context;
  const { snapshot, with_source, ...asked } = parametersOf("snapshot_restore", params);
  const file = path.isAbsolute(snapshot) ? snapshot : await findSnapshot(layout, snapshot);
  const prepared = await prepareRestore(layout, run.bucketId, file, {
    trust: await trustAt(layout, asked),
    secret: secrets,
    signal,
  });
  log.info(`${path.basename(file)} is whole: ${counted(prepared.manifest.files.length, "file")}`);
  const saved_as = await replaceBy(context, prepared, path.basename(file), with_source);
  const { created_at, source_revision } = prepared.manifest;
  const current = (await listRevisions(layout)).find((revision) => revision.current);
  // The revision that was the source when the snapshot was made, and the one that is the source now.
  const revisions = { source_revision: source_revision || null, current_revision: current?.id ?? null };
  log.info(`restored the state of ${created_at}; the state before it is in ${saved_as ?? "data/ops.db.damaged"}`);
  log.info(with_source ? "the source is that of the snapshot: build, then deploy" : sentenceAboutSource(revisions));
  return { snapshot: path.basename(file), created_at, saved_as, with_source, ...revisions };
};

/** Saves the present and replaces it; answers the name of the snapshot with the present. */
async function replaceBy(
  context: RestoreContext,
  prepared: PreparedRestore,
  name: string,
  withSource: boolean,
): Promise<string | null> {
  const { layout, db, signal } = context;
  try {
    const saved = await savePresent(context, `before the restore of ${name}`, prepared.opened);
    throwIfCancelled(signal);
    // Nothing may have the database open while another one takes its place.
    db?.close();
    await commitRestore(layout, prepared, withSource);
    return saved;
  } catch (error) {
    if (!(await exists(layout.journal))) await discardLeftovers(layout);
    throw error;
  }
}

async function savePresent(
  { layout, db, log, signal }: RestoreContext,
  note: string,
  opened: PreparedRestore["opened"],
): Promise<string | null> {
  if (db) {
    // What opens the snapshot that is restored opens the present, too; where neither is sealed, its keys lie beside it in clear.
    const sealFor = sealedFor((await loadOpsConf(layout)).settings.snapshotRecipient) ?? opened;
    const saved = await createSnapshot(layout, db, { note, sealFor }, signal);
    log.info(`the present is saved as snapshot ${saved.name}, ${sealFor ? "sealed" : "in clear"}`);
    return saved.name;
  }
  // The restore gives the name to another file: this one only needs a second name.
  const kept = `${layout.database}.damaged`;
  await remove(kept);
  await link(layout.database, kept);
  log.warn(`the database is damaged and cannot go into a snapshot: it is kept as ${kept}`);
  return null;
}

/** What a restore that left the source alone says about the source. */
function sentenceAboutSource(revisions: Record<"source_revision" | "current_revision", string | null>): string {
  const { source_revision, current_revision } = revisions;
  if (source_revision === null) return "the source was not touched; the snapshot names no revision of it";
  if (source_revision === current_revision)
    return `the source was not touched; revision ${source_revision}, that of the snapshot, is current`;
  return `the source was not touched; the snapshot was made with revision ${source_revision}, current is ${current_revision ?? "none"}: roll back to it or push, then build`;
}
