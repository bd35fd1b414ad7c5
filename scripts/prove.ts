// The long proofs: `npm run prove`, about two and a half hours. The same code runs in the tests with smaller numbers. What
// each of them found last stands in docs/internals/proofs.md.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { within } from "../lib/core/async.ts";
import { LIMITS } from "../lib/http/node-server.ts";
import { approvalKillRounds } from "../test/helpers/approval-kills.ts";
import { editAudits } from "../test/helpers/audit-edits.ts";
import { killAuditWriters } from "../test/helpers/audit-kills.ts";
import { badWorkers } from "../test/helpers/bad-workers.ts";
import { caKillRounds } from "../test/helpers/ca-rotations.ts";
import { cutConnections, killClients, MOMENTS } from "../test/helpers/client-kills.ts";
import { contend } from "../test/helpers/contention.ts";
import { fewDescriptors } from "../test/helpers/few-descriptors.ts";
import { fuzz } from "../test/helpers/fuzz.ts";
import { stressHooks } from "../test/helpers/hook-stress.ts";
import { installRelease } from "../test/helpers/installed.ts";
import { killRounds } from "../test/helpers/kill-rounds.ts";
import { startsOverBuckets } from "../test/helpers/many-buckets.ts";
import { proveMutants } from "../test/helpers/mutant-run.ts";
import { SEED, seeded } from "../test/helpers/random.ts";
import { rekeyKillRounds } from "../test/helpers/rekeys.ts";
import { SimulatedDeploys } from "../test/helpers/simulated-deploys.ts";
import { slowClients } from "../test/helpers/slow-clients.ts";
import { sshKillRounds } from "../test/helpers/ssh-kill-rounds.ts";
import { sshKeyKillRounds } from "../test/helpers/ssh-rotations.ts";
import { takeOverBySnapshot } from "../test/helpers/standby.ts";

/** Node looks for slow connections once a second, and waits one more second for a late request. */
const TIMEOUT_SLACK_MS = 5_000;
/** A place in line is kept for 30 s. */
const PLACE_LIMIT_MS = 60_000;
/** What a warm server's memory may differ by, whatever it was asked. */
const MOST_GROWTH_MB = 64;

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const REPORT = path.join(ROOT, "docs/internals/proofs.md");

