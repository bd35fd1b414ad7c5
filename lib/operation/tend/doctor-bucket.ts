import { lstat } from "node:fs/promises";
import { hostname } from "node:os";
import path from "node:path";
import { certKey, issuedCerts, loadAuthority, utc } from "../../bucket/base/certificates.ts";
import { type Database, schemaVersion } from "../../bucket/base/database.ts";
import type { Layout } from "../../bucket/base/layout.ts";
import { isStale, readLock } from "../../bucket/base/lock.ts";
import type { CatalogWorker } from "../../bucket/base/model.ts";
import { Problems, sentenceOf } from "../../bucket/base/problems.ts";
import { loadKvKey, sealedValues } from "../../bucket/kv/kv-access.ts";
import { listRevisions } from "../../bucket/source/revisions.ts";
import { type OpsConf, readOpsConf } from "../../bucket/workspace/settings.ts";
import { describeSshKey, sshKeyFile } from "../../bucket/workspace/ssh-key.ts";
import { explain, Failure } from "../../core/errors.ts";
import { exists, namesIn } from "../../core/files.ts";
import type { Launcher } from "../../core/spawn.ts";
import { parseJump } from "../../transport/ssh/openssh.ts";
import { KnownHosts, knownHostName } from "../../transport/trust/host-keys.ts";

/** What the doctor works with. */
export interface DoctorContext {
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

/** Collects the findings about one place. */
export class Findings {
  readonly all: Finding[] = [];
  readonly #where: string;

  constructor(where: string) {
    this.#where = where;
  }

  ok(check: string, message: string): void {
    this.#add(check, "ok", message, null);
  }

  warn(check: string, message: string, advice: string): void {
    this.#add(check, "warning", message, advice);
  }

  problem(check: string, message: string, advice: string): void {
    this.#add(check, "problem", message, advice);
  }

  /** Carries out one check; an error that the check throws is a problem. */
  async look(check: string, advice: string, work: () => void | Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.problem(check, explain(error), advice);
    }
  }

  /** Says how much room a disk has. */
  disk(check: string, freeBytes: number, allBytes: number): void {
    const message = `${inGib(freeBytes)} of ${inGib(allBytes)} free`;
    if (freeBytes < LOW_BYTES) this.problem(check, message, "make room: the next write may fail");
    else if (freeBytes < SHORT_BYTES) this.warn(check, message, "make room before it runs out");
    else this.ok(check, message);
  }

