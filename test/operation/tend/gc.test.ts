import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { catalogAllocations, catalogWorkers } from "../../../lib/bucket/catalog/catalog.ts";
import { sleep } from "../../../lib/core/async.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { bootId, identify, signalProcess } from "../../../lib/core/process.ts";
import { selfArguments } from "../../../lib/core/self.ts";
import { Launcher } from "../../../lib/core/spawn.ts";
import { collectGarbage } from "../../../lib/operation/tend/gc.ts";
import { Deploys, HOSTS, type JobsSpec } from "../../helpers/deploys.ts";
import { seeded } from "../../helpers/random.ts";
import { until } from "../../helpers/temporary.ts";

const [A, B, C] = HOSTS;

interface Result {
  allocations: { job: string; worker: string; outcome: string; error: string | null }[];
  purged_kv_rows: number;
  dropped_contents: number;
}

/** Runs gc and answers its result, also where it failed. */
async function gc(deploys: Deploys, params: Record<string, unknown> = {}): Promise<Result & { failed: boolean }> {
  try {
    const result = (await collectGarbage(deploys.bucket.context("gc"), params)) as Result;
    return { ...result, failed: false };
  } catch (error) {
    if (!(error instanceof Failure) || error.code !== "failed") throw error;
    return { ...(error.details as Result), failed: true };
  }
}

function outcomes(result: Result): string[] {
  return result.allocations.map(({ job, worker, outcome }) => `${job}@${worker} ${outcome}`).sort();
}

const TWO: JobsSpec = { keep: {}, web: { files: { "vars.toml": 'color = "red"\n' } } };
const ONE: JobsSpec = { keep: {} };

/** Two jobs on all workers, deployed, `web` with data, logs, a variable and a secret; then it is removed from the workspace. */
async function withoutWeb(t: TestContext): Promise<Deploys> {
  const deploys = await Deploys.make(t);
  await deploys.build(TWO);
  const kv = deploys.bucket.kv();
  kv.put("secrets/job/web", "password", "x");
  kv.flush();
  assert.equal((await deploys.deploy()).error, undefined);
  for (const host of HOSTS) {
    mkdirSync(path.join(deploys.folder(host), "jobs/web/logs"), { recursive: true });
    writeFileSync(path.join(deploys.folder(host), "jobs/web/logs/web.log"), "said\n");
  }
  await deploys.build(ONE);
  return deploys;
}

function namespacesOf(deploys: Deploys, job: string): string[] {
  return deploys.bucket
    .kv()
    .namespaces()
    .filter((name) => name.includes(job));
}

function rows(deploys: Deploys, job: string): number {
  const { db } = deploys.bucket;
  const [hashes] = db.all("SELECT COUNT(*) AS n FROM hash WHERE namespace = ?", `${job}_allocation`);
  return catalogAllocations(db).filter((one) => one.job === job).length + Number(hashes?.n);
}

test("CP-260 gc removes the whole job folder of removed allocations, their rows, and the job's keys with the last one", async (t) => {
  const deploys = await withoutWeb(t);
  await deploys.deploy();
  const folder = path.join(deploys.folder(A), "jobs/web");
  assert.ok(existsSync(path.join(folder, "data/history")), "a deploy leaves data");
  assert.deepEqual(namespacesOf(deploys, "web"), ["secrets/job/web", "vars/job/web"]);
  const result = await gc(deploys);
  assert.deepEqual(outcomes(result), [`web@${A} removed`, `web@${B} removed`, `web@${C} removed`]);
  for (const host of HOSTS) {
    assert.deepEqual(readdirSync(path.join(deploys.folder(host), "jobs")), ["keep"]);
    for (const own of [".sync", ".runner"])
      assert.deepEqual(
        readdirSync(path.join(deploys.folder(host), own)).filter((name) => name.startsWith("web")),
        [],
      );
    assert.ok(existsSync(path.join(deploys.folder(host), "jobs/keep/data/history")));
  }
  assert.equal(rows(deploys, "web"), 0);
  assert.deepEqual(namespacesOf(deploys, "web"), []);
  assert.ok(result.dropped_contents > 0, "files of its trees");
  const again = await gc(deploys);
  assert.deepEqual([outcomes(again), again.purged_kv_rows, again.dropped_contents], [[], 0, 0]);
  const after = await deploys.deploy();
  assert.deepEqual(
    after.jobs.map((job) => job.outcome),
    ["skipped"],
  );
});

test("HR-207 gc purges deleted keys and their versions once they are retain_days old; the default is at once", async (t) => {
  const deploys = await withoutWeb(t);
  await deploys.deploy();
  const tombstones = () =>
    Number(deploys.bucket.db.all("SELECT COUNT(*) AS n FROM kv_version WHERE namespace = 'secrets/job/web'")[0]?.n);
  assert.equal((await gc(deploys, { retain_days: 30 })).purged_kv_rows, 0);
  assert.equal(tombstones(), 2);
  assert.ok((await gc(deploys)).purged_kv_rows > 0);
  assert.equal(tombstones(), 0);
  await assert.rejects(gc(deploys, { retain_days: -1 }), { code: "invalid_request" });
});

