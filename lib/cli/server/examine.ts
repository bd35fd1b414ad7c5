import { X509Certificate } from "node:crypto";
import { lstat, readFile, statfs } from "node:fs/promises";
import path from "node:path";
import { readTotpSecret, STRONG_SECRET_BYTES } from "../../auth/totp.ts";
import { schemaFailure } from "../../bucket/base/database.ts";
import type { Layout } from "../../bucket/base/layout.ts";
import { isOwned, readLock } from "../../bucket/base/lock.ts";
import { SCHEMA_VERSION } from "../../bucket/base/schema.ts";
import { listSnapshots } from "../../bucket/snapshots/snapshots.ts";
import { bucketIds, findBucket, refuseUsedRoot, serverLock } from "../../bucket/source/root.ts";
import { explain, throwIfCancelled } from "../../core/errors.ts";
import { exists, OF_OTHERS } from "../../core/files.ts";
import { limitOf } from "../../core/process.ts";
import type { Argv, CommandOutcome, Launcher } from "../../core/spawn.ts";
import { newestRun } from "../../operation/tend/doctor.ts";
import {
  checksOf,
  type Finding,
  type Judgement,
  judgeDisk,
  judgeRights,
  ok,
  problem,
  warning,
} from "../../operation/tend/doctor-bucket.ts";
import { hookUserOf } from "../../run/hook-user.ts";
import { readTlsPair, readToken, tokenWarning } from "../../server/config.ts";
import { SERVICE, type ServiceSettings } from "./unit.ts";

const ASK_LIMIT_MS = 10_000;
const ONE_DAY_MS = 24 * 3_600_000;
/** Fewer days of validity left, or a newest snapshot of more days, is a warning. */
const CERTIFICATE_DAYS = 21;
const SNAPSHOT_DAYS = 7;
/** 128 bits in base64. */
const STRONG_TOKEN = 22;
/** The limits that docs/scale.md asks for. */
const ENOUGH = { "open files": 8_192, processes: 4_096 } as const;

/** The programs of a server's host: how each tells its version, and what does not work without it. */
const PROGRAMS: readonly [name: string, flag: string, misses: string | undefined][] = [
  ["bash", "--version", undefined],
  ["ssh", "-V", "workers over ssh need it"],
  ["python3", "--version", "hooks in Python need it"],
  ["make", "--version", "local workers need it"],
];
/** Of a host that has the service. */
const NOTIFY: (typeof PROGRAMS)[number] = ["systemd-notify", "--version", "the start of the service needs it"];

/**
 * Looks at the root of a server and at what its service is told, and says what to do about each finding (docs/operate.md,
 * Doctor). Reads only. Throws only `cancelled`.
 */
export async function examineServer(
  root: string,
  settings: ServiceSettings,
  launcher: Launcher,
  signal?: AbortSignal,
): Promise<Finding[]> {
  const check = checksOf("server");
  const {
    "token-file": token,
    "tls-cert": certFile,
    "tls-key": keyFile,
    "totp-secret-file": totp,
    "hook-user": hookUser,
  } = settings;
  const server = await serverOf(root);
  const ids = await bucketIds(root).catch(() => []);
  const layouts = ids.map((id) => findBucket(root, id).layout);
  const correct = "name the right file, or correct it";
  const programs = (await exists(SERVICE.unit)) ? [...PROGRAMS, NOTIFY] : PROGRAMS;
  const ask = (argv: Argv) => launcher.run(argv, { timeoutMs: ASK_LIMIT_MS, signal });
  const findings = [
    await check("root", "name the root of a server with --root", () => judgeRoot(root)),
    await check("running", "", () => ok(server === undefined ? "no server has the root" : `process ${server} has the root`)),
    ...(token === undefined ? [] : [await check("token", correct, async () => judgeToken(await readToken(token)))]),
    ...(certFile === undefined || keyFile === undefined
      ? []
      : [await check("certificate", correct, () => judgeCertificate({ certFile, keyFile }))]),
    ...(hookUser === undefined
      ? []
      : [
          await check("hook user", correct, async () =>
            ok(`${(await hookUserOf(hookUser, [root])).name}: scripts can run as it`),
          ),
        ]),
    ...(totp === undefined ? [] : [await check("TOTP", correct, async () => judgeSecret(await readTotpSecret(totp)))]),
    ...(await Promise.all((["open files", "processes"] as const).map((what) => check(what, "", () => judgeLimit(what, server))))),
    await check("disk", "check that the root can be read", async () => {
      const { bavail, blocks, bsize } = await statfs(root);
      return judgeDisk(bavail * bsize, blocks * bsize);
    }),
    await check("node", "", () => ok(`Node ${process.versions.node}`)),
    ...(await Promise.all(programs.map(([name, flag, misses]) => check(name, "", () => judgeTool(ask, [name, flag], misses))))),
    await check("clock", "check the rights of the buckets", () => judgeClock(ask, layouts)),
    ...(await Promise.all(layouts.map((layout) => examineOneBucket(layout)))).flat(),
  ];
  throwIfCancelled(signal);
  return findings;
}

/** The process that serves a root. */
async function serverOf(root: string): Promise<number | undefined> {
  const lock = await readLock(serverLock(root)).catch(() => undefined);
  return lock !== undefined && lock !== "unreadable" && isOwned(lock) ? lock.holders[0]?.pid : undefined;
}

async function judgeRoot(root: string): Promise<Judgement> {
  await refuseUsedRoot(root);
  const { mode } = await lstat(root);
  if ((mode & OF_OTHERS) !== 0) return warning(`${root}: others may look into it`, `chmod go= ${root}`);
  return ok(`${root} is its owner's alone`);
}

