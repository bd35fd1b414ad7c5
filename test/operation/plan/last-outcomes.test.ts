import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { catalogAllocations } from "../../../lib/bucket/catalog/catalog.ts";
import { countFailed } from "../../../lib/bucket/catalog/info.ts";
import { beginChange } from "../../../lib/bucket/catalog/promotions.ts";
import { catalogView, type ViewQuery } from "../../../lib/bucket/catalog/views.ts";
import { control } from "../../../lib/operation/control/job-control.ts";
import { noteOutcomes } from "../../../lib/operation/plan/last-outcomes.ts";
import { collectGarbage } from "../../../lib/operation/tend/gc.ts";
import type { ControlKind } from "../../../lib/run/protocol.ts";
import { PROGRAM } from "../../../scripts/local-server.ts";
import { Deploys, HOSTS } from "../../helpers/deploys.ts";
import { hooksOf } from "../../helpers/hooks.ts";
import { carryOut } from "../../helpers/operations.ts";
import { until } from "../../helpers/temporary.ts";

const [A, B, C] = HOSTS;
const SECRET = "hunter2-hunter2";

/** A target fails where a file of its name lies beside jobs/, and waits where a file `held` does. */
const MAKEFILE = `start restart reload stop:
	@if [ -f ../../held ]; then touch ../../begun; sleep 300; fi
	@if [ -f ../../$@ ]; then echo "no licence for ${SECRET}" >&2; exit 3; fi
`;
const CHECK = { checks: [{ type: "ssh", command: "! [ -f sick ]" }], wait: { attempts: 1 } };

async function setUp(t: TestContext, manifest: Record<string, unknown> = {}, files: Record<string, string> = {}) {
  const deploys = await Deploys.make(t);
  const build = (release: string, options: { hosts?: readonly string[]; disabled?: string[] } = {}) => {
    const web = { manifest: { version: "1.0.0", ...manifest }, files: { Makefile: MAKEFILE, release, ...files } };
    const { hosts = HOSTS, disabled = [] } = options;
    return deploys.build({ web }, { hosts, disabled: disabled.length > 0 ? { web: disabled } : {} });
  };
  await build("one");
  assert.equal((await deploys.deploy()).error, undefined);
  await build("two");
  const { db } = deploys.bucket;
  const rows = (query: ViewQuery = {}) => catalogView(db, "deployments", query, { limit: 10 }).items;
  const last = (query: ViewQuery = {}) => rows(query).map((one) => `${one.last_action} ${one.last_outcome}`);
  const note = (host: string, name: string) => {
    const file = path.join(deploys.folder(host), name);
    writeFileSync(file, "");
    return () => rmSync(file);
  };
  const run = (kind: ControlKind, params: Record<string, unknown> = {}, signal?: AbortSignal) =>
    carryOut(deploys.bucket, kind, control(kind), { jobs: ["web"], ...params }, { ...(signal && { signal }), secrets: [SECRET] });
  return { deploys, build, rows, last, note, run, failed: () => countFailed(db) };
}

test("an allocation whose restart failed differs from its neighbours, until the next action on it succeeds", async (t) => {
  const { deploys, last, rows, note, failed } = await setUp(t);
  assert.deepEqual([last(), failed()], [["start changed", "start changed", "start changed"], 0]);
  const mend = note(B, "restart");
  const { error } = await deploys.deploy();
  assert.notEqual(error, undefined);
  assert.deepEqual(last(), ["restart changed", "restart failed", "sync changed"], "the last was only synced");
  assert.equal(failed(), 1);
  const [bad] = rows({ outcome: ["failed", "unreachable"] });
  assert.deepEqual([bad?.worker_ip, rows({ outcome: ["changed"] }).length], [B, 2]);
  assert.match(String(bad?.last_run), /^[0-9a-f-]{36}$/);
  assert.match(String(bad?.last_reason), /`make restart` of job web on 127\.0\.0\.2 failed/);
  mend();
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual([last(), failed()], [["restart changed", "restart changed", "restart changed"], 0]);
  assert.deepEqual(rows({ outcome: ["changed"] })[1]?.last_reason, "");
  assert.throws(() => rows({ outcome: ["faild"] }), {
    code: "invalid_request",
    message: 'outcome: expected one of unknown, changed, ok, failed, unreachable, cancelled, found "faild"',
  });
});

test("a reason is masked before it is cut at 2,048 characters", async (t) => {
  const { deploys, rows } = await setUp(t);
  const [one] = rows();
  const context = deploys.bucket.context("deploy");
  context.log.redactor.add(SECRET);
  const reason = `${"x".repeat(2_040)}${SECRET}${"y".repeat(100)}`;
  noteOutcomes(context, [{ id: String(one?.allocation_id), action: "restart", outcome: "failed", reason }]);
  context.log.close();
  const [{ last_reason } = { last_reason: "" }] = rows();
  assert.equal(last_reason, `${"x".repeat(2_040)}***${"y".repeat(5)}…`);
});

