import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { catalogAllocations } from "../../../lib/bucket/catalog/catalog.ts";
import { beginChange } from "../../../lib/bucket/catalog/promotions.ts";
import { control } from "../../../lib/operation/control/job-control.ts";
import type { ControlKind } from "../../../lib/run/protocol.ts";
import { ops, PROGRAM } from "../../../scripts/local-server.ts";
import { Deploys, HOSTS } from "../../helpers/deploys.ts";
import { hooksOf } from "../../helpers/hooks.ts";
import { carryOut, type Ended } from "../../helpers/operations.ts";
import { until } from "../../helpers/temporary.ts";

const [A, B, C] = HOSTS;

/** Each target notes its name and the release that it found. Where a file `sick` lies beside jobs/, release two fails. */
const MAKEFILE = `start restart reload stop dump:
	@mkdir -p data; echo "$@ $$(cat release) $$NEW_VERSION" >> data/history
	@if [ -f ../../sick ] && grep -q two release; then echo "no such library" >&2; exit 3; fi
	@if [ -f ../../held ] && grep -q two release; then touch ../../begun; sleep 300; fi
status:
	@cat release
`;

async function setUp(t: TestContext, spec: { manifest?: object; files?: Record<string, string> } = {}) {
  const deploys = await Deploys.make(t);
  const build = (version: string, release: string) => {
    const files = { Makefile: MAKEFILE, release, ...spec.files };
    return deploys.build({ web: { manifest: { version, ...spec.manifest }, files } });
  };
  await build("1.0.0", "one");
  assert.equal((await deploys.deploy()).error, undefined);
  await build("2.0.0", "two");
  const run = (kind: ControlKind, params: Record<string, unknown> = {}) =>
    carryOut(deploys.bucket, kind, control(kind), { jobs: ["web"], ...params });
  const note = (host: string, name: string) => {
    const file = path.join(deploys.folder(host), name);
    writeFileSync(file, "");
    return file;
  };
  const release = (host: string) => readFileSync(path.join(deploys.folder(host), "jobs/web/release"), "utf8");
  const last = (host: string) => deploys.history("web", host).at(-1);
  return { deploys, build, run, note, release, last };
}

const outcomesOf = ({ result }: Ended) =>
  result.jobs[0].allocations.map((one: Record<string, unknown>) => [one.outcome, one.put_back ?? false]);

for (const [kind, target] of [
  ["job_restart", "restart"],
  ["job_start", "start"],
  ["job_reload", "reload"],
] as const)
  test(`${target} after a rollout that stopped runs what is promoted, wherever the rollout has come, and says what it put back`, async (t) => {
    const { deploys, run, note, release, last } = await setUp(t);
    const sick = note(A, "sick");
    assert.match((await deploys.deploy()).error?.message ?? "", /`make (re)?start` of job \w+ on .* failed/);
    assert.deepEqual(HOSTS.map(release), ["two", "two", "two"], "all of them had been synced");
    const ended = await run(kind);
    assert.equal(ended.error, undefined);
    assert.deepEqual(outcomesOf(ended), [
      ["ok", true],
      ["ok", true],
      ["ok", true],
    ]);
    assert.match(
      ended.text,
      /web: a deploy did not finish on 127\.0\.0\.1, 127\.0\.0\.2, 127\.0\.0\.3: the promoted files are put back/,
    );
    assert.deepEqual(
      HOSTS.map(last),
      HOSTS.map(() => `${target} one 1.0.0`),
    );
    const again = await run(kind);
    assert.deepEqual([again.error, outcomesOf(again)[0]], [undefined, ["ok", false]], "nothing is left to do");
    rmSync(sick);
    assert.equal((await deploys.deploy()).error, undefined);
    assert.deepEqual(
      HOSTS.map(last),
      HOSTS.map(() => "restart two 2.0.0"),
    );
  });

test("what a deploy has promoted before it stopped stays; only the others get their files back", async (t) => {
  const { deploys, run, note, last } = await setUp(t);
  note(B, "sick");
  assert.notEqual((await deploys.deploy()).error, undefined);
  const ended = await run("job_restart");
  assert.deepEqual(outcomesOf(ended), [
    ["ok", false],
    ["ok", true],
    ["ok", true],
  ]);
  assert.deepEqual(HOSTS.map(last), ["restart two 2.0.0", "restart one 1.0.0", "restart one 1.0.0"]);
});

test("what only the unfinished version has is taken away, and what only the promoted one has is brought back", async (t) => {
  const { deploys, run, note } = await setUp(t);
  const files = { Makefile: MAKEFILE, release: "two", "conf/new": "" };
  await deploys.build({ web: { manifest: { version: "2.0.0" }, files: { Makefile: MAKEFILE, release: "one", old: "" } } });
  assert.equal((await deploys.deploy()).error, undefined);
  rmSync(path.join(deploys.bucket.dir, "workspace/jobs/web/old"));
  await deploys.build({ web: { manifest: { version: "3.0.0" }, files } });
  note(A, "sick");
  assert.notEqual((await deploys.deploy()).error, undefined);
  const there = () => ["old", "conf/new"].map((name) => existsSync(path.join(deploys.folder(C), "jobs/web", name)));
  assert.deepEqual(there(), [false, true]);
  const same = () => statSync(path.join(deploys.folder(C), "jobs/web/Makefile"), { bigint: true });
  const { ino, ctimeNs } = same();
  assert.equal((await run("job_restart")).error, undefined);
  assert.deepEqual([...there(), same().ino, same().ctimeNs], [true, false, ino, ctimeNs], "what is as promoted is not written");
});

