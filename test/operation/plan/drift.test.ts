import assert from "node:assert/strict";
import {
  chmodSync,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { drift } from "../../../lib/operation/plan/drift.ts";
import { Deploys, HOSTS } from "../../helpers/deploys.ts";
import { carryOut } from "../../helpers/operations.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const [A, B, C] = HOSTS;

interface Worker {
  worker: string;
  outcome: string;
  error: string | null;
  allocations: {
    job: string;
    outcome: string;
    is_unfinished: boolean;
    files: { path: string; state: string; diff: string | null }[];
  }[];
}
const workersIn = (result: unknown) => (result as { workers: Worker[] }).workers;

test("drift tells per worker and job what was changed by hand, with diff, or is missing, and who is unreachable", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: { files: { "conf/a": "one\ntwo\nthree\n", run: "#!" } }, db: {} });
  const look = (params: Record<string, unknown> = {}, options = {}) => carryOut(deploys.bucket, "drift", drift, params, options);
  const never = await look({ workers: [A] });
  assert.deepEqual(
    workersIn(never.result)[0]?.allocations.map(({ outcome }) => outcome),
    ["not_promoted", "not_promoted"],
  );
  assert.equal((await deploys.deploy()).error, undefined);
  const before = deploys.bucket.db.all("SELECT * FROM hash");
  const same = await look();
  assert.equal(same.error, undefined);
  assert.deepEqual(
    workersIn(same.result).map(({ outcome }) => outcome),
    ["in_sync", "in_sync", "in_sync"],
  );

  const context = deploys.bucket.context("drift");
  const told: unknown[] = [];
  context.progress.report = ({ phase, done, total }) => told.push([phase, done, total]);
  await drift(context, {});
  assert.deepEqual(
    told,
    [1, 2, 3].map((done) => ["drift", done, 3]),
  );

  const web = path.join(deploys.folder(A), "jobs/web");
  writeFileSync(path.join(web, "conf/a"), "one\n2\nthree\n");
  chmodSync(path.join(web, "run"), 0o644);
  // What a job adds is no drift.
  chmodSync(path.join(web, "Makefile"), 0o755);
  writeFileSync(path.join(web, "conf/b"), "");
  rmSync(path.join(deploys.folder(B), "jobs/db/Makefile"));
  const back = await deploys.cutOff(C);
  const run = await look();
  assert.equal(run.error?.code, "failed");
  assert.match(
    run.error?.message ?? "",
    /^3 of 3 workers are not as promoted: 127\.0\.0\.1 \(drifted\), 127\.0\.0\.2 \(drifted\), 127\.0\.0\.3 \(unreachable\)$/,
  );
  const [a, b, c] = workersIn(run.result) as [Worker, Worker, Worker];
  assert.deepEqual(
    a.allocations.map(({ job, outcome }) => [job, outcome]),
    [
      ["db", "in_sync"],
      ["web", "drifted"],
    ],
  );
  assert.deepEqual(a.allocations[1]?.files, [
    { path: "conf/a", state: "changed", diff: "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n" },
    { path: "run", state: "changed", diff: null },
  ]);
  assert.deepEqual(b.allocations[0]?.files, [{ path: "Makefile", state: "missing", diff: null }]);
  assert.deepEqual([c.outcome, c.allocations], ["unreachable", []]);
  assert.match(c.error ?? "", /127\.0\.0\.3/);
  assert.match(run.text, /web@127\.0\.0\.1: drifted\n.*changed conf\/a\n/);
  assert.deepEqual(deploys.bucket.db.all("SELECT * FROM hash"), before);
  assert.equal(readFileSync(path.join(web, "conf/a"), "utf8"), "one\n2\nthree\n", "nothing is put right");

  const chosen = await look({ jobs: ["web"], workers: [B] });
  assert.equal(chosen.error, undefined);
  assert.deepEqual(
    workersIn(chosen.result).map(({ worker, allocations }) => [worker, allocations.length]),
    [[B, 1]],
  );
  assert.equal((await look({ workers: ["nobody"] })).error?.code, "unknown_name");
  back();
});

test("files and execute bits that a job adds, and files that drift_ignore names, are no drift", async (t) => {
  const deploys = await Deploys.make(t);
  const files = { "conf/state": "1\n", "conf/fixed": "1\n", index: "1\n" };
  const manifest = { drift_ignore: ["conf/state", "ind*"] };
  await deploys.build({ web: { files, manifest } }, { hosts: [A] });
  assert.equal((await deploys.deploy()).error, undefined);
  const web = path.join(deploys.folder(A), "jobs/web");
  writeFileSync(path.join(web, "made"), "");
  writeFileSync(path.join(web, "conf/made"), "");
  chmodSync(path.join(web, "conf/fixed"), 0o755);
  writeFileSync(path.join(web, "conf/state"), "2\n");
  rmSync(path.join(web, "index"));
  assert.equal((await carryOut(deploys.bucket, "drift", drift)).error, undefined);
  const plan = await deploys.deploy({ dry_run: true });
  assert.ok(!plan.text.includes("changed by hand"));
  writeFileSync(path.join(web, "conf/fixed"), "2\n");
  const { error } = await carryOut(deploys.bucket, "drift", drift);
  assert.deepEqual(
    workersIn(error?.details)[0]?.allocations[0]?.files.map(({ path }) => path),
    ["conf/fixed"],
  );
  await deploys.build({ web: { files } }, { hosts: [A] });
  const all = await carryOut(deploys.bucket, "drift", drift);
  assert.deepEqual(
    workersIn(all.error?.details)[0]?.allocations[0]?.files.map(({ path, state }) => `${state} ${path}`),
    ["changed conf/fixed", "changed conf/state", "missing index"],
  );
});

