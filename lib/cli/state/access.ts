import type { Layout } from "../../bucket/base/layout.ts";
import { heldBy, isStale, readLock } from "../../bucket/base/lock.ts";
import { bucketInfo } from "../../bucket/catalog/info.ts";
import { changeJobSecret, type JobSecret } from "../../bucket/catalog/job-secret.ts";
import { catalogView, type ViewName, type ViewQuery, viewSources } from "../../bucket/catalog/views.ts";
import type { HealthRecord } from "../../bucket/health/health-history.ts";
import { KvStore } from "../../bucket/kv/kv.ts";
import { isPrivateKey, isSealed, loadKvKey } from "../../bucket/kv/kv-access.ts";
import { listRevisions } from "../../bucket/source/revisions.ts";
import { diffRevisions } from "../../bucket/source/source-view.ts";
import { loadOpsConf } from "../../bucket/workspace/settings.ts";
import { describeSshKey, removeSshKey, sshKeyFile, storeSshKey } from "../../bucket/workspace/ssh-key.ts";
import { idNamed, uuidV7 } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { bootId, isAlive, signalProcess } from "../../core/process.ts";
import { Launcher } from "../../core/spawn.ts";
import { readActivity } from "../../run/activity.ts";
import type { LogLines } from "../../run/log/log-view.ts";
import type { Progress } from "../../run/progress.ts";
import type { RunKind, RunStatus } from "../../run/protocol.ts";
import { readRecord, runNamed, runNotFound } from "../../run/record.ts";
import { takeBucket } from "../../run/recovery.ts";
import { openBucket } from "../../server/reading.ts";
import type { Reads } from "../../server/reads.ts";
import type { ShownRun } from "../../server/run-list.ts";
import { withoutServerVariables } from "../base/flags.ts";
import type { Cell } from "../base/terminal.ts";
import { initialisedBucket } from "../bucket/bucket.ts";
import type { LogPiece } from "../bucket/output.ts";

/** A run with how far it is; null where that is not known. */
export type RunDetail = ShownRun & { progress: Progress | null };
/** Which runs are wanted. */
export interface RunsWanted {
  kind?: RunKind | undefined;
  status?: RunStatus | undefined;
  limit: number;
}
/** Which lines of a log are wanted: the last ones, or those behind `next` of an earlier answer. */
export type LinesWanted = { limit: number } & ({ tail: true } | { after: string | undefined });
/** A bucket at a glance. */
export type Summary = Awaited<ReturnType<Reads["summary"]>>;
/** A start that waits until the bucket is free. */
export interface WaitingStart {
  position: number;
  kind: string;
  by: { name?: string | undefined; address: string };
  since: string;
}
/** What differs between two revisions. */
export type RevisionDiff = Awaited<ReturnType<typeof diffRevisions>> & { revision_id: string; against: string };

/** What commands ask of a bucket here or on a server, with the answers of the API. */
export type BucketAccess = Awaited<ReturnType<typeof accessHere>>;

const POLL_MS = 5_000;
/** The record of a run that ends is written a moment after the lock is released. */
const SETTLED_MS = 3_000;

/** Loaded when one is asked for, so that the other commands start fast. */
const reads = async (): Promise<Reads> => (await import("../../server/reads.ts")).READS;

/** A bucket here. Throws `bucket_not_initialized`. */
export async function accessHere(dir: string) {
  const layout = await initialisedBucket(dir);
  const launcher = new Launcher(withoutServerVariables(process.env));
  const keyFile = async () => sshKeyFile(layout, (await loadOpsConf(layout)).settings);
  return {
    ...catalogHere(layout),
    /** How a person calls the bucket. */
    place: async () => layout.root,
    runNamed: (given: string) => runNamed(layout, given),
    async revisionNamed(given: string) {
      const ids = (await listRevisions(layout)).map(({ id }) => id);
      return idNamed(given, ids, "revision");
    },
    /** Newest first. */
    runs: async (wanted: RunsWanted): Promise<ShownRun[]> => (await (await reads()).runs(layout, wanted)).items,
    run: async (id: string) => (await (await reads()).run(layout, { id, progress: null })) as RunDetail,
    /** The next text of a run's Activity from a byte on; waits for it for a while. */
    log: (id: string, after: number, signal: AbortSignal) => nextText(layout, id, after, signal),
    lines: async (id: string, wanted: LinesWanted): Promise<LogLines> =>
      await (await reads()).lines(layout, { id, query: { tail: false, ...wanted, errors: false, matchCase: false } }),
    /** Asks a run to stop. Throws `run_not_active`. */
    cancel: (id: string) => interrupt(layout, id),
    revisions: () => listRevisions(layout),
    async diff(id: string, against: string | undefined): Promise<RevisionDiff> {
      const before = against ?? (await listRevisions(layout)).find(({ current }) => current)?.id ?? id;
      return { revision_id: id, against: before, ...(await diffRevisions(layout, before, id)) };
    },
    summary: async (): Promise<Summary> => await (await reads()).summary(layout, undefined),
    /** How everything is and was, or only what is of a job. */
    health: async (job: string | undefined): Promise<HealthRecord[]> =>
      (await (await reads()).health(layout, { job, offset: 0, limit: Number.MAX_SAFE_INTEGER })).items,
    /** The starts in line, and a sentence about what else keeps the bucket busy. */
    line: async () => ({
      waiting: [] as WaitingStart[],
      holder: ((await heldBy(layout)) as { holder?: string } | undefined)?.holder ?? null,
    }),
    sshKey: async () => describeSshKey(await keyFile(), launcher),
    async storeSshKey(privateKey: string) {
      const file = await keyFile();
      await using _ = await takeBucket(layout, uuidV7(), "ssh-key set");
      await storeSshKey(file, privateKey, launcher);
      return await describeSshKey(file, launcher);
    },
    async removeSshKey() {
      const file = await keyFile();
      await using _ = await takeBucket(layout, uuidV7(), "ssh-key delete");
      await removeSshKey(file);
    },
    /** Newest first. */
    async snapshots() {
      const { listSnapshots } = await import("../../bucket/snapshots/snapshots.ts");
      return (await listSnapshots(layout, { limit: Number.POSITIVE_INFINITY })).items;
    },
    /** Removes the snapshot of this name, or of its beginning or end, and answers its name. */
    async removeSnapshot(given: string) {
      const { deleteSnapshot } = await import("../../bucket/snapshots/snapshots.ts");
      const { snapshotNamed } = await import("../bucket/snapshots.ts");
      const name = await snapshotNamed(layout, given);
      await using _ = await takeBucket(layout, uuidV7(), "snapshot delete");
      await deleteSnapshot(layout, name);
      return name;
    },
  };
}