function judgeToken(token: string): Judgement {
  const advice = "make one with `openssl rand -base64 32`, then start the server again";
  if (tokenWarning({ token }) !== undefined) return problem(`its ${token.length} characters can be guessed`, advice);
  const isWeak = token.length < STRONG_TOKEN || new Set(token).size < STRONG_TOKEN / 2;
  return isWeak ? warning(`its ${token.length} characters have less than 128 bits`, advice) : ok(`${token.length} characters`);
}

function judgeSecret(secret: Buffer): Judgement {
  const bits = `${secret.length * 8} bits`;
  return secret.length < STRONG_SECRET_BYTES
    ? warning(bits, "remove the file and make a longer one with `ops server totp-enroll`")
    : ok(bits);
}

async function judgeCertificate(files: { certFile: string; keyFile: string }): Promise<Judgement> {
  await readTlsPair(files);
  const { validFromDate, validToDate } = new X509Certificate(await readFile(files.certFile));
  const days = Math.floor((validToDate.getTime() - Date.now()) / ONE_DAY_MS);
  const until = `valid until ${validToDate.toISOString()}`;
  const advice = "renew it, then send the server a HUP (`systemctl reload ops`)";
  if (validFromDate.getTime() > Date.now())
    return problem(`not valid before ${validFromDate.toISOString()}`, "set the clock right");
  if (days < 0) return problem(`it ended at ${validToDate.toISOString()}`, advice);
  return days < CERTIFICATE_DAYS ? warning(until, advice) : ok(`${until}; the key belongs to it`);
}

function judgeLimit(what: keyof typeof ENOUGH, server: number | undefined): Judgement {
  const limit = limitOf(what, server);
  const message = `at most ${limit}, of ${server === undefined ? "this process" : `process ${server}`}`;
  const setting = what === "processes" ? "LimitNPROC=, ulimit -u" : "LimitNOFILE=65536, ulimit -Hn";
  return limit < ENOUGH[what] ? warning(message, `raise the limit of the server (${setting})`) : ok(message);
}

async function judgeTool(ask: Ask, argv: [string, string], misses: string | undefined): Promise<Judgement> {
  const install = "install it, or set PATH right";
  const told = await ask(argv).catch(() => undefined);
  if (told && isDone(told)) return ok((told.stdout || told.stderr).split("\n")[0]?.trim() ?? "");
  const what = told ? `\`${argv.join(" ")}\` does not work` : "not installed";
  return misses === undefined ? problem(what, install) : warning(`${what}; ${misses}`, install);
}

/** Runs a command within {@link ASK_LIMIT_MS}. */
type Ask = (argv: Argv) => Promise<CommandOutcome>;

function isDone({ reason, exitCode }: CommandOutcome): boolean {
  return reason === "exit" && exitCode === 0;
}

/** A clock that is behind is found by what was written before; whether it is set from the network, systemd knows. */
async function judgeClock(ask: Ask, layouts: readonly Layout[]): Promise<Judgement> {
  const newest = Math.max(0, ...(await Promise.all(layouts.map(newestRun))));
  const ahead = Math.ceil((newest - Date.now()) / 1000);
  const advice = "set the clock of this host right";
  if (ahead > 10) return problem(`${ahead} s behind the start of the newest run`, advice);
  const told = await ask(["timedatectl", "show", "--property=NTPSynchronized", "--value"]).catch(() => undefined);
  const synchronised = told && isDone(told) ? told.stdout.trim() : undefined;
  const now = new Date().toISOString();
  if (synchronised === "no") return warning(`${now}; not synchronised`, "start a time service, such as systemd-timesyncd");
  return ok(synchronised === "yes" ? `${now}; synchronised` : now);
}

async function examineOneBucket(layout: Layout): Promise<Finding[]> {
  const check = checksOf(`bucket ${path.basename(layout.root)}`);
  return [
    await check("rights", "check who owns the bucket's folder", () => judgeRights(layout)),
    await check("owner", "", () => judgeOwner(layout)),
    await check("schema", "", () => judgeSchema(layout)),
    await check("snapshot", "check the rights of .ops/snapshots/", () => judgeSnapshots(layout)),
  ];
}

async function judgeOwner({ root, database }: Layout): Promise<Judgement> {
  const above = path.dirname(root);
  const owners = await Promise.all([above, root, database].map(async (place) => (await lstat(place)).uid));
  if (new Set(owners).size === 1) return ok("that of the root");
  return problem("not that of the root", `stop the server, then chown -R --reference=${above} ${root}`);
}

function judgeSchema({ database }: Layout): Judgement {
  const failure = schemaFailure(database);
  if (!failure) return ok(`version ${SCHEMA_VERSION}`);
  const advice = "see docs/install.md (Update)";
  return failure.code === "schema_upgrade_required" ? warning(explain(failure), advice) : problem(explain(failure), advice);
}

async function judgeSnapshots(layout: Layout): Promise<Judgement> {
  const [newest] = (await listSnapshots(layout, { limit: 1 })).items;
  const advice = "take one with `ops snapshot create` or POST …/snapshots, and copy it to another host";
  if (!newest) return warning("there is none", advice);
  const days = Math.floor((Date.now() - Date.parse(newest.created_at)) / ONE_DAY_MS);
  if (newest.error !== null) return problem(newest.error, advice);
  return days >= SNAPSHOT_DAYS ? warning(`the newest is ${days} days old`, advice) : ok(`the newest is of ${newest.created_at}`);
}
