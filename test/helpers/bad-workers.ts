import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import path from "node:path";
import type { TestContext } from "node:test";
import type { RunRecord } from "../../lib/run/record.ts";
import { ops } from "../../scripts/local-server.ts";
import type { PrivateSshd } from "../../scripts/private-sshd.ts";
import { Deploys } from "./deploys.ts";
import { seeded } from "./random.ts";
import { startSshd } from "./sshd.ts";
import { temporaryFolder } from "./temporary.ts";

type Clean = Pick<TestContext, "after">;

/** What has to be told of a worker: the outcome, and what the reason names. */
interface Verdict {
  outcome: string;
  reason?: RegExp;
}

/** How a worker can be bad, and what a command and a deploy have to tell of such a worker. */
const WAYS = {
  /** Nothing listens on the port. */
  refused: both({ outcome: "unreachable", reason: /nothing listens/ }),
  /** The port takes connections and says nothing. */
  silent: both({ outcome: "unreachable", reason: /the login hangs/ }),
  /** The login succeeds, and no command ever runs. */
  hanging: both({ outcome: "failed", reason: /its shell does not start within \d+ s/ }),
  readOnly: { command: { outcome: "ok" }, deploy: { outcome: "failed", reason: /Read-only file system|Permission denied/ } },
  full: { command: { outcome: "ok" }, deploy: { outcome: "failed", reason: /No space left/ } },
  slow: { command: { outcome: "ok" }, deploy: { outcome: "changed" } },
} satisfies Record<string, Record<"command" | "deploy", Verdict>>;
type Way = keyof typeof WAYS;
const GOOD = WAYS.slow;

/** Of a disk that is full with what is written to it first. */
const DISK = "size=64k";
const SLOW_S = 2;
const CONF = `ssh_key = "fleet.key"
use_sudo = false
[ssh_options]
ConnectTimeout = 5
KexAlgorithms = "curve25519-sha256"
`;

function both(verdict: Verdict): Record<"command" | "deploy", Verdict> {
  return { command: verdict, deploy: verdict };
}

/**
 * Makes `each` of `count` workers bad in each way, runs a command on all workers, deploys to all of them, and throws
 * where one verdict is wrong. Answers the number of right verdicts. As root, file systems are mounted on the workers'
 * folders; for other users a read-only folder has no right to write, and no disk is full.
 */
export async function badWorkers(t: Clean, count: number, each: number, seed: number): Promise<number> {
  const hosts = Array.from({ length: count }, (_, index) => `127.0.${2 + Math.floor(index / 250)}.${1 + (index % 250)}`);
  const random = seeded(seed);
  const drawn = hosts.map((host) => ({ host, place: random() })).sort((a, b) => a.place - b.place);
  const isRoot = process.getuid?.() === 0;
  const ways = (Object.keys(WAYS) as Way[]).filter((way) => isRoot || way !== "full");
  const bad = new Map<string, Way>();
  for (const way of ways) for (const { host } of drawn.splice(0, each)) bad.set(host, way);
  const mounted: string[] = [];
  t.after(() => mounted.forEach((folder) => void execFileSync("umount", ["-l", folder])));
  const of = (way: Way) => hosts.filter((host) => bad.get(host) === way);
  const listening = hosts.filter((host) => !["refused", "silent"].includes(bad.get(host) ?? ""));
  const sshd = await startFleet(t, listening, of("hanging"), of("slow"));
  for (const host of of("silent")) await listenSilently(t, host, sshd.port);
  const deploys = await Deploys.make(t, () => ({ connection: "ssh", ssh_user: sshd.user, ssh_port: sshd.port }));
  useKeys(deploys, sshd);
  for (const host of hosts) mkdirSync(path.dirname(deploys.folder(host)), { recursive: true });
  for (const host of [...of("readOnly"), ...of("full")]) {
    const folder = deploys.folder(host);
    mkdirSync(folder, { recursive: true });
    if (!isRoot) chmodSync(folder, 0o500);
    else if (bad.get(host) === "readOnly") mount(folder, "ro");
    else fill(mount(folder, DISK));
    if (isRoot) mounted.push(folder);
  }
  await deploys.build({ web: { manifest: { tolerate: { unreachable: "100%" } } } }, { hosts, conf: CONF });
  const command = await run(deploys, "run_command", "--concurrency", String(count), "--ignore-failure", "echo here");
  check("command", bad, (command.result as { workers: Told[] }).workers);
  const deploy = await run(deploys, "deploy");
  check("deploy", bad, (deploy.result as { jobs: { allocations: Told[] }[] }).jobs[0]?.allocations ?? []);
  return 2 * count;
}