  #add(check: string, grade: Finding["grade"], message: string, advice: string | null): void {
    this.all.push({ where: this.#where, check, grade, message, advice });
  }
}

const GIB = 1024 ** 3;
const SHORT_BYTES = GIB;
const LOW_BYTES = GIB / 10;

function inGib(bytes: number): string {
  return `${(bytes / GIB).toFixed(1)} GiB`;
}

const OTHERS = 0o077;
const SHOWN = 5;

/** Looks at the bucket; `db` is its database, or why that cannot be read. */
export async function examineBucket(
  context: DoctorContext,
  workers: readonly CatalogWorker[],
  db: Database | Failure,
): Promise<Finding[]> {
  const { layout } = context;
  const found = new Findings("bucket");
  const problems = new Problems();
  const settings = await readOpsConf(layout, problems);
  for (const one of problems.errors) found.problem("ops.conf", sentenceOf(one), "correct it, then push or build");
  for (const one of problems.warnings) found.warn("ops.conf", sentenceOf(one), "correct it, then push or build");
  if (problems.errors.length + problems.warnings.length === 0) found.ok("ops.conf", "right");
  await found.look("lock", "check the rights of data/", () => lock(found, layout));
  await found.look("journal", "check the rights of .ops/", () => journal(found, layout));
  await found.look("rights", "check who owns the bucket's folder", () => rights(found, layout));
  await found.look("CA", "bring secrets/ca.crt and ca.key back from a snapshot", async () => {
    await loadAuthority(layout);
    found.ok("CA", "its pair can be used");
  });
  if (workers.some(({ connection }) => connection === "ssh")) await ssh(found, context, settings, workers);
  if (db instanceof Failure)
    found.problem("schema", db.message, "run `ops init`; if that does not help, restore a snapshot");
  else await catalog(found, layout, db);
  return found.all;
}

async function lock(found: Findings, layout: Layout): Promise<void> {
  const held = await readLock(layout);
  if (held === undefined) return found.ok("lock", "free");
  if (held === "unreadable")
    return found.warn("lock", `${layout.lock} is not one that ops wrote`, "the next operation removes it");
  const who = `${held.command} (run ${held.run_id}) on ${held.host} since ${held.since}`;
  if (isStale(held)) found.warn("lock", `left by ${who}, which is gone`, "the next operation clears it");
  else if (held.host === hostname()) found.ok("lock", `held by ${who}`);
  else found.warn("lock", `held by ${who}, another host`, `once that host is known to be gone, remove ${layout.lock}`);
}

async function journal(found: Findings, layout: Layout): Promise<void> {
  if (await exists(layout.journal))
    found.warn("journal", "a push or a restore was cut off or is at work", "the next operation finishes it");
  else found.ok("journal", "nothing was cut off");
}

/** Private files that others than the owner may read. */
async function rights(found: Findings, layout: Layout): Promise<void> {
  const open: string[] = [];
  for (const folder of [layout.data, layout.secrets, layout.ssh, layout.tmp, layout.internal, layout.logs])
    if (await isOpen(folder)) open.push(`${path.relative(layout.root, folder)}/`);
  const keys = await namesIn(layout.secrets);
  for (const file of [layout.database, ...keys.map((name) => path.join(layout.secrets, name))])
    if (file !== layout.caCertificate && (await isOpen(file))) open.push(path.relative(layout.root, file));
  if (open.length === 0) found.ok("rights", "keys, database and private folders are the owner's alone");
  else found.problem("rights", `${listed(open)}: others may read it`, `chmod go= ${open.join(" ")}`);
}

async function isOpen(file: string): Promise<boolean> {
  return (await exists(file)) && ((await lstat(file)).mode & OTHERS) !== 0;
}

async function ssh(
  found: Findings,
  { layout, launcher }: DoctorContext,
  settings: OpsConf,
  workers: readonly CatalogWorker[],
): Promise<void> {
  const file = sshKeyFile(layout, settings);
  await found.look("ssh key", "check the rights of secrets/", async () => {
    const { present, type, fingerprint } = await describeSshKey(file, launcher);
    const advice = `put the private key for the workers into ${file} (0600, without a passphrase)`;
    if (!present) found.problem("ssh key", `${file} is missing`, advice);
    else if (type === null) found.problem("ssh key", `${file} is no key that ssh can use`, advice);
    else found.ok("ssh key", `${type} ${fingerprint}`);
  });
  await found.look("host keys", "remove the line, then `ops worker trust`", async () => {
    const known = await KnownHosts.open(layout.knownHosts);
    const names = new Set(
      workers.filter(({ connection }) => connection === "ssh").flatMap((one) => namesOf(one, settings)),
    );
    const unknown = [...names].filter((name) => known.keysOf(name).length === 0);
    if (unknown.length === 0) found.ok("host keys", `${names.size} known`);
    else found.problem("host keys", `not known: ${listed(unknown)}`, "check and record them: `ops worker trust`");
  });
}

/** The names in known_hosts of a worker and of the jump host before it. */
function namesOf(worker: CatalogWorker, settings: OpsConf): string[] {
  const own = knownHostName({ host: worker.host, port: worker.sshPort ?? settings.sshPort });
  if (worker.sshJump === undefined) return [own];
  return [own, knownHostName(parseJump(worker.sshJump, settings.sshUser))];
}

async function catalog(found: Findings, layout: Layout, db: Database): Promise<void> {
  found.ok("schema", `version ${schemaVersion(db)}`);
  await found.look("kv.key", "bring secrets/kv.key back from a snapshot", async () => {
    const { sealed, unreadable } = sealedValues(db, await loadKvKey(layout));
    if (unreadable.length === 0) found.ok("kv.key", `it opens all ${sealed} sealed values`);
    else
      found.problem(
        "kv.key",
        `it does not open ${unreadable.length} of ${sealed} sealed values: ${listed(unreadable)}`,
        "bring the right secrets/kv.key back from a snapshot, or store the values anew",
      );
  });
  certificates(found, db);
  await found.look("build", "bring .ops/revisions.json back", () => build(found, layout, db));
  deployed(found, db);
}

function certificates(found: Findings, db: Database): void {
  const now = Date.now();
  const certs = issuedCerts(db);
  const nameOf = (cert: (typeof certs)[number]) => (cert.job === "" ? "the CA's" : certKey(cert).replaceAll("|", " "));
  const near = certs.filter(({ expiringFrom }) => expiringFrom <= now);
  const over = near.filter(({ notAfter }) => notAfter <= now);
  const told = listed((over.length > 0 ? over : near).map((cert) => `${nameOf(cert)} (${utc(cert.notAfter)})`));
  const advice = "build, then deploy; a CA is replaced as docs/workspace.md says (Certificates)";
  if (over.length > 0) found.problem("certificates", `expired: ${told}`, advice);
  else if (near.length > 0) found.warn("certificates", `near their end: ${told}`, advice);
  else found.ok("certificates", `${certs.length} are valid for a while`);
}

async function build(found: Findings, layout: Layout, db: Database): Promise<void> {
  const built = db.get<{ built_at: string | null }>("SELECT built_at FROM bucket")?.built_at ?? null;
  const current = (await listRevisions(layout)).find((revision) => revision.current);
  if (current && current.build_status !== "succeeded")
    found.warn(
      "build",
      `the build of revision ${current.id} is ${current.build_status}`,
      "see `ops logs`, then push the right one",
    );
  else if (built === null) found.warn("build", "the bucket was never built", "run `ops build`");
  else found.ok("build", `last built at ${built}`);
}

function deployed(found: Findings, db: Database): void {
  const counted = db.get<Record<string, number>>(
    `SELECT (SELECT COUNT(*) FROM hash WHERE unfinished = 1) AS unfinished,
      (SELECT COUNT(*) FROM hash WHERE gate IN ('failed', 'pending')) AS gates,
      (SELECT COUNT(*) FROM allocations WHERE removed = 1) AS removed`,
  );
  const { unfinished = 0, gates = 0, removed = 0 } = counted ?? {};
  if (unfinished + gates > 0)
    found.warn(
      "deploy",
      `${unfinished} allocations were changed half-way, ${gates} have not passed their health check`,
      "deploy again",
    );
  else found.ok("deploy", "nothing is half-way");
  if (removed > 0) found.ok("removed", `${removed} removed allocations wait for \`ops gc\``);
}

function listed(names: readonly string[]): string {
  const more = names.length - SHOWN;
  return names.slice(0, SHOWN).join(", ") + (more > 0 ? ` and ${more} more` : "");
}