test("job control notes what it did, what it could not do, and why; secrets are masked; a status is no action", async (t) => {
  const { deploys, last, rows, note, run, failed } = await setUp(t);
  assert.equal((await deploys.deploy()).error, undefined);
  note(A, "reload");
  await run("job_reload");
  assert.deepEqual(last(), ["reload failed", "restart changed", "restart changed"]);
  assert.doesNotMatch(JSON.stringify(rows()), new RegExp(SECRET));
  await run("job_status");
  assert.deepEqual([last()[0], failed()], ["reload failed", 1]);
  rmSync(path.join(deploys.folder(C), "worker.json"));
  await run("job_restart", { allocations: [A, C] });
  assert.deepEqual(last(), ["restart ok", "restart changed", "restart failed"]);
  assert.match(String(rows()[2]?.last_reason), /worker\.json is missing there/);
});

test("a failed gate is the outcome of the change; what was put back says so", async (t) => {
  const { deploys, last, note } = await setUp(t, { health_check: CHECK });
  const heal = note(B, "sick");
  await deploys.deploy();
  assert.deepEqual(last(), ["restart changed", "restart failed", "sync changed"]);
  heal();
  assert.equal((await deploys.deploy()).error, undefined);
  const other = await setUp(t, {
    on_failure: "restore",
    health_check: { ...CHECK, checks: [{ type: "ssh", command: "! { [ -f sick ] && grep -q two jobs/web/release; }" }] },
  });
  other.note(B, "sick");
  await other.deploys.deploy();
  assert.deepEqual(other.last(), ["restart changed", "restored failed", "restore changed"]);
  assert.match(String(other.rows()[1]?.last_reason), /after 1 attempt/);
});

test("where a script for job_control fails, unchanged allocations of its batch keep what is noted of them", async (t) => {
  const script = `import json, os, pathlib, sys
workers = json.load(open(os.environ["OPS_WORKERS_FILE"]))["workers"]
if (pathlib.Path(workers[os.environ["ALLOCATION_IP"]]["folder"]) / "sick").exists(): sys.exit("no licence")
`;
  const manifest = { max_concurrent_upgrades: 3, ...hooksOf({ act: ["job_control"] }) };
  const { deploys, last, note } = await setUp(t, manifest, { "_hooks/act.py": script });
  assert.equal((await deploys.deploy()).error, undefined);
  // As a deploy leaves a worker when it is killed during the change there.
  const { db } = deploys.bucket;
  beginChange(db, "web", [catalogAllocations(db).find(({ worker }) => worker === A)?.id ?? ""]);
  const mend = note(A, "sick");
  const { error, jobs } = await deploys.deploy();
  assert.match(error?.message ?? "", /no licence/);
  assert.deepEqual(
    jobs[0]?.allocations.map((one) => `${one.action} ${one.outcome}`),
    ["restart failed", "skip skipped", "skip skipped"],
  );
  assert.deepEqual(last(), ["restart failed", "restart changed", "restart changed"]);
  mend();
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual(last(), ["restart changed", "restart changed", "restart changed"]);
});

test("the last action on a disabled allocation is its stop, on a removed one its removal, which gc forgets", async (t) => {
  const { deploys, build, last, note, failed } = await setUp(t);
  assert.equal((await deploys.deploy()).error, undefined);
  const mend = note(A, "stop");
  await build("two", { hosts: [A, B], disabled: [A] });
  assert.notEqual((await deploys.deploy()).error, undefined);
  assert.deepEqual([last(), failed()], [["stop failed", "restart changed", "remove changed"], 1]);
  mend();
  assert.equal((await deploys.deploy()).error, undefined);
  assert.deepEqual([last(), failed()], [["stop changed", "restart changed", "remove changed"], 0]);
  const done = await carryOut(deploys.bucket, "gc", collectGarbage, {});
  assert.equal(done.error, undefined);
  assert.equal(deploys.bucket.db.all("SELECT * FROM last_outcome").length, 2);
});

test("an action that a cancel ended is cancelled, one whose run was killed unknown", async (t) => {
  const { deploys, last, rows, note, run } = await setUp(t);
  const release = note(B, "held");
  const begun = path.join(deploys.folder(B), "begun");
  const cancel = new AbortController();
  const running = deploys.deploy({}, cancel.signal);
  await until("the second batch to begin", () => existsSync(begun));
  cancel.abort();
  await running;
  assert.deepEqual(last(), ["restart changed", "restart cancelled", "sync changed"]);
  rmSync(begun);
  const child = spawn(process.execPath, [PROGRAM, "deploy", "--bucket-dir", deploys.bucket.dir], { stdio: "ignore" });
  const exit = once(child, "exit");
  t.after(() => child.kill("SIGKILL"));
  await until("the second batch to begin", () => existsSync(begun));
  assert.deepEqual(last(), ["restart changed", "restart unknown", "sync changed"]);
  child.kill("SIGKILL");
  await exit;
  assert.deepEqual(
    rows({ outcome: ["unknown"] }).map(({ worker_ip }) => worker_ip),
    [B],
  );
  release();
  assert.equal((await run("job_restart")).error, undefined);
  assert.deepEqual(last(), ["restart ok", "restart ok", "restart ok"]);
});
