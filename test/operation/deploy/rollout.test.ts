import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { catalogAllocations } from "../../../lib/bucket/catalog/catalog.ts";
import { beginChange, promotionsOf } from "../../../lib/bucket/catalog/promotions.ts";
import { Deploys, HOSTS, type JobsSpec, outcomes } from "../../helpers/deploys.ts";

const [A, B, C] = HOSTS;

async function setUp(t: TestContext, manifest: Record<string, unknown> = {}, files: Record<string, string> = {}) {
  const deploys = await Deploys.make(t);
  const web = (changed: Record<string, string> = {}, more: Record<string, unknown> = {}): JobsSpec => ({
    web: { manifest: { ...manifest, ...more }, files: { ...files, ...changed } },
  });
  await deploys.build(web());
  return { deploys, web };
}

/** The batches that Activity names, in short: `start 127.0.0.1, 127.0.0.2`. */
function batchesIn(text: string): string[] {
  return [...text.matchAll(/batch \d+ of \d+ \(\w+\): (.*)/g)].map((match) => match[1] as string);
}

/** A TCP port that can be opened and closed on a loopback address. */
async function listener(t: TestContext) {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  const open = async () => {
    const server = createServer();
    t.after(() => server.close());
    await new Promise<void>((resolve) => server.listen(port, "0.0.0.0", resolve));
    return () => new Promise((resolve) => server.close(resolve));
  };
  return { port, open };
}

function checked(port: number) {
  return {
    resources: { ports: { web_tcp: port } },
    health_check: { checks: [{ type: "tcp", port: "web_tcp" }], wait: { attempts: 1, interval_seconds: 1 } },
  };
}

test("HR-109 HR-117 HR-118 first starts go in batches of max_concurrent_starts, changes in batches of max_concurrent_upgrades", async (t) => {
  const { deploys, web } = await setUp(t, { max_concurrent_starts: 2, max_concurrent_upgrades: 1 });
  const first = await deploys.deploy();
  assert.deepEqual(batchesIn(first.text), [`start on ${A}, ${B}`, `start on ${C}`]);
  assert.ok(first.text.indexOf(`synced to ${C}`) < first.text.indexOf("batch 1 of 2"), "synced before any batch");
  await deploys.build(web({ new: "1" }));
  assert.deepEqual(batchesIn((await deploys.deploy()).text), [`restart on ${A}`, `restart on ${B}`, `restart on ${C}`]);
  await deploys.build(web({ new: "2" }, { max_concurrent_starts: 0, max_concurrent_upgrades: 5 }));
  assert.deepEqual(batchesIn((await deploys.deploy()).text), [`restart on ${A}, ${B}, ${C}`]);
});

test("HR-009 rollout_order of the KV store decides while it names every worker of the phase", async (t) => {
  const { deploys } = await setUp(t);
  const order = (value: string) => {
    const kv = deploys.bucket.kv();
    kv.put("ops/job/web", "rollout_order", value);
    kv.flush();
  };
  order(`${C},${A},${B}`);
  assert.deepEqual(batchesIn((await deploys.deploy()).text), [`start on ${C}, ${A}, ${B}`]);
  assert.deepEqual(batchesIn((await deploys.deploy({ force: true })).text), [
    ...[`restart on ${C}`, `restart on ${A}`, `restart on ${B}`],
  ]);
  order(`${C},${A}`);
  assert.deepEqual(batchesIn((await deploys.deploy({ force: true })).text), [
    ...[`restart on ${A}`, `restart on ${B}`, `restart on ${C}`],
  ]);
});

