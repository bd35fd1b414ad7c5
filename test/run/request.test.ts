import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { type Layout, layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { makePrivateFolder } from "../../lib/core/files.ts";
import { check } from "../../lib/core/shape.ts";
import { RUNS, type RunKind } from "../../lib/run/protocol.ts";
import { type RunRecord, saveRecord } from "../../lib/run/record.ts";
import { repeated, startShape } from "../../lib/run/request.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

async function stored(layout: Layout, kind: RunKind, more: Partial<RunRecord>): Promise<string> {
  const id = uuidV7();
  await makePrivateFolder(runLayout(layout, id).folder);
  await saveRecord(layout, {
    id,
    bucket_id: uuidV7(),
    origin: "cli",
    schedule: null,
    kind,
    approval: null,
    break_glass: null,
    params: {},
    revision: null,
    status: "failed",
    created_at: "",
    started_at: null,
    finished_at: null,
    exit_code: 1,
    signal: null,
    error: null,
    result: null,
    audit: [],
    ...more,
  });
  return id;
}

const bucket = (t: TestContext) => layoutOf(temporaryFolder(t));
const workers = (graded: Record<string, string>) => ({
  workers: Object.entries(graded).map(([worker, outcome]) => ({ worker, outcome })),
});
const GRADES = { a: "ok", b: "failed", c: "unreachable", d: "not_started", e: "cancelled" };

test("a retry asks only the workers that failed, were unreachable, were cut off or never started", async (t) => {
  const layout = bucket(t);
  const params = { command: "x", labels: ["l"], concurrency: 3, ignore_failure: true, timeout_seconds: 9 };
  const id = await stored(layout, "run_command", { params, result: workers(GRADES), status: "cancelled" });
  assert.deepEqual(await repeated(layout, "run_command", id), {
    retry_of: id,
    command: "x",
    concurrency: 3,
    ignore_failure: true,
    timeout_seconds: 9,
    health_check: false,
    workers: ["b", "c", "d", "e"],
    labels: undefined,
  });
  for (const kind of ["worker_facts", "worker_uptime", "worker_sysstat"] as const) {
    const run = await stored(layout, kind, { result: workers(GRADES) });
    assert.deepEqual((await repeated(layout, kind, run)).workers, ["b", "c", "d", "e"]);
  }
  const trust = { a: "trusted", b: "changed", c: "unreachable", d: "not_needed", e: "unchanged", f: "replaced" };
  const run = await stored(layout, "worker_trust", { params: { force: true }, result: workers(trust) });
  const { workers: left, force } = await repeated(layout, "worker_trust", run);
  assert.deepEqual([left, force], [["b", "c"], true]);
});

test("a retry of a deploy or a health check is about the jobs that were not all well", async (t) => {
  const layout = bucket(t);
  const job = (name: string, outcome: string, ...allocations: string[]) => ({
    job: name,
    outcome,
    allocations: allocations.map((one, index) => ({ worker: `w${index}`, outcome: one })),
  });
  const jobs = [
    job("a", "deployed", "changed", "ok", "skipped"),
    job("b", "deployed", "changed", "unreachable"),
    ...[job("c", "failed", "changed", "ok"), job("d", "not_started"), job("e", "skipped"), job("f", "cancelled")],
  ];
  const params = { force: true, build: true };
  const id = await stored(layout, "deploy", { params, result: { jobs, reconciled: [] } });
  const again = await repeated(layout, "deploy", id);
  assert.deepEqual([again.jobs, again.force, again.build], [["b", "c", "d", "f"], true, false]);
  assert.deepEqual(again.force_only, ["b@w1", "c@w0", "c@w1"], "what is complete is not forced again");
  const ofPlan = { jobs, reconciled: [], plan: { force: false, sync_only: true, differences: [] } };
  const planned = await stored(layout, "deploy", { params: { plan: id }, result: ofPlan });
  const rest = await repeated(layout, "deploy", planned);
  assert.deepEqual([rest.plan, rest.jobs, rest.sync_only], [undefined, ["b", "c", "d", "f"], true]);
  assert.equal(rest.force_only, undefined);
  const gone = { jobs: [jobs[0]], reconciled: [{ outcome: "unreachable" }] };
  const whole = await repeated(layout, "deploy", await stored(layout, "deploy", { params, result: gone }));
  assert.deepEqual([whole.jobs, whole.force, whole.build], [undefined, true, false]);

  const health = { workers: [], jobs: [job("a", "ok"), job("b", "failed"), job("c", "unreachable")] };
  const check = await stored(layout, "health_check", { params: { wait: true }, result: health });
  const asked = await repeated(layout, "health_check", check);
  assert.deepEqual([asked.jobs, asked.wait], [["b", "c"], true]);
  const lost = { ...workers({ a: "unreachable" }), jobs: [job("a", "ok")] };
  const other = await stored(layout, "health_check", { result: lost });
  assert.equal((await repeated(layout, "health_check", other)).jobs, undefined);
});

test("a retry of a change of keys goes on with what is left, and with nothing of a dry run", async (t) => {
  const layout = bucket(t);
  const left = async (kind: RunKind, params: object, result: object) => {
    const id = await stored(layout, kind, { params: { ...params }, result });
    return await repeated(layout, kind, id).then(
      ({ retry_of }) => retry_of === id,
      ({ code }) => code,
    );
  };
  for (const [kind, result] of [
    ["ssh_key_rotate", { old_kept: true }],
    ["ca_rotate", { taken: false }],
  ] as const) {
    assert.equal(await left(kind, {}, result), true);
    assert.equal(await left(kind, { dry_run: false }, result), true);
    assert.equal(await left(kind, { dry_run: true }, result), "retry_impossible");
  }
  assert.equal(await left("kv_rekey", {}, {}), "retry_impossible");
});

test("a retry of job control is about the allocations that were not ok; over HTTP about those of one job", async (t) => {
  const layout = bucket(t);
  const job = (name: string, graded: Record<string, string>) => ({ job: name, ...jobGrade(graded) });
  const jobGrade = (graded: Record<string, string>) => ({
    outcome: Object.values(graded).every((one) => one === "ok" || one === "skipped") ? "ok" : "failed",
    allocations: workers(graded).workers,
  });
  const web = job("web", { ...GRADES, f: "skipped" });
  const params = { jobs: ["web", "DB"], health_check: true, target: "dump" };
  for (const kind of [...["job_start", "job_stop", "job_restart", "job_reload", "job_status", "job_run"]] as RunKind[]) {
    const { target: _, ...others } = params;
    const asked = kind === "job_run" ? params : others;
    const result = { jobs: [web, job("db", { a: "ok" })] };
    const id = await stored(layout, kind, { params: asked, result });
    const again = await repeated(layout, kind, id);
    assert.deepEqual([again.jobs, again.allocations, again.health_check], [...[["web"], ["b", "c", "d", "e"], true]]);
  }
  const both = { jobs: [web, job("db", { a: "unreachable", b: "ok" })] };
  const id = await stored(layout, "job_run", { params, result: both, status: "cancelled" });
  const all = await repeated(layout, "job_run", id);
  assert.deepEqual(
    [all.jobs, all.allocations, all.target],
    [["web", "db"], ["web@b", "web@c", "web@d", "web@e", "db@a"], "dump"],
  );
  const one = await repeated(layout, "job_run", id, ["db"]);
  assert.deepEqual([one.jobs, one.allocations], [["db"], ["a"]]);
  await assert.rejects(repeated(layout, "job_run", id, ["other"]), { code: "retry_impossible" });
  const killed = await stored(layout, "job_run", { params: { ...params, allocations: ["web@b", "db@a", "c"] } });
  const whole = await repeated(layout, "job_run", killed, ["db"]);
  assert.deepEqual([whole.jobs, whole.allocations], [["db"], ["db@a", "c"]]);
  await assert.rejects(repeated(layout, "job_run", killed, ["other"]), { code: "retry_impossible" });
});

test("a run that left no result is repeated as a whole, also one that was a retry itself", async (t) => {
  const layout = bucket(t);
  const params = { retry_of: uuidV7(), command: "x", workers: ["a", "b"] };
  const id = await stored(layout, "run_command", { params });
  const { retry_of, command, workers } = await repeated(layout, "run_command", id);
  assert.deepEqual([retry_of, command, workers], [id, "x", ["a", "b"]]);
});

test("what cannot be repeated is refused with the reason", async (t) => {
  const layout = bucket(t);
  const refused = async (kind: RunKind, more: Partial<RunRecord>, message: RegExp, as: RunKind = kind) =>
    assert.rejects(repeated(layout, as, await stored(layout, kind, more)), { code: "retry_impossible", message });
  await refused("run_command", { params: { command: "echo ***" } }, /stored without the secrets/);
  await refused("deploy", {}, /a run of the kind deploy/, "run_command");
  await refused("deploy", { status: "running" }, /has not ended/);
  await refused("deploy", { status: "succeeded" }, /nothing of it is left/);
  await refused("deploy", { result: { waves: [] } }, /nothing of it is left/);
  await refused("run_command", { params: { command: "x" }, result: workers({ a: "ok" }) }, /nothing of it/);
  for (const id of [uuidV7(), "../../x"]) await assert.rejects(repeated(layout, "deploy", id), { code: "run_not_found" });
});

test("retry_of goes alone, and stands for what is required otherwise", () => {
  const shape = startShape("run_command");
  const problems = (value: unknown) => {
    const checked = check(shape, value);
    return checked.ok ? [] : checked.problems.map(({ path }) => path);
  };
  assert.deepEqual(problems({ retry_of: uuidV7() }), []);
  assert.deepEqual(problems({ retry_of: uuidV7(), command: "x" }), ["command"]);
  assert.deepEqual(problems({ retry_of: "x" }), ["retry_of"]);
  assert.deepEqual(problems({}), ["command"]);
  assert.equal(startShape("build"), RUNS.build.parameters, "nothing stands for those of a build");
});

test("each outcome that is well needs no repetition, in the jobs and in their allocations", async (t) => {
  const layout = bucket(t);
  const outcomes = ["ok", "deployed", "changed", "skipped", "disabled", "failed", "trusted", "unheard of"];
  const jobs = outcomes.map((outcome) => ({ job: outcome, outcome, allocations: [{ worker: "w", outcome: "ok" }] }));
  const inner = outcomes.map((outcome) => ({ job: `of ${outcome}`, outcome: "ok", allocations: [{ worker: "w", outcome }] }));
  const deploy = await stored(layout, "deploy", { result: { jobs: [...jobs, ...inner] } });
  const bad = ["failed", "trusted", "unheard of"];
  assert.deepEqual((await repeated(layout, "deploy", deploy)).jobs, [...bad, ...bad.map((one) => `of ${one}`)]);
  const graded = ["ok", "trusted", "unchanged", "replaced", "not_needed", "changed", "failed"];
  const workers = graded.map((outcome) => ({ worker: outcome, outcome }));
  const trust = await stored(layout, "worker_trust", { result: { workers } });
  assert.deepEqual((await repeated(layout, "worker_trust", trust)).workers, ["changed", "failed"]);
  const health = await stored(layout, "health_check", { result: { jobs: "none", workers: workers.slice(0, 5) } });
  await assert.rejects(repeated(layout, "health_check", health), { code: "retry_impossible" });
});

test("the part of job control about some jobs is found by their names in any case, also where no result was left", async (t) => {
  const layout = bucket(t);
  const graded = (job: string, ...outcomes: string[]) => {
    return { job, outcome: "failed", allocations: outcomes.map((outcome, index) => ({ worker: `w${index}`, outcome })) };
  };
  const params = { jobs: [" Web ", "DB"], allocations: ["Web @w1", "db@w2", "w3"], retry_of: uuidV7() };
  const killed = await stored(layout, "job_stop", { params });
  const web = await repeated(layout, "job_stop", killed, ["web"]);
  assert.deepEqual([web.jobs, web.allocations, web.retry_of], [["web"], ["Web @w1", "w3"], killed]);
  const whole = await repeated(layout, "job_stop", killed);
  assert.deepEqual([whole.jobs, whole.allocations], [params.jobs, params.allocations]);
  const plain = await stored(layout, "job_stop", { params: { jobs: ["web"] } });
  assert.deepEqual(await repeated(layout, "job_stop", plain, ["web"]), {
    ...{ retry_of: plain, jobs: ["web"], allocations: undefined, health_check: false, forget: false },
  });
  const ended = await stored(layout, "job_stop", {
    params,
    result: { jobs: [graded("WEB", "ok", "failed"), graded("db", "failed")] },
  });
  const part = await repeated(layout, "job_stop", ended, ["web"]);
  assert.deepEqual([part.jobs, part.allocations], [["WEB"], ["w1"]]);
  const empty = await stored(layout, "job_stop", { params, result: {}, status: "succeeded" });
  await assert.rejects(repeated(layout, "job_stop", empty, ["web"]), { message: /nothing of it is left to be done$/ });
});

test("why a run cannot be repeated is told with its id and the kind that was asked for", async (t) => {
  const layout = bucket(t);
  const running = await stored(layout, "deploy", { status: "running" });
  await assert.rejects(repeated(layout, "deploy", running), {
    message: `Cannot repeat run ${running} as deploy: it has not ended`,
  });
  await assert.rejects(repeated(layout, "build", running), {
    message: `Cannot repeat run ${running} as build: it is a run of the kind deploy`,
  });
  const broken = await stored(layout, "deploy", {});
  writeFileSync(runLayout(layout, broken).record, '{"kind": "deploy"');
  await assert.rejects(repeated(layout, "deploy", broken), { message: /as deploy: server-run\.json of this run is damaged: / });
  await assert.rejects(repeated(layout, "deploy", "none"), {
    code: "run_not_found",
    message: "Cannot repeat run none: this bucket has no such run",
  });
  const cut = await stored(layout, "kv_rekey", { params: { dry_run: true } });
  assert.deepEqual(await repeated(layout, "kv_rekey", cut), { retry_of: cut, dry_run: true });
});

test("where nothing can stand for the parameters of a start they are all that it takes", () => {
  assert.equal(startShape("build"), RUNS.build.parameters);
});

test("what stands for the parameters of a start is an id of 36 characters, and goes alone", () => {
  const id = uuidV7();
  const problems = (kind: RunKind, value: unknown) => {
    const checked = check(startShape(kind), value);
    return checked.ok ? "" : checked.problems.map(({ path, message }) => `${path}: ${message}`).join();
  };
  for (const kind of ["deploy", "hooks", "run_command"] as const) assert.equal(problems(kind, { proposal: id }), "", kind);
  for (const wrong of [id.slice(1), `${id}0`, id.replace(/^./, "G"), id.replace(/.$/, "g"), 5])
    assert.match(problems("deploy", { proposal: wrong }), /^proposal: /, String(wrong));
  assert.match(problems("deploy", { proposal: id, retry_of: id }), /^proposal: /);
  assert.match(problems("deploy", { proposal: id, jobs: ["web"] }), /^jobs: /);
  assert.match(problems("health_check", { proposal: id }), /^proposal: /);
  assert.match(problems("hooks", { retry_of: id }), /^(retry_of|hook): /);
  assert.match(problems("run_command", "text"), /^: /);
  const { properties, required, oneOf, allOf } = startShape("run_command").schema as Record<string, unknown>;
  assert.deepEqual(Object.keys(properties as object).slice(-2), ["retry_of", "proposal"]);
  assert.deepEqual(
    [required, oneOf],
    [undefined, [["command"], ["retry_of"], ["proposal"]].map((names) => ({ required: names }))],
  );
  assert.deepEqual((allOf as unknown[]).at(-1), { not: { required: ["retry_of", "proposal"] } });
  assert.equal((startShape("deploy").schema as { oneOf?: unknown }).oneOf, undefined, "a deploy has nothing that is required");
});