test("drift and plan name a folder that is a link to equal files, and force is named only where it helps", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: { files: { "conf/a": "1" } }, db: { files: { "conf/a": "1", b: "1" } } });
  assert.equal((await deploys.deploy()).error, undefined);
  const elsewhere = temporaryFolder(t);
  const web = (host: string) => path.join(deploys.folder(host), "jobs/web");
  renameSync(path.join(web(A), "conf"), path.join(elsewhere, "conf"));
  symlinkSync(path.join(elsewhere, "conf"), path.join(web(A), "conf"));
  renameSync(web(B), path.join(elsewhere, "web"));
  symlinkSync(path.join(elsewhere, "web"), web(B));
  rmSync(path.join(web(C), "conf"), { recursive: true });
  writeFileSync(path.join(web(C), "conf"), "");
  const found = await carryOut(deploys.bucket, "drift", drift, { jobs: ["web"] });
  assert.deepEqual(
    workersIn(found.error?.details).map(({ allocations }) => allocations[0]?.files),
    [
      [{ path: "conf", state: "link", diff: null }],
      [{ path: ".", state: "link", diff: null }],
      [{ path: "conf", state: "changed", diff: null }],
    ],
  );
  const { text } = await deploys.deploy({ dry_run: true });
  assert.match(text, /127\.0\.0\.1: changed by hand, and stays so: only --force puts it back\n *link conf\n/);
  assert.match(text, /127\.0\.0\.2: changed by hand, and stays so\n *link \.\n/);
  assert.match(text, /127\.0\.0\.3: changed by hand, and stays so\n *changed conf\n/);
  const forced = await deploys.deploy({ force: true, jobs: ["web"] });
  assert.match(forced.error?.message ?? "", /web/);
  assert.ok(lstatSync(path.join(web(A), "conf")).isDirectory());
  assert.deepEqual(deploys.targets("db", A), ["start"]);
  assert.deepEqual(readdirSync(path.join(elsewhere, "conf")), ["a"]);
  assert.ok(existsSync(path.join(elsewhere, "web/data/history")), "what the link leads to is whole");
});

test("of a file that a secret was read for a diff shows nothing, and of others no secret", async (t) => {
  const deploys = await Deploys.make(t);
  const secret = "correct-horse-battery";
  const files = { "app.conf.tpl": '{{ get "secrets/job/web" "password" }}\n', plain: "one\n" };
  await deploys.build({ web: { files } }, { hosts: [A] });
  const kv = deploys.bucket.kv();
  kv.put("secrets/job/web", "password", secret);
  kv.flush();
  assert.equal((await deploys.deploy()).error, undefined);
  const web = path.join(deploys.folder(A), "jobs/web");
  assert.equal(readFileSync(path.join(web, "app.conf"), "utf8"), `${secret}\n`);
  writeFileSync(path.join(web, "app.conf"), "guess\n");
  writeFileSync(path.join(web, "plain"), `one\npassword=${secret}\n`);
  const { result, text } = await carryOut(deploys.bucket, "drift", drift, {}, { secrets: [secret] });
  assert.deepEqual(workersIn(result)[0]?.allocations[0]?.files, [
    { path: "app.conf", state: "changed", diff: null },
    { path: "plain", state: "changed", diff: "@@ -1 +1,2 @@\n one\n+password=***\n" },
  ]);
  assert.ok(!text.includes(secret) && !text.includes("guess"));
});

test("diffs are shown as long as there is room for them on all workers together", async (t) => {
  const deploys = await Deploys.make(t);
  const text = (letter: string) => `${letter.repeat(999)}\n`.repeat(60);
  const names = Array.from({ length: 7 }, (_, index) => `f${index}`);
  await deploys.build({ web: { files: Object.fromEntries(names.map((name) => [name, text("x")])) } });
  assert.equal((await deploys.deploy()).error, undefined);
  for (const host of HOSTS)
    for (const name of names) {
      const folder = path.join(deploys.folder(host), "jobs/web");
      writeFileSync(path.join(folder, name), text("y"));
    }
  const { result } = await carryOut(deploys.bucket, "drift", drift);
  const files = workersIn(result).flatMap(({ allocations }) => allocations.flatMap(({ files }) => files));
  const shown = files.filter(({ diff }) => diff !== null);
  assert.equal(files.length, 21);
  assert.equal(shown.length, 8);
});

test("a cancelled look at drift says who was not asked", async (t) => {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: {} });
  const stop = new AbortController();
  stop.abort();
  const { error } = await carryOut(deploys.bucket, "drift", drift, {}, { signal: stop.signal });
  assert.equal(error?.code, "cancelled");
  assert.deepEqual(
    workersIn(error?.details).map(({ outcome }) => outcome),
    ["not_started", "not_started", "not_started"],
  );
});