test("progress tells of each worker, in rollout order and with its batch, what goes on there and how it went", async (t) => {
  const { port, open } = await listener(t);
  const { deploys } = await setUp(t, { ...checked(port), max_concurrent_starts: 1 });
  await open();
  const kv = deploys.bucket.kv();
  kv.put("ops/job/web", "rollout_order", `${C},${A},${B}`);
  kv.flush();
  deploys.fail("web", "start", B);
  const told: string[] = [];
  deploys.onProgress = ({ rollouts: [one] }) => {
    if (!one) return;
    assert.deepEqual(
      one.hosts.map(({ worker, action, batch }) => [worker, action, batch]),
      [C, A, B].map((worker, index) => [worker, "start", index + 1]),
    );
    const states = one.hosts.map(({ state }) => state).join(" ");
    const now = `${one.action} ${one.batch} [${one.gate}] ${states}: ${one.done} done, ${one.running} at work, ${one.failed} failed`;
    if (told.at(-1) !== now) told.push(now);
  };
  await deploys.deploy();
  const expected = [
    "start 1 [] running not_started not_started: 0 done, 1 at work, 0 failed",
    "start 1 [pending] checking not_started not_started: 0 done, 1 at work, 0 failed",
    "start 1 [passed] changed not_started not_started: 1 done, 0 at work, 0 failed",
    "start 2 [] changed running not_started: 1 done, 1 at work, 0 failed",
    "start 2 [pending] changed checking not_started: 1 done, 1 at work, 0 failed",
    "start 3 [] changed changed running: 2 done, 1 at work, 0 failed",
    "start 3 [] changed changed failed: 2 done, 0 at work, 1 failed",
  ];
  assert.deepEqual(
    told.filter((line) => expected.includes(line)).filter((line, at, all) => all.indexOf(line) === at),
    expected,
    told.join("\n"),
  );
});

test("HR-115 HR-116 a batch that fails keeps the next one from starting; the next deploy takes up where it ended", async (t) => {
  const { deploys } = await setUp(t, { max_concurrent_starts: 2 });
  const repair = deploys.fail("web", "start", B);
  const failed = await deploys.deploy();
  assert.match(
    failed.error?.message ?? "",
    /job web failed on 1 worker: 127\.0\.0\.2: `make start` .* failed: exit code 2: .*start/,
  );
  assert.deepEqual(
    failed.jobs[0]?.allocations.map((one) => one.outcome),
    ["changed", "failed", "not_started"],
  );
  assert.deepEqual(
    HOSTS.map((host) => [deploys.promotion("web", host).version, deploys.promotion("web", host).unfinished]),
    [
      ["0.0.0", true],
      ["0.0.0", true],
      ["0.0.0", true],
    ],
    "what did not end well as a batch is not promoted",
  );
  repair();
  const again = await deploys.deploy();
  assert.match(again.text, /web: start on 127\.0\.0\.1 had already succeeded: resumed behind it/);
  assert.deepEqual(
    HOSTS.map((host) => deploys.targets("web", host)),
    [["start"], ["start", "start"], ["start"]],
  );
  assert.deepEqual(
    HOSTS.map((host) => deploys.promotion("web", host).version),
    ["1.0.0", "1.0.0", "1.0.0"],
  );
});

test("T-39 what was cut off is repeated where nobody knows that it had succeeded, and only there", async (t) => {
  const { deploys } = await setUp(t);
  await deploys.deploy();
  const { db } = deploys.bucket;
  const interrupted = () => {
    const ids = catalogAllocations(db).map((one) => one.id);
    beginChange(db, "web", ids);
    assert.ok(ids.every((id) => promotionsOf(db, "web")(id).unfinished));
  };
  interrupted();
  const resumed = await deploys.deploy();
  assert.equal(resumed.jobs[0]?.outcome, "deployed");
  assert.deepEqual(deploys.targets("web", A), ["start"], "the worker's record says that start succeeded with these files");
  const repair = deploys.fail("web", "restart", A);
  assert.equal((await deploys.deploy({ force: true })).error?.code, "failed");
  repair();
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual(deploys.targets("web", A), ["start", "restart", "restart"], "a restart that failed is repeated");
  interrupted();
  await deploys.deploy({ force: true });
  assert.deepEqual(deploys.targets("web", A).length, 4, "force repeats in any case");
});

test("what was cut off is repeated where it had succeeded with the same files, but for another version", async (t) => {
  const { deploys, web } = await setUp(t);
  await deploys.deploy();
  await deploys.build(web({}, { version: "2.0.0" }));
  const ids = catalogAllocations(deploys.bucket.db).map((one) => one.id);
  beginChange(deploys.bucket.db, "web", ids);
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual(deploys.history("web", A), ["start 1.0.0", "restart 2.0.0"]);
  beginChange(deploys.bucket.db, "web", ids);
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual(deploys.history("web", A).length, 2);
});