test("stop, status and a target of the job's own take what is there", async (t) => {
  const { deploys, run, note, release, last } = await setUp(t);
  note(A, "sick");
  assert.notEqual((await deploys.deploy()).error, undefined);
  rmSync(path.join(deploys.folder(A), "sick"));
  assert.equal((await run("job_stop")).error, undefined);
  assert.equal((await run("job_status")).error, undefined);
  assert.equal((await run("job_run", { target: "dump" })).error, undefined);
  assert.deepEqual([last(C), release(C)], ["dump two 1.0.0", "two"]);
  const ended = await run("job_run", { target: "Restart" });
  assert.deepEqual([ended.error, last(C)], [undefined, "restart one 1.0.0"]);
});

test("what was never promoted is not started: the allocation and the deploy are named, the others go on", async (t) => {
  const { deploys, run } = await setUp(t);
  const files = { Makefile: MAKEFILE, release: "two" };
  const manifest = { version: "1.0.0", max_concurrent_starts: 1 };
  await deploys.build({ app: { manifest, files } });
  writeFileSync(path.join(deploys.folder(B), "sick"), "");
  assert.match((await deploys.deploy()).error?.message ?? "", /`make (re)?start` of job \w+ on .* failed/);
  const ended = await run("job_start", { jobs: ["app"] });
  const why = "nothing is promoted there: run `ops deploy` first";
  assert.equal(ended.error?.message, `start failed: app@${B}, app@${C}: ${why}`);
  assert.deepEqual(
    HOSTS.map((host) => deploys.history("app", host)),
    [["start two 1.0.0", "start two 1.0.0"], ["start two 1.0.0"], []],
  );
});

test("hooks for job_control find the promoted files, too", async (t) => {
  const script = `import json, os, pathlib, sys
workers = json.load(open(os.environ["OPS_WORKERS_FILE"]))["workers"]
folder = pathlib.Path(workers[os.environ["ALLOCATION_IP"]]["folder"])
release = (folder / "jobs/web/release").read_text()
with open(folder / "seen", "a") as seen: seen.write(os.environ.get("TARGET", "deploy") + " " + release + "\\n")
if release == "two": sys.exit("no such library")
`;
  const { deploys, run } = await setUp(t, { manifest: hooksOf({ act: ["job_control"] }), files: { "_hooks/act.py": script } });
  assert.match((await deploys.deploy()).error?.message ?? "", /no such library/);
  assert.equal((await run("job_restart")).error, undefined);
  const seen = (host: string) =>
    readFileSync(path.join(deploys.folder(host), "seen"), "utf8")
      .trim()
      .split("\n");
  assert.deepEqual(seen(A), ["deploy one", "deploy two", "restart one"]);
  assert.deepEqual([seen(B), seen(C)], [seen(C), ["deploy one", "restart one"]]);
});

test("files that a killed run may have sent are put back with content and modes", async (t) => {
  const { deploys, run, last } = await setUp(t);
  const { db } = deploys.bucket;
  // As a run leaves an allocation when it is killed during the sync.
  const allocation = catalogAllocations(db).find(({ worker }) => worker === A);
  beginChange(db, "web", [allocation?.id ?? ""]);
  const folder = path.join(deploys.folder(A), "jobs/web");
  writeFileSync(path.join(folder, "release"), "two");
  chmodSync(path.join(folder, "Makefile"), 0o600);
  const ended = await run("job_restart");
  assert.deepEqual(outcomesOf(ended), [
    ["ok", true],
    ["ok", false],
    ["ok", false],
  ]);
  assert.equal(last(A), "restart one 1.0.0");
  assert.equal(statSync(path.join(folder, "Makefile")).mode & 0o777, 0o644);
});

test("a deploy that was lost behind its targets goes on there, and repeats a target only where job control ran one since", async (t) => {
  const { deploys, run } = await setUp(t);
  assert.equal((await deploys.deploy()).error, undefined);
  const { db } = deploys.bucket;
  // As a deploy leaves the allocations when it loses their workers before the last sync.
  beginChange(
    db,
    "web",
    catalogAllocations(db).map(({ id }) => id),
  );
  assert.equal((await run("job_reload", { allocations: [A] })).error, undefined);
  for (const how of ["takes up", "has nothing to do"]) {
    assert.equal((await deploys.deploy()).error, undefined, how);
    assert.deepEqual(
      HOSTS.map((host) => deploys.history("web", host).slice(1)),
      [["restart two 2.0.0", "reload two 2.0.0", "restart two 2.0.0"], ["restart two 2.0.0"], ["restart two 2.0.0"]],
      `the next deploy ${how}`,
    );
  }
});

test("a deploy is killed in mid-rollout: restart runs the promoted version everywhere", async (t) => {
  const { deploys, note, release, last } = await setUp(t);
  note(B, "held");
  const { dir } = deploys.bucket;
  const child = spawn(process.execPath, [PROGRAM, "deploy", "--bucket-dir", dir], { stdio: "ignore" });
  const exit = once(child, "exit");
  t.after(() => child.kill("SIGKILL"));
  await until("the second batch to begin", () => existsSync(path.join(deploys.folder(B), "begun")));
  child.kill("SIGKILL");
  await exit;
  assert.deepEqual(HOSTS.map(release), ["two", "two", "two"]);
  const restarted = await ops(["job", "restart", "web", "--bucket-dir", dir]);
  assert.equal(restarted.code, 0, restarted.stderr);
  assert.deepEqual(HOSTS.map(last), ["restart two 2.0.0", "restart one 1.0.0", "restart one 1.0.0"]);
  assert.match(restarted.stdout + restarted.stderr, /a deploy did not finish on 127\.0\.0\.2, 127\.0\.0\.3/);
});
