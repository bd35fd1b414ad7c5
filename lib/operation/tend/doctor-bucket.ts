import { lstat } from "node:fs/promises";
import { hostname } from "node:os";
import path from "node:path";
import { certKey, issuedCerts, loadAuthority, utc } from "../../bucket/base/certificates.ts";
import { type Database, largeContents, lostContents, schemaVersion } from "../../bucket/base/database.ts";
import type { Layout } from "../../bucket/base/layout.ts";
import { isStale, readLock } from "../../bucket/base/lock.ts";
import type { CatalogWorker } from "../../bucket/base/model.ts";
import { Problems, sentenceOf } from "../../bucket/base/problems.ts";
import { begunKeyChanges, keyChanges } from "../../bucket/keys/key-changes.ts";
import { loadKvKey, sealedValues } from "../../bucket/kv/kv-access.ts";
import { listRevisions } from "../../bucket/source/revisions.ts";
import { type OpsConf, readOpsConf } from "../../bucket/workspace/settings.ts";
import { describeSshKey, sshKeyFile } from "../../bucket/workspace/ssh-key.ts";
import { explain, Failure } from "../../core/errors.ts";
import { exists, namesIn, OF_OTHERS } from "../../core/files.ts";
import { firstOf } from "../../core/plain-text.ts";
import type { Launcher } from "../../core/spawn.ts";
import type { ServerMeans } from "../../run/protocol.ts";
import { parseJump } from "../../transport/ssh/openssh.ts";
import { knownHostName, openKnownHosts } from "../../transport/trust/host-keys.ts";

/** What the doctor works with. */
export interface DoctorContext extends ServerMeans {
  layout: Layout;
  launcher: Launcher;
  signal: AbortSignal;
}

/** From the best to the worst. */
export const FINDING_GRADES = ["ok", "warning", "problem"] as const;

/** One thing that was looked at. */
export interface Finding {
  /** `host`, `bucket` or `worker <host>`. */
  where: string;
  /** What was looked at, in one or two words. */
  check: string;
  grade: (typeof FINDING_GRADES)[number];
  message: string;
  /** What to do about it; null where there is nothing to do. */
  advice: string | null;
}

/** The answer of one check. */
export type Judgement = Omit<Finding, "where" | "check">;

/** All is well. */
export function ok(message: string): Judgement {
  return { grade: "ok", message, advice: null };
}

/** Something may go wrong later. */
export function warning(message: string, advice: string): Judgement {
  return { grade: "warning", message, advice };
}

/** Something goes wrong now. */
export function problem(message: string, advice: string): Judgement {
  return { grade: "problem", message, advice };
}

/** How checks of one place are made: `check` names a check; an error of the check itself is a problem with `advice`. */
export function checksOf(where: string) {
  return async (check: string, advice: string, judge: () => Judgement | Promise<Judgement>): Promise<Finding> => {
    try {
      return { where, check, ...(await judge()) };
    } catch (error) {
      return { where, check, ...problem(explain(error), advice) };
    }
  };
}

const GIB = 1024 ** 3;
const SHORT_BYTES = GIB;
const LOW_BYTES = GIB / 10;

/** How much room a disk has. */
export function judgeDisk(freeBytes: number, allBytes: number): Judgement {
  const [free, all] = [freeBytes, allBytes].map((bytes) => `${(bytes / GIB).toFixed(1)} GiB`);
  const message = `${free} of ${all} free`;
  if (freeBytes < LOW_BYTES) return problem(message, "make room: the next write may fail");
  return freeBytes < SHORT_BYTES ? warning(message, "make room before it runs out") : ok(message);
}

const MOST_LISTED = 5;