test("restart_policy decides what a change does: reload unless a glob asks for more, or nothing but a sync", async (t) => {
  const { deploys, web } = await setUp(t, { restart_policy: "reload", restart_globs: ["conf/**"] });
  await deploys.deploy();
  await deploys.build(web({ page: "1" }));
  assert.deepEqual(batchesIn((await deploys.deploy()).text)[0], `reload on ${A}`);
  await deploys.build(web({ page: "1", "conf/a": "1" }));
  assert.deepEqual(batchesIn((await deploys.deploy()).text)[0], `restart on ${A}`);
  await deploys.build(web({ page: "2" }, { restart_policy: "never", restart_globs: [] }));
  const { text, jobs } = await deploys.deploy();
  assert.deepEqual([batchesIn(text), jobs[0]?.allocations[0]?.action, jobs[0]?.allocations[0]?.outcome], [[], "sync", "changed"]);
  assert.equal(readFileSync(path.join(deploys.folder(C), "jobs/web/page"), "utf8"), "2");
  assert.deepEqual(deploys.targets("web", A), ["start", "reload", "restart"]);
});

test("HR-112 HR-114 what needs no lifecycle is promoted in the end, and what make changed in files of ops is put back", async (t) => {
  const makefile = "start restart:\n\t@mkdir -p data; echo $@ >> data/history; echo changed > page; echo mine > own\n";
  const { deploys, web } = await setUp(t, {}, { Makefile: makefile, page: "1" });
  const first = await deploys.deploy();
  assert.match(first.text, /web: put back on 127\.0\.0\.1: page\n/);
  const read = (name: string) => readFileSync(path.join(deploys.folder(A), "jobs/web", name), "utf8");
  assert.deepEqual([read("page"), read("own")], ["1", "mine\n"]);
  await deploys.build(web({ page: "2" }), { disabled: { web: [B] } });
  await deploys.deploy();
  const kv = deploys.bucket.kv();
  for (const host of HOSTS) {
    assert.equal(deploys.promotion("web", host).unfinished, false);
    assert.equal(kv.get(`ops/job/web/worker/${host}`, "version"), "1.0.0");
  }
});

test("HR-110 a gate fails: the batch stays promoted, the next one does not start, and the next deploy probes first", async (t) => {
  const { port, open } = await listener(t);
  const { deploys } = await setUp(t, { max_concurrent_starts: 2, ...checked(port) });
  const failed = await deploys.deploy();
  assert.match(
    failed.error?.message ?? "",
    /the health check of job web failed: 127\.0\.0\.1 after 1 attempt: tcp 127\.0\.0\.1:\d+: connection refused/,
  );
  const gates = () => HOSTS.map((host) => deploys.promotion("web", host).gate);
  assert.deepEqual(gates(), ["failed", "failed", ""]);
  const again = await deploys.deploy();
  assert.equal(again.error?.code, "failed");
  assert.deepEqual(
    HOSTS.map((host) => deploys.targets("web", host)),
    [["start"], ["start"], []],
  );
  const close = await open();
  const passed = await deploys.deploy();
  assert.equal(passed.error, undefined);
  assert.match(passed.text, /web: a gate is still open on 127\.0\.0\.1, 127\.0\.0\.2: it comes first\n/);
  assert.deepEqual(gates(), ["passed", "passed", "passed"]);
  assert.deepEqual(
    HOSTS.map((host) => deploys.targets("web", host)),
    [["start"], ["start"], ["start"]],
  );
  assert.deepEqual(outcomes(await deploys.deploy()), { web: "skipped" });
  await close();
  const forced = await deploys.deploy({ force: true });
  assert.equal(forced.error?.code, "failed");
  assert.deepEqual(gates(), ["failed", "passed", "passed"], "force takes the usual order, one batch after the other");
});

test("a gate that was pending when a deploy was cut off comes first as well; disabled allocations have none", async (t) => {
  const { port, open } = await listener(t);
  const { deploys, web } = await setUp(t, checked(port));
  const close = await open();
  await deploys.deploy();
  deploys.bucket.db.run("UPDATE hash SET gate = 'pending'");
  const resumed = await deploys.deploy();
  assert.match(resumed.text, /a gate is still open on 127\.0\.0\.1, 127\.0\.0\.2, 127\.0\.0\.3/);
  assert.deepEqual(deploys.targets("web", A), ["start"]);
  await close();
  deploys.bucket.db.run("UPDATE hash SET gate = 'failed'");
  await deploys.build(web(), { disabled: { web: [A, B, C] } });
  assert.deepEqual(outcomes(await deploys.deploy()), { web: "skipped" });
});