test("the last allocation of a job and the job's keys are removed together or not at all, and no removal is written later", async (t) => {
  const deploys = await withoutWeb(t);
  await deploys.deploy();
  const { db } = deploys.bucket;
  const before = namespacesOf(deploys, "web");
  const stop = "BEGIN SELECT RAISE(ABORT, 'stop'); END";
  db.script(`CREATE TRIGGER stop BEFORE INSERT ON kv_version WHEN NEW.deleted = 1 ${stop}`);
  const context = deploys.bucket.context("gc");
  await assert.rejects(collectGarbage(context, {}), /stop/);
  db.script("DROP TRIGGER stop");
  context.kv.flush();
  assert.deepEqual([namespacesOf(deploys, "web"), rows(deploys, "web")], [before, 1]);
});

test("what no deploy has stopped since it was removed is passed over, with all its keys", async (t) => {
  const deploys = await withoutWeb(t);
  const result = await gc(deploys);
  assert.deepEqual(outcomes(result), [`web@${A} not_stopped`, `web@${B} not_stopped`, `web@${C} not_stopped`]);
  assert.match(String(result.allocations[0]?.error), /deploy first$/);
  assert.equal(result.failed, false);
  assert.equal(deploys.targets("web", A).at(-1), "start");
  assert.equal(rows(deploys, "web"), 6);
  assert.deepEqual(namespacesOf(deploys, "web"), ["secrets/job/web", "vars/job/web"]);
});

test("a worker that gives no answer is reported and passed over; the next gc brings the rest", async (t) => {
  const deploys = await withoutWeb(t);
  await deploys.deploy();
  const rejoin = await deploys.cutOff(B);
  const result = await gc(deploys);
  assert.deepEqual(outcomes(result), [`web@${A} removed`, `web@${B} unreachable`, `web@${C} removed`]);
  assert.equal(result.failed, false);
  assert.notDeepEqual(namespacesOf(deploys, "web"), [], "keys stay with the last allocation");
  rejoin();
  assert.deepEqual(outcomes(await gc(deploys)), [`web@${B} removed`]);
  assert.ok(!existsSync(path.join(deploys.folder(B), "jobs/web")));
  assert.deepEqual(namespacesOf(deploys, "web"), []);
});

test("variables and secrets stay while a disabled allocation is left", async (t) => {
  const deploys = await Deploys.make(t);
  const web = (selectors: string[]): JobsSpec => ({ keep: {}, web: { manifest: { selectors } } });
  await deploys.build(web(["worker"]));
  const kv = deploys.bucket.kv();
  kv.put("secrets/job/web", "password", "x");
  kv.flush();
  await deploys.deploy();
  await deploys.build(web(["worker"]), { hosts: [A, B], disabled: { web: [A, B] } });
  await deploys.deploy();
  assert.deepEqual(outcomes(await gc(deploys)), [`keep@${C} removed`, `web@${C} removed`]);
  assert.equal(deploys.bucket.kv().get("secrets/job/web", "password"), "x");
  assert.ok(existsSync(path.join(deploys.folder(A), "jobs/web/data")));
});

test("of a worker that left the bucket the whole folder goes, with all that is known of it", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build(ONE);
  await deploys.deploy();
  await deploys.build(ONE, { hosts: [A, B] });
  await deploys.deploy();
  assert.deepEqual(outcomes(await gc(deploys)), [`keep@${C} removed`]);
  assert.ok(!existsSync(deploys.folder(C)));
  assert.deepEqual(
    catalogWorkers(deploys.bucket.db).map(({ host }) => host),
    [A, B],
  );
  assert.deepEqual(
    deploys.bucket
      .kv()
      .namespaces()
      .filter((name) => name.includes(C)),
    [],
  );
});

test("errors of a worker that left the bucket are only told", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build(ONE);
  await deploys.deploy();
  await deploys.build(ONE, { hosts: [A, B] });
  await deploys.cutOff(C);
  await deploys.deploy();
  const result = await gc(deploys);
  assert.deepEqual(outcomes(result), [`keep@${C} abandoned`]);
  assert.equal(result.failed, false);
  assert.match(String(result.allocations[0]?.error), new RegExp(C.replaceAll(".", "\\.")));
  assert.equal(catalogAllocations(deploys.bucket.db).filter((one) => one.removed).length, 0);
});