/** Looks at the bucket. `db` is its database, or the reason why the database cannot be read. */
export async function examineBucket(
  { layout, launcher }: DoctorContext,
  workers: readonly CatalogWorker[],
  db: Database | Failure,
): Promise<Finding[]> {
  const check = checksOf("bucket");
  const problems = new Problems();
  const settings = await readOpsConf(layout, problems);
  const overSsh = workers.filter(({ connection }) => connection === "ssh");
  const found = [
    ...judgeSettings(problems).map((one) => ({ where: "bucket", check: "ops.conf", ...one })),
    await check("lock", "check the rights of data/", () => judgeLock(layout)),
    await check("journal", "check the rights of .ops/", () => judgeJournal(layout)),
    await check("rights", "check who owns the bucket's folder", () => judgeRights(layout)),
    await check("CA", "bring secrets/ca.crt and ca.key back from a snapshot", async () => {
      await loadAuthority(layout);
      return ok("its pair can be used");
    }),
  ];
  if (overSsh.length > 0) {
    const keyFile = sshKeyFile(layout, settings);
    found.push(
      await check("ssh key", "check the rights of secrets/", () => judgeSshKey(keyFile, launcher)),
      await check("host keys", "remove the line, then `ops worker trust`", () => judgeHosts(layout, settings, overSsh)),
    );
  }
  const restore = "run `ops init`; if that does not help, restore a snapshot";
  if (db instanceof Failure) return [...found, { where: "bucket", check: "schema", ...problem(db.message, restore) }];
  return [
    ...found,
    await check("schema", restore, () => ok(`version ${schemaVersion(db)}`)),
    await check("contents", restore, () => judgeContents(db)),
    await check("kv.key", "bring secrets/kv.key back from a snapshot", () => judgeSealed(layout, db)),
    ...(await keyChangeFindings(layout, db)),
    await check("certificates", "build again", () => judgeCertificates(db)),
    await check("build", "bring .ops/revisions.json back", () => judgeBuild(layout, db)),
    await check("deploy", restore, () => judgeDeployed(db)),
    await check("removed", restore, () => judgeRemoved(db)),
  ];
}

function judgeSettings({ errors, warnings }: Problems): Judgement[] {
  const advice = "correct it, then push or build";
  const wrong = errors.map((one) => problem(sentenceOf(one), advice));
  const doubtful = warnings.map((one) => warning(sentenceOf(one), advice));
  return wrong.length + doubtful.length === 0 ? [ok("right")] : [...wrong, ...doubtful];
}

async function judgeLock(layout: Layout): Promise<Judgement> {
  const held = await readLock(layout);
  if (held === undefined) return ok("free");
  if (held === "unreadable") return warning(`${layout.lock} is not one that ops wrote`, "the next operation removes it");
  const who = `${held.command} (run ${held.run_id}) on ${held.host} since ${held.since}`;
  if (isStale(held)) return warning(`left by ${who}, which is gone`, "the next operation clears it");
  if (held.host === hostname()) return ok(`held by ${who}`);
  return warning(`held by ${who}, another host`, `once that host is known to be gone, remove ${layout.lock}`);
}

async function judgeJournal(layout: Layout): Promise<Judgement> {
  if (!(await exists(layout.journal))) return ok("nothing was cut off");
  return warning("a push or a restore was cut off or is at work", "the next operation finishes it");
}

/** Whether others may read what is for the owner alone. */
export async function judgeRights(layout: Layout): Promise<Judgement> {
  const open: string[] = [];
  for (const folder of [layout.data, layout.secrets, layout.ssh, layout.tmp, layout.internal, layout.logs])
    if (await isOpen(folder)) open.push(`${path.relative(layout.root, folder)}/`);
  const keys = await namesIn(layout.secrets);
  for (const file of [layout.database, ...keys.map((name) => path.join(layout.secrets, name))])
    if (file !== layout.caCertificate && (await isOpen(file))) open.push(path.relative(layout.root, file));
  if (open.length === 0) return ok("keys, database and private folders are the owner's alone");
  return problem(`${firstOf(open, MOST_LISTED)}: others may read it`, `chmod go= ${open.join(" ")}`);
}

async function isOpen(file: string): Promise<boolean> {
  return (await exists(file)) && ((await lstat(file)).mode & OF_OTHERS) !== 0;
}

async function judgeSshKey(file: string, launcher: Launcher): Promise<Judgement> {
  const { present, type, fingerprint } = await describeSshKey(file, launcher);
  const advice = `put the private key for the workers into ${file} (0600, without a passphrase)`;
  if (!present) return problem(`${file} is missing`, advice);
  return type === null ? problem(`${file} is no key that ssh can use`, advice) : ok(`${type} ${fingerprint}`);
}