test("a sync without lifecycle has no gate of its own: the next deploy has nothing to do", async (t) => {
  const { port, open } = await listener(t);
  const { deploys, web } = await setUp(t, { restart_policy: "never", ...checked(port) });
  await open();
  await deploys.deploy();
  await deploys.build(web({ page: "1" }));
  assert.deepEqual(outcomes(await deploys.deploy()), { web: "deployed" });
  const after = await deploys.deploy();
  assert.deepEqual([outcomes(after), after.text.includes("gate")], [{ web: "skipped" }, false]);
  deploys.bucket.db.run("UPDATE hash SET gate = 'failed'");
  await deploys.build(web({ page: "2" }));
  await deploys.deploy();
  assert.equal(deploys.promotion("web", A).gate, "failed", "nor does it close one that was open");
});

test("HR-102 T-103 what is synced was staged below tmp/workers, each allocation in its own folder, and is as its template says", async (t) => {
  const { deploys } = await setUp(t, {}, { "app.conf.tpl": "{{ .WorkerIP }} {{ .JobPath }} {{ .NewVersion }}" });
  const { layout } = deploys.bucket;
  mkdirSync(path.join(layout.stagedWorkers, A, "jobs", "web"), { recursive: true });
  writeFileSync(path.join(layout.stagedWorkers, A, "jobs", "web", "left over"), "x");
  await deploys.deploy();
  for (const host of HOSTS) {
    const expected = `${host} ${deploys.folder(host)}/jobs/web 1.0.0`;
    const staged = path.join(layout.stagedWorkers, host, "jobs", "web");
    assert.equal(readFileSync(path.join(staged, "app.conf"), "utf8"), expected);
    assert.equal(readFileSync(path.join(deploys.folder(host), "jobs/web/app.conf"), "utf8"), expected);
    assert.ok(!existsSync(path.join(staged, "left over")) && !existsSync(path.join(staged, "_hooks")));
  }
});

test("sync_only brings and promotes files and runs no target; what was never started is refused after its files are there", async (t) => {
  const { deploys, web } = await setUp(t);
  const refused = await deploys.deploy({ sync_only: true });
  assert.match(
    refused.error?.message ?? "",
    /web: job web was never started on 127\.0\.0\.1, 127\.0\.0\.2, 127\.0\.0\.3: deploy it without sync_only first/,
  );
  assert.ok(existsSync(path.join(deploys.folder(A), "jobs/web/Makefile")));
  assert.deepEqual([deploys.targets("web", A), deploys.promotion("web", A).hash], [[], ""]);
  await deploys.deploy();
  await deploys.build(web({ new: "1" }, { version: "2.0.0" }));
  const synced = await deploys.deploy({ sync_only: true });
  assert.equal(synced.error, undefined);
  assert.deepEqual(
    synced.jobs[0]?.allocations.map((one) => [one.action, one.outcome]),
    HOSTS.map(() => ["sync", "changed"]),
  );
  assert.equal(readFileSync(path.join(deploys.folder(B), "jobs/web/new"), "utf8"), "1");
  assert.deepEqual([deploys.targets("web", B), deploys.promotion("web", B).version], [["start"], "2.0.0"]);
  assert.equal((await deploys.deploy()).jobs[0]?.outcome, "skipped");
});

test("HR-110 a worker of an earlier batch that is not healthy any more keeps the job from being skipped, whatever becomes of the batch", async (t) => {
  const command = 'case "$PWD" in */127.0.0.1/*) test ! -f jobs/web/data/sick ;; esac';
  const manifest = { max_concurrent_starts: 1, health_check: { checks: [{ type: "ssh", command }], wait: { attempts: 1 } } };
  const other = `../../../../${A}/$$(basename "$$(cd ../.. && pwd)")/jobs/web/data/sick`;
  const script = `mkdir -p data; case "$$PWD" in */${B}/*) touch "${other}" ;; esac`;
  const makeSick = `start:\n\t@${script}\nstop:\n\t@true\n`;
  const { deploys } = await setUp(t, manifest, { Makefile: makeSick });
  const failed = await deploys.deploy();
  assert.match(failed.error?.message ?? "", /the health check of job web failed: 127\.0\.0\.1 after 1 attempt/);
  assert.deepEqual([deploys.promotion("web", A).gate, deploys.promotion("web", B).gate], ["failed", "failed"]);
  await deploys.build({ web: { manifest, files: { Makefile: makeSick } } }, { disabled: { web: [B, C] } });
  const again = await deploys.deploy();
  assert.equal(again.error?.code, "failed", "the worker that is left is still sick");
});