/** What a result tells of a worker. */
interface Told {
  worker: string;
  outcome: string;
  error: string | null;
}

function check(what: "command" | "deploy", bad: ReadonlyMap<string, Way>, told: readonly Told[]): void {
  const wrong = told.flatMap(({ worker, outcome, error }) => {
    const way = bad.get(worker);
    const wanted: Verdict = (way === undefined ? GOOD : WAYS[way])[what];
    if (outcome === wanted.outcome && (wanted.reason?.test(error ?? "") ?? true)) return [];
    return `${what}: ${worker} is ${way ?? "good"}, and it is told: ${outcome}, ${error}`;
  });
  if (wrong.length > 0) throw new Error(`${wrong.length} wrong verdicts: ${wrong.slice(0, 10).join("\n")}`);
}

async function startFleet(t: Clean, hosts: string[], hanging: string[], slow: string[]): Promise<PrivateSshd> {
  const login = path.join(temporaryFolder(t), "login");
  const text = `set -- $SSH_CONNECTION
case $3 in
${hanging.join("|")}) exec cat >/dev/null ;;
${slow.join("|")}) sleep ${SLOW_S} ;;
esac
exec sh -c "$SSH_ORIGINAL_COMMAND"`;
  writeFileSync(login, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return startSshd(t, ["ed25519"], ["MaxStartups 1000", `ForceCommand ${login}`], hosts);
}

/** Takes connections and never says anything. */
async function listenSilently(t: Clean, host: string, port: number): Promise<void> {
  const open = new Set<Socket>();
  const server = createServer((socket) => open.add(socket.on("error", () => {}))).listen(port, host);
  t.after(() => {
    server.close();
    for (const socket of open) socket.destroy();
  });
  await once(server, "listening");
}

/** Gives the bucket the key of the fleet and its host keys, those of the workers that never show one included. */
function useKeys({ bucket: { dir, layout } }: Deploys, sshd: PrivateSshd): void {
  mkdirSync(path.join(dir, "secrets"), { recursive: true, mode: 0o700 });
  copyFileSync(sshd.clientKey, path.join(dir, "secrets", "fleet.key"));
  mkdirSync(path.dirname(layout.knownHosts), { recursive: true, mode: 0o700 });
  writeFileSync(layout.knownHosts, sshd.knownHosts);
}

function mount(folder: string, options: string): string {
  execFileSync("mount", ["-t", "tmpfs", "-o", `${options},mode=0755`, "tmpfs", folder]);
  return folder;
}

function fill(folder: string): void {
  execFileSync("sh", ["-c", 'while echo filled >>"$1/file"; do :; done 2>/dev/null', "sh", folder]);
}

/** Carries out a command line in the bucket's folder and answers the record of its run. */
async function run({ bucket: { dir, layout } }: Deploys, ...args: string[]): Promise<RunRecord> {
  await ops([...args, "--bucket-dir", dir]);
  const [newest = ""] = readdirSync(layout.runs).sort().reverse();
  return JSON.parse(readFileSync(path.join(layout.runs, newest, "server-run.json"), "utf8")) as RunRecord;
}