/** Throws `failed` for a run that goes on according to its record, while no process carries it out. */
async function nextText(layout: Layout, id: string, after: number, signal: AbortSignal): Promise<LogPiece> {
  const isHeld = (await holderOf(layout, id)) !== undefined;
  const chunk = await readActivity(layout, id, { after, timeoutMs: isHeld ? POLL_MS : SETTLED_MS, signal });
  if (isHeld || chunk.data !== "" || chunk.done || signal.aborted) return chunk;
  throw new Failure("failed", `run ${id} was killed: no process carries it out; the next run in the bucket settles it`);
}

/** The lock of a bucket while this run holds it and one of its processes lives. */
async function holderOf(layout: Layout, id: string) {
  const lock = await readLock(layout);
  return lock === undefined || lock === "unreadable" || lock.run_id !== id || isStale(lock) ? undefined : lock;
}

/** Sends INT to the command that carries out a run: that very process, or none. */
async function interrupt(layout: Layout, id: string): Promise<void> {
  const record = readRecord(layout, id);
  if (!record) throw runNotFound(id);
  const refused = (why: string) => new Failure("run_not_active", `Cannot cancel run ${id}: ${why}`);
  if (record.status !== "running") throw new Failure("run_not_active", `run ${id} has already ended: ${record.status}`);
  if (record.origin !== "cli") throw refused("a server carries it out: give --server with the server's address, and --bucket");
  const lock = await holderOf(layout, id);
  const [owner] = lock?.holders ?? [];
  if (!lock || !owner) throw refused("no process carries it out any more; the next run in the bucket settles it");
  if (lock.boot_id !== bootId()) throw refused(`it runs on ${lock.host}: cancel it there`);
  if (!isAlive(owner) || !signalProcess(owner.pid, "SIGINT")) throw refused("its process has just ended");
}

/** An object of an answer, by the names of its columns. */
export type Cells = Readonly<Record<string, Cell>>;

/** What commands ask of the catalog and the key-value store of a bucket here or on a server. */
export type CatalogAccess = ReturnType<typeof catalogHere>;

const ALL_ROWS = 10_000_000;

/** The catalog and the key-value store of a bucket here. */
function catalogHere(layout: Layout) {
  return {
    /** What the bucket is and how much is in it. */
    async info(): Promise<Cells> {
      using db = await openBucket(layout);
      return { ...bucketInfo(db) };
    },
    /** Rows of the catalog, and the names of their columns in order. */
    async view(name: ViewName, query: ViewQuery): Promise<{ columns: readonly string[]; items: readonly Cells[] }> {
      using db = await openBucket(layout);
      return catalogView(db, name, query, { limit: ALL_ROWS, ...(await viewSources(layout, name)) });
    },
    /** A key with its value; that of a secret only where it is to be revealed, that of a private key never. */
    async key(namespace: string, key: string, isRevealed: boolean): Promise<Cells | undefined> {
      using db = await openBucket(layout);
      const kv = new KvStore(db, await loadKvKey(layout));
      const entry = kv.entry(namespace, key);
      if (!entry) return undefined;
      const isHidden = isPrivateKey(namespace, key) || (isSealed(namespace, key) && !isRevealed);
      const value = isHidden ? "[encrypted]" : (kv.get(namespace, key) ?? "");
      const { version, ttl, createdMs } = entry;
      return { namespace, key, value, version, ttl, created_date: new Date(createdMs).toISOString() };
    },
    /** Stores a secret, or removes one without a value. */
    async changeSecret(secret: JobSecret) {
      await using _ = await takeBucket(layout, uuidV7(), secret.value === undefined ? "kv delete-secret" : "kv set-secret");
      await changeJobSecret(layout, secret);
    },
  };
}