async function judgeHosts(layout: Layout, settings: OpsConf, workers: readonly CatalogWorker[]): Promise<Judgement> {
  const known = await openKnownHosts(layout.knownHosts);
  const names = new Set(workers.flatMap((one) => hostNames(one, settings)));
  const unknown = [...names].filter((name) => known.keysOf(name).length === 0);
  if (unknown.length === 0) return ok(`${names.size} known`);
  return problem(`not known: ${firstOf(unknown, MOST_LISTED)}`, "check and record them: `ops worker trust`");
}

/** The names in known_hosts of a worker and of the jump host before it. */
function hostNames(worker: CatalogWorker, settings: OpsConf): string[] {
  const own = knownHostName({ host: worker.host, port: worker.sshPort ?? settings.sshPort });
  if (worker.sshJump === undefined) return [own];
  return [own, knownHostName(parseJump(worker.sshJump, settings.sshUser))];
}

async function judgeSealed(layout: Layout, db: Database): Promise<Judgement> {
  const { sealed, unreadable } = sealedValues(db, await loadKvKey(layout));
  if (unreadable.length === 0) return ok(`it opens all ${sealed} sealed values`);
  const message = `it does not open ${unreadable.length} of ${sealed} sealed values: ${firstOf(unreadable, MOST_LISTED)}`;
  return problem(message, "bring the right secrets/kv.key back from a snapshot, or store the values anew");
}

/** A finding for each change of a key that has not ended. */
async function keyChangeFindings(layout: Layout, db: Database): Promise<Finding[]> {
  return keyChanges(db, await begunKeyChanges(layout)).map(({ since, left, next }) => {
    return { where: "bucket", check: "key change", ...warning(`${left}, since ${since}`, `go on with \`${next}\``) };
  });
}

function judgeContents(db: Database): Judgement {
  const lost = lostContents(db);
  if (lost.length === 0) return ok(`${largeContents(db).size} large files lie beside the database`);
  const advice = "build again; if that does not help, restore a snapshot";
  return problem(`missing in data/contents/: ${firstOf(lost, MOST_LISTED)}`, advice);
}

function judgeCertificates(db: Database): Judgement {
  const now = Date.now();
  const certs = issuedCerts(db);
  const nameOf = (cert: (typeof certs)[number]) => (cert.job === "" ? "the CA's" : certKey(cert).replaceAll("|", " "));
  const near = certs.filter(({ expiringFrom }) => expiringFrom <= now);
  const over = near.filter(({ notAfter }) => notAfter <= now);
  const ends = (over.length > 0 ? over : near).map((cert) => `${nameOf(cert)} (${utc(cert.notAfter)})`);
  const told = firstOf(ends, MOST_LISTED);
  const advice = "build, then deploy; a CA is replaced by `ops ca rotate`";
  if (over.length > 0) return problem(`expired: ${told}`, advice);
  return near.length > 0 ? warning(`near their end: ${told}`, advice) : ok(`valid for a while: ${certs.length}`);
}

async function judgeBuild(layout: Layout, db: Database): Promise<Judgement> {
  const built = db.get<{ built_at: string | null }>("SELECT built_at FROM bucket")?.built_at ?? null;
  const { id, build_status = "succeeded" } = (await listRevisions(layout)).find(({ current }) => current) ?? {};
  if (build_status !== "succeeded")
    return warning(`the build of revision ${id} is ${build_status}`, "see `ops logs`, then push the right one");
  return built === null ? warning("the bucket was never built", "run `ops build`") : ok(`last built at ${built}`);
}

function judgeDeployed(db: Database): Judgement {
  const sql = `SELECT COUNT(*) FILTER (WHERE unfinished = 1) AS unfinished,
    COUNT(*) FILTER (WHERE gate IN ('failed', 'pending')) AS gates FROM hash`;
  const { unfinished = 0, gates = 0 } = db.get<Record<string, number>>(sql) ?? {};
  const message = `${unfinished} allocations were changed half-way, ${gates} have not passed their health check`;
  return unfinished + gates > 0 ? warning(message, "deploy again") : ok("nothing is half-way");
}

function judgeRemoved(db: Database): Judgement {
  const { removed = 0 } = db.get<{ removed: number }>("SELECT COUNT(*) AS removed FROM allocations WHERE removed = 1") ?? {};
  return ok(removed === 0 ? "none waits for `ops gc`" : `${removed} removed allocations wait for \`ops gc\``);
}