const PROOFS: Record<string, (folder: string) => Promise<string>> = {
  async lock(folder) {
    const { turns, killed } = await contend(folder, 50, 1000);
    return `50 processes, ${killed} holders killed, ${turns} turns, never two holders`;
  },
  async audit(folder) {
    const [edits, kills] = [10_000, 300];
    const tally = await editAudits(path.join(folder, "edits"), edits, SEED);
    const { killed, confirmed, torn } = await killAuditWriters(path.join(folder, "kills"), kills, SEED);
    const kinds = Object.entries(tally).map(([name, count]) => `${name} ${count}`);
    return `seed ${SEED}: ${edits} random edits of a log (${kinds.join(", ")}): each was found at its first line, and no line behind it was vouched for; ${killed} writers of one chain killed: all ${confirmed} confirmed lines are there, the chain holds, ${torn} lines tell of a write that was cut off`;
  },
  async approvals() {
    const { hits, used, startedLater, without } = await cleanly((t) => approvalKillRounds(t, 200, SEED));
    return `seed ${SEED}: killed the server ${hits} times while people proposed, approved, rejected and started: every proposal whole, no approval counted twice, none of ${used} used ones used again (${without} of them without a run), and ${startedLater} approved ones started after a kill`;
  },
  async buckets() {
    const most = await cleanly((t) => startsOverBuckets(t, 50, 4));
    if (most > 2 * cpus().length) throw new Error(`${most} processes of runs at a time`);
    return `200 starts over 50 buckets all succeeded, with at most ${most} processes at a time`;
  },
  async kill(folder) {
    const hits = await killRounds(folder, 200, SEED);
    return `seed ${SEED}: killed the server ${hits.server} and the run ${hits.run} times while it worked, each followed by a clean deploy`;
  },
  async client() {
    const [rounds, kills] = [100, 120];
    const cuts = await cleanly((t) => cutConnections(t, rounds, SEED));
    const [names, random] = [Object.keys(MOMENTS), seeded(SEED)];
    const drawn = Array.from({ length: kills }, () => names[Math.floor(random() * names.length)] as string);
    await cleanly((t) => killClients(t, drawn, SEED, PLACE_LIMIT_MS));
    return `seed ${SEED}: ${rounds} commands over ${cuts} connections that were cut at random bytes printed their run's Activity byte for byte; ${kills} clients killed (${names.join(", ")}): no run was started twice, nothing was left waiting`;
  },
  async deploys() {
    const count = 3_000;
    const tally = await cleanly(async (t) => SimulatedDeploys.runAll(await SimulatedDeploys.bucket(t), SEED, count));
    return `seeds ${SEED} to ${SEED + count - 1}: ${JSON.stringify(tally)}, every property of a deploy held`;
  },
  async plans() {
    const count = 1_000;
    const { planned } = await cleanly(async (t) => SimulatedDeploys.planAll(await SimulatedDeploys.bucket(t), SEED, count));
    return `seeds ${SEED} to ${SEED + count - 1}: ${count} plans were carried out, ${planned} files and actions as planned, and nothing else where something failed`;
  },
  async ssh_kill() {
    const met = await cleanly((t) => sshKillRounds(t, 200, SEED));
    return `seed ${SEED}: killed ${met.run} runs, ${met.server} servers and ${met.runner} processes on workers during deploys over ssh, each followed by one that converged`;
  },
  async keys() {
    const rekeys = await cleanly((t) => rekeyKillRounds(t, 80, SEED));
    const cas = await cleanly((t) => caKillRounds(t, 60, SEED));
    const ssh = await cleanly((t) => sshKeyKillRounds(t, 60, SEED));
    return `seed ${SEED}: ${rekeys.hits} changes of kv.key killed at work, everything readable after each, ${rekeys.rekeyed} came to their end; ${cas.hits} steps and deploys of rotations of the CA killed, every job trusted every other after each, ${cas.rotated} came to their end; ${ssh.hits} rotations of the ssh key killed, every worker reached after each, ${ssh.rotated} came to their end`;
  },
  async hooks(folder) {
    const { writes, killed, flushes } = await stressHooks(folder, { allocations: 64, rounds: 80, kills: 300 });
    return `64 scripts in parallel, ${killed} kills, ${writes} writes and as many hand-overs, ${flushes} flushes: nothing lost, nobody stuck`;
  },
  async standby(folder) {
    const found: string[] = [];
    for (const size of [
      { workers: 10, jobs: 10 },
      { workers: 100, jobs: 10 },
    ]) {
      const one = await takeOverBySnapshot(path.join(folder, `${size.workers}`), size);
      const [restore, start, deploy] = [one.restoreMs, one.startMs, one.deployMs].map((ms) => `${(ms / 1000).toFixed(1)} s`);
      const sizes = `${one.allocations} allocations, snapshot of ${Math.ceil(one.snapshotBytes / 1024)} KiB`;
      found.push(`${sizes}: restored in ${restore}, serving after ${start} more, nothing to deploy after ${deploy} more`);
    }
    return found.join("; ");
  },
  async mutants(folder) {
    return await proveMutants(ROOT, folder, SEED, 200);
  },
  async fuzz(folder) {
    const { answers, memoryMb } = await fuzz(folder, 10_000, SEED);
    const [before, after] = memoryMb;
    if (after - before > MOST_GROWTH_MB) throw new Error(`seed ${SEED}: memory grew from ${before} to ${after} MB`);
    const told = Object.entries(answers).map(([status, count]) => `${count} x ${status}`);
    return `seed ${SEED}: 10,000 mutated requests: ${told.join(", ")}; memory ${before} MB after a tenth, ${after} MB at the end`;
  },
  async scale() {
    const [count, each, few, files] = [300, 15, 100, 256];
    const right = await cleanly((t) => badWorkers(t, count, each, SEED));
    const room = await cleanly((t) => fewDescriptors(t, few, files));
    return `seed ${SEED}: ${count} workers, ${each} of them bad in each way (refused, silent, hanging after login, read-only, full, slow): all ${right} verdicts of a command and a deploy were right; deploy, command and drift on ${few} workers with few descriptors (${room}): no wrong verdict`;
  },
  async install(folder) {
    const found = await installRelease(folder);
    return `a release made here was installed without a network and with an empty home (${found.join(", ")}): console, second factor, push, hooks in Python and TypeScript, and deploys over ssh worked`;
  },
  async timeouts() {
    const outcome = await within(slowClients(LIMITS), LIMITS.requestMs + 60_000);
    if (!outcome) throw new Error("a client that is too slow was not cut off");
    const { headers, body, write, idle, longPoll } = outcome;
    const cuts = { headers: [headers, LIMITS.headersMs], body: [body, LIMITS.requestMs] };
    const all = { ...cuts, write: [write, LIMITS.writeMs], idle: [idle, LIMITS.idleMs] };
    const told = Object.entries(all).map(([what, [took = 0, limit = 0]]) => {
      if (took < limit || took > limit + TIMEOUT_SLACK_MS)
        throw new Error(`${what}: cut off after ${took} ms instead of ${limit} ms`);
      return `${what} ${(took / 1000).toFixed(1)} s`;
    });
    if (longPoll !== 200) throw new Error(`a long-poll longer than the write timeout ended ${longPoll}`);
    return `slow clients were cut off after their time: ${told.join(", ")}; a long-poll of 135 s was answered`;
  },
};

