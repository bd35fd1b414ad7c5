import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { readLock } from "../../lib/bucket/base/lock.ts";
import { sleep } from "../../lib/core/async.ts";
import { signalProcess } from "../../lib/core/process.ts";
import { LocalServer, type Run } from "../../scripts/local-server.ts";
import { seeded } from "./random.ts";
import { runningConfiguration, serviceHistory, WORKERS, writeServices } from "./service.ts";
import { SshFleet } from "./ssh-fleet.ts";
import { temporaryFolder, until } from "./temporary.ts";

const VICTIMS = ["run", "server", "runner"] as const;
type Victim = (typeof VICTIMS)[number];

const JOBS = ["base", "app"];
/** A kill that comes after the deploy hits nothing and does not count. */
const MISSES_PER_HIT = 5;

/**
 * Kills the run's process, the server or what runs on a worker with SIGKILL at a random moment of a rolling deploy over
 * ssh, and deploys again; again and again, until `hits` kills have met a deploy at work, as many of each kind. After each, everything must be
 * as if nothing had happened, but that a service may have been started once more. Answers how many kills met which.
 */
export async function sshKillRounds(t: Pick<TestContext, "after">, hits: number, seed: number): Promise<Record<Victim, number>> {
  const random = seeded(seed);
  const met = { run: 0, server: 0, runner: 0 };
  const rig = await Rig.start(t);
  for (let round = 1; met.run + met.server + met.runner < hits; round++) {
    assert.ok(round <= hits * MISSES_PER_HIT, `seed ${seed}: too few hits in ${round} rounds`);
    const [victim] = VICTIMS.toSorted((a, b) => met[a] - met[b]) as [Victim];
    const afterMs = random() * rig.deployMs;
    try {
      const version = `1.0.${round}`;
      await rig.push(version);
      const isHit = await rig.interrupt(victim, afterMs, random);
      if (isHit) met[victim]++;
      await rig.checkConverges(version, isHit ? 1 : 0);
    } catch (error) {
      const what = `seed ${seed}, round ${round}: ${victim} killed ${afterMs.toFixed(0)} ms into a deploy`;
      throw new Error(`${what}: ${(error as Error).message}`, { cause: error });
    }
  }
  return met;
}

class Rig {
  readonly #fleet: SshFleet;
  readonly #folder: string;
  #server: LocalServer;
  #bucket = "";
  /** How long a deploy that changes everything takes on this machine. */
  deployMs = 0;

  private constructor(fleet: SshFleet, folder: string, server: LocalServer) {
    this.#fleet = fleet;
    this.#folder = folder;
    this.#server = server;
  }

  static async start(t: Pick<TestContext, "after">): Promise<Rig> {
    const fleet = await SshFleet.start(t as TestContext, { hosts: WORKERS });
    const folder = temporaryFolder(t as TestContext);
    const rig = new Rig(fleet, folder, await LocalServer.start(path.join(folder, "root")));
    t.after(() => rig.#server.stop("SIGKILL"));
    rig.#bucket = await rig.#server.createBucket();
    await rig.push("0.0.1");
    const key = { private_key: readFileSync(fleet.sshd.clientKey, "utf8") };
    const stored = await rig.#server.call("PUT", `/api/buckets/${rig.#bucket}/secrets/ssh_key`, key);
    assert.equal(stored.status, 200);
    const trusted = await rig.#server.run(rig.#bucket, "workers/trust");
    assert.equal(trusted.status, "succeeded", trusted.error ?? "");
    const begun = performance.now();
    await rig.#server.run(rig.#bucket, "deploy");
    rig.deployMs = performance.now() - begun;
    await rig.checkConverges("0.0.1", 0);
    return rig;
  }

  async push(version: string): Promise<void> {
    const source = path.join(this.#folder, "source");
    const { user: ssh_user, port: ssh_port } = this.#fleet.sshd;
    writeServices(source, this.#roots, {
      version,
      before: "\t@sleep 0.1\n",
      manifest: { max_concurrent_upgrades: 1 },
      worker: { connection: "ssh", ssh_user, ssh_port },
    });
    writeFileSync(path.join(source, "ops.conf"), `ssh_key = "fleet.key"\nuse_sudo = ${process.getuid?.() === 0}\n`);
    const pushed = await this.#server.push(this.#bucket, source);
    assert.equal(pushed.code, 0, `push: ${pushed.stdout}${pushed.stderr}`);
  }

  get #roots(): string {
    return path.join(this.#fleet.folder, "roots");
  }

  /** True when the victim was hit while the deploy was still going on. */
  async interrupt(victim: Victim, afterMs: number, random: () => number): Promise<boolean> {
    const id = await this.#server.startRun(this.#bucket, "deploy");
    const followed = this.#server.follow(this.#bucket, id).catch(() => {});
    await sleep(afterMs);
    const isHit = await this.#kill(victim, random);
    await followed;
    await until("the run to end", async () => (await this.#runs()).every((run) => run.status !== "running"));
    return isHit;
  }

  async #kill(victim: Victim, random: () => number): Promise<boolean> {
    const layout = layoutOf(path.join(this.#folder, "root", this.#bucket));
    // Between two commands nothing is at work there.
    if (victim === "runner") while (this.#fleet.processes.length === 0 && (await readLock(layout)) !== undefined) await sleep(5);
    const lock = await readLock(layout);
    const isAtWork = lock !== undefined && lock !== "unreadable";
    if (victim === "server") {
      await this.#server.stop("SIGKILL");
      this.#server = await LocalServer.start(path.join(this.#folder, "root"));
      return isAtWork;
    }
    const there = this.#fleet.processes;
    const pid = victim === "runner" ? there[Math.floor(random() * there.length)] : isAtWork ? lock.holders[1]?.pid : undefined;
    return pid !== undefined && signalProcess(pid, "SIGKILL");
  }

  async #runs(): Promise<Run[]> {
    return (await this.#server.call<{ items: Run[] }>("GET", `/api/buckets/${this.#bucket}/runs`)).body.items;
  }

  /** The next deploy brings everything to this version, each service once, or once more for each kill. */
  async checkConverges(version: string, kills: number): Promise<void> {
    const deployed = await this.#server.run(this.#bucket, "deploy");
    assert.equal(deployed.status, "succeeded", `deploy: ${deployed.error}`);
    for (const job of JOBS)
      for (const host of WORKERS) {
        const place = [this.#roots, host, this.#bucket] as const;
        const what = `${job} on ${host}`;
        assert.equal(runningConfiguration(...place, job), `${job} ${version} on ${host}\n`, what);
        const folder = path.join(...place, "jobs", job);
        assert.equal(readFileSync(path.join(folder, "static/page.txt"), "utf8"), `page of ${version}\n`, what);
        assert.ok(!existsSync(path.join(...place, ".sync", job)), `nothing of a sync is left of ${what}`);
        const starts = serviceHistory(...place, job).filter((line) => line.endsWith(` ${version}`)).length;
        assert.ok(starts >= 1 && starts <= 1 + kills, `${what} was started ${starts} times`);
      }
    const again = await this.#server.run(this.#bucket, "deploy");
    assert.deepEqual(
      (again.result as { jobs: { outcome: string }[] }).jobs.map((job) => job.outcome),
      ["skipped", "skipped"],
    );
  }
}