test("a folder that another worker of the bucket uses by now stays", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build(ONE);
  await deploys.deploy();
  await deploys.build(ONE, { hosts: [A, B] });
  await deploys.deploy();
  const facts = path.join(deploys.folder(C), "worker.json");
  writeFileSync(facts, readFileSync(facts, "utf8").replace(C, "renamed.example"));
  assert.deepEqual(outcomes(await gc(deploys)), [`keep@${C} removed`]);
  assert.ok(existsSync(path.join(deploys.folder(C), "jobs/keep/data")));
});

test("a worker that left waits as a whole until all that ran there is stopped", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build(TWO);
  await deploys.deploy();
  deploys.fail("web", "stop", C);
  await deploys.build(TWO, { hosts: [A, B] });
  await deploys.deploy();
  deploys.bucket.db.run("UPDATE hash SET stopped = 0 WHERE namespace = 'web_allocation'");
  const result = await gc(deploys);
  assert.deepEqual(outcomes(result), [`keep@${C} not_stopped`, `web@${C} not_stopped`]);
  for (const job of ["keep", "web"]) assert.ok(existsSync(path.join(deploys.folder(C), "jobs", job, "data")));
});

test("a job of which a target still runs is not touched, and fails the run", async (t) => {
  const deploys = await withoutWeb(t);
  await deploys.deploy();
  const self = identify(process.pid);
  const lock = path.join(deploys.folder(B), ".runner/web.lock");
  symlinkSync(`${process.pid}.${self?.start_time}.${bootId()}.some-run`, lock);
  const result = await gc(deploys);
  assert.deepEqual(outcomes(result), [`web@${A} removed`, `web@${B} failed`, `web@${C} removed`]);
  assert.equal(result.failed, true);
  assert.match(
    String(result.allocations.find((one) => one.error)?.error),
    /\.runner\/web\.lock is held by process \d+ of run some-run$/,
  );
  assert.ok(existsSync(path.join(deploys.folder(B), "jobs/web/data/history")));
});

test("cancelled while it cleans, gc says so, counts nothing as failed or abandoned and forgets nothing", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build(TWO);
  await deploys.deploy();
  await deploys.build(ONE, { hosts: [A, B] });
  await deploys.deploy();
  const cancel = new AbortController();
  const context = deploys.bucket.context("gc", cancel.signal);
  const { launcher } = context;
  const run = launcher.run.bind(launcher);
  launcher.run = (...call) => {
    cancel.abort();
    return run(...call);
  };
  const error = await collectGarbage(context, {}).catch((thrown: Failure) => thrown as Failure);
  assert.ok(error instanceof Failure);
  const { allocations, cancelled } = error.details as Result & { cancelled: object };
  assert.deepEqual([error.code, allocations, cancelled !== undefined], ["cancelled", [], true]);
  const noted = deploys.bucket.db.all("SELECT DISTINCT outcome FROM last_outcome WHERE action = 'gc'");
  assert.deepEqual(
    noted.map(({ outcome }) => outcome),
    ["cancelled"],
  );
  const result = await gc(deploys);
  assert.deepEqual(
    outcomes(result),
    [`keep@${C}`, ...HOSTS.map((host) => `web@${host}`)].map((one) => `${one} removed`),
  );
});

test("killed at any moment, gc leaves work that the next one finishes", async (t) => {
  const deploys = await Deploys.make(t);
  const random = seeded();
  for (let round = 0; round < 5; round++) {
    await deploys.build(TWO);
    const kv = deploys.bucket.kv();
    kv.put("secrets/job/web", "password", `${round}`);
    kv.flush();
    await deploys.deploy();
    await deploys.build(ONE);
    await deploys.deploy();
    const launcher = new Launcher(process.env);
    const argv = selfArguments("gc", "--bucket-dir", deploys.bucket.dir);
    const kill = async () => {
      await sleep(random() * 60);
      for (const { pgid } of launcher.groups) signalProcess(-pgid, "SIGKILL");
    };
    let killed: Promise<void> | undefined;
    await launcher.run(argv, {
      onLine: () => {
        killed ??= kill();
      },
    });
    await killed;
    const result = await gc(deploys);
    assert.equal(result.failed, false, `round ${round}`);
    assert.ok(result.allocations.every(({ outcome }) => outcome === "removed"));
    assert.equal(rows(deploys, "web"), 0);
    assert.deepEqual(namespacesOf(deploys, "web"), []);
    for (const host of HOSTS) {
      assert.deepEqual(readdirSync(path.join(deploys.folder(host), "jobs")), ["keep"]);
      // A script of the killed gc may still hold a lock for a moment, and finds nothing to remove.
      const left = () => readdirSync(path.join(deploys.folder(host), ".sync")).filter((name) => name.startsWith("web"));
      await until("nothing of the job is left", () => left().length === 0);
    }
  }
  assert.deepEqual(
    (await deploys.deploy()).jobs.map((job) => job.outcome),
    ["skipped"],
  );
});