/** Does what a test would, with its clean-up at the end. */
async function cleanly<T>(work: (t: { after(end: () => unknown): void }) => Promise<T>): Promise<T> {
  const ends: (() => unknown)[] = [];
  try {
    return await work({ after: (end) => ends.push(end) });
  } finally {
    for (const end of ends) await end();
  }
}

/** Puts the line of a proof into the report, in place of what it found before. */
function report(name: string, startedMs: number, found: string): void {
  const minutes = ((Date.now() - startedMs) / 60_000).toFixed(1);
  const machine = `Node ${process.versions.node}, ${cpus().length} cores`;
  const cells = [name, new Date(startedMs).toISOString().slice(0, 10), state(), machine, `${minutes} min`, found];
  const [intro = "", rows = ""] = readFileSync(REPORT, "utf8").split(/(?<=^\|[ |-]+\|\n)/m);
  const kept = rows.split("\n").filter((row) => row !== "" && !row.startsWith(`| ${name} |`));
  writeFileSync(REPORT, `${intro}${[...kept, `| ${cells.join(" | ")} |`].sort().join("\n")}\n`);
}

/** The commit that is proved, and whether there is more than it holds. */
function state(): string {
  const git = (...args: string[]) => spawnSync("git", ["-C", ROOT, ...args], { encoding: "utf8" });
  const isWhole = git("diff", "--quiet", "HEAD", "--", ".", ":!docs/internals/proofs.md").status === 0;
  return `${git("rev-parse", "--short", "HEAD").stdout.trim()}${isWhole ? "" : " and changes"}`;
}

const wanted = process.argv.slice(2).filter((argument) => argument !== "--");
for (const name of wanted.length > 0 ? wanted : Object.keys(PROOFS)) {
  const prove = PROOFS[name];
  if (!prove) {
    console.error(`there is no proof ${JSON.stringify(name)}; there are: ${Object.keys(PROOFS).join(", ")}`);
    process.exit(2);
  }
  const folder = mkdtempSync(path.join(tmpdir(), `ops-prove-${name}-`));
  console.log(`${name}: …`);
  const startedMs = Date.now();
  try {
    const found = await prove(folder);
    console.log(`${name}: proved: ${found}`);
    report(name, startedMs, found);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
