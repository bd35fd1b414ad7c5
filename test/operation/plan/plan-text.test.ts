import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobPlan } from "../../../lib/operation/plan/plan-job.ts";
import { describeAdoption, describePlan, reasonFor } from "../../../lib/operation/plan/plan-text.ts";
import type { DeployPlan, PlannedAllocation, PlannedFile, PlannedJob } from "../../../lib/plan/deploy-plan.ts";

const changed = (path: string, more: Partial<PlannedFile> = {}): PlannedFile => {
  return { path, change: "changed", from: "644:1", to: "644:2", ...more };
};

const on = (worker: string, more: Partial<PlannedAllocation> = {}) =>
  ({
    worker,
    action: "restart",
    reason: "files changed",
    is_gate_open: false,
    files: [],
    drift: null,
    ...more,
  }) as PlannedAllocation;

const jobOf = (more: Partial<PlannedJob>): PlannedJob => {
  return {
    job: "web",
    version: "1.0",
    outcome: "roll_out",
    reason: "needs work",
    hooks: [],
    phases: [],
    allocations: [],
    ...more,
  };
};

function described(jobs: readonly PlannedJob[], more: Partial<DeployPlan> = {}): string[] {
  const plan = { options: {}, reconcile: [], waves: [{ seq: 0, update_seq: 1, jobs }], unreachable: [], ...more };
  return describePlan(plan as unknown as DeployPlan);
}

test("a plan tells what is reconciled, then each wave with its jobs, hooks, batches and allocations", () => {
  const job = jobOf({
    hooks: [{ event: "pre_deploy", names: ["a", "b"] }],
    phases: [{ phase: "update", action: "restart", batches: [["w1", "w2"], ["w3"]] }],
    allocations: [
      on("w1", {
        is_gate_open: true,
        files: [changed("x"), changed("y", { change: "added" }), changed("z", { change: "removed" })],
      }),
      on("w2", { action: "skip", reason: "already promoted" }),
      on("w3", { action: "skip", reason: "already promoted", is_gate_open: true }),
    ],
  });
  const idle = jobOf({ job: "db", outcome: "skip", reason: "already promoted", hooks: job.hooks, phases: job.phases });
  const reconcile: DeployPlan["reconcile"] = [
    { job: "old", worker: "w1", action: "stop", hooks: ["h", "i"] },
    { job: "old", worker: "w2", action: "remove", hooks: [] },
    { job: "old", worker: "w3", action: "remove", hooks: ["h"] },
  ];
  assert.deepEqual(described([job, idle], { reconcile }), [
    "reconcile: stop old on w1, then h, i",
    "reconcile: remove old on w2",
    "reconcile: remove old on w3, then h",
    "wave 0",
    "  web 1.0: deploy required, needs work",
    "  web: hooks for pre_deploy: a, b",
    "  web: restart, batch 1 of 2: w1, w2",
    "  web: restart, batch 2 of 2: w3",
    "    w1: restart, files changed, its health check comes first: ~x +y -z",
    "    w3: skip, already promoted, its health check comes first",
    "  db 1.0: skip, already promoted",
    "1 of 2 jobs need work",
  ]);
  assert.equal(described([jobOf({})]).at(-1), "1 of 1 job needs work");
  assert.equal(described([jobOf({ outcome: "failed", reason: "it broke" })])[1], "  web 1.0: would fail, it broke");
});

test("each change of a file is shown once, with its workers, as `diff -u` shows it", () => {
  const file = changed("conf/a", { diff: "@@ -1 +1 @@\n-1\n+2\n" });
  const allocations = [
    on("w1", { files: [file, changed("b", { note: "binary" })] }),
    on("w2", { files: [file, changed("c", { from: null, change: "added", diff: "@@ -0,0 +1 @@\n+1\n", note: "new" })] }),
    on("w3", { files: [changed("conf/a", { to: null, change: "removed", diff: "-1\n" }), changed("unknown")] }),
    on("w4", { files: [{ ...file, from: "644:0", note: "from another" }] }),
  ];
  const lines = described([jobOf({ allocations })]);
  assert.deepEqual(lines.slice(lines.indexOf("    web/conf/a on w1, w2:"), -1), [
    "    web/conf/a on w1, w2:",
    "--- jobs/web/conf/a\tpromoted",
    "+++ jobs/web/conf/a\tplanned",
    "@@ -1 +1 @@",
    "-1",
    "+2",
    "    web/b on w1: binary",
    "    web/c on w2: new",
    "--- /dev/null",
    "+++ jobs/web/c\tplanned",
    "@@ -0,0 +1 @@",
    "+1",
    "    web/conf/a on w3:",
    "--- jobs/web/conf/a\tpromoted",
    "+++ /dev/null",
    "-1",
    "    web/conf/a on w4: from another",
    ...["--- jobs/web/conf/a\tpromoted", "+++ jobs/web/conf/a\tplanned", "@@ -1 +1 @@", "-1", "+2"],
  ]);
});

test("of an allocation the first 20 files are named, and of a change the first 20 workers", () => {
  const files = Array.from({ length: 21 }, (_, index) => changed(`f${index}`));
  assert.match(described([jobOf({ allocations: [on("w", { files: files.slice(0, 20) })] })])[2] ?? "", / ~f19$/);
  assert.match(described([jobOf({ allocations: [on("w", { files })] })])[2] ?? "", / ~f19 and 1 more$/);
  const note = changed("a", { note: "binary" });
  const allocations = Array.from({ length: 22 }, (_, index) => on(`w${index}`, { files: [note] }));
  assert.match(described([jobOf({ allocations })]).at(-2) ?? "", /, w19, and 2 more: binary$/);
});

test("diffs end in Activity once there are 2,000 lines of them, which is told", () => {
  const long = (path: string, lines: number) => changed(path, { diff: "+x\n".repeat(lines) });
  const shown = (...files: PlannedFile[]) => {
    const lines = described([jobOf({ allocations: [on("w", { files })] })]);
    return [lines.filter((line) => line.startsWith("    web/")).length, lines.includes("more diffs are in plan.json")];
  };
  assert.deepEqual(shown(long("a", 1996), long("b", 10)), [2, false]);
  assert.deepEqual(shown(long("a", 1997), long("b", 10)), [1, true]);
  assert.deepEqual(shown(long("a", 1997), changed("b")), [1, false], "what shows nothing is not missed");
  assert.deepEqual(shown(long("a", 1997), changed("b", { note: "binary" })), [1, true]);
});

test("what was changed by hand is told, and whether a deploy leaves it so", () => {
  const drifted = (...files: { path: string; state: string; sha256: string | null }[]) =>
    ({ outcome: "drifted", is_unfinished: false, files: files.map((one) => ({ ...one, diff: null })) }) as never;
  const told = (more: Partial<PlannedAllocation>) => described([jobOf({ allocations: [on("w", more)] })]).slice(2, -1);
  const drift = drifted({ path: "a", state: "changed", sha256: "x" });
  assert.deepEqual(told({ drift }), ["    w: restart, files changed", "    w: changed by hand", "      changed a"]);
  assert.deepEqual(told({ action: "skip", drift }), [
    "    w: changed by hand, and stays so: only --force puts it back",
    "      changed a",
  ]);
  const folder = drifted({ path: "a", state: "changed", sha256: "x" }, { path: "b", state: "changed", sha256: null });
  assert.equal(told({ action: "skip", drift: folder })[0], "    w: changed by hand, and stays so");
  assert.deepEqual(told({ action: "skip", drift: { outcome: "in_sync", is_unfinished: false, files: [] } }), []);
});

test("an adoption tells what is adopted, and leaves alone what differs, with the differences", () => {
  const files = [changed("a", { diff: "-1\n+2\n" })];
  const left = on("w2", { action: "leave", reason: "1 file differs: a", files });
  const other = on("w3", { action: "leave", reason: "1 file differs: a", files });
  const job = jobOf({ reason: "1 of 3 allocations", allocations: [on("w1", { action: "adopt", reason: "equal" }), left, other] });
  assert.deepEqual(described([job], { options: { adopt: true } as DeployPlan["options"] }), [
    "wave 0",
    "  web 1.0: adopt, 1 of 3 allocations",
    "    w1: adopt, equal",
    "    w2: leave, 1 file differs: a",
    "    w3: leave, 1 file differs: a",
    "    web/a on w2, w3:",
    "--- jobs/web/a\tthere",
    "+++ jobs/web/a\tplanned",
    "-1",
    "+2",
    "1 of 3 allocations can be adopted",
  ]);
});

test("why a job rolls out or is skipped is told in a few words", () => {
  const plan = (needsWork: boolean, ...actions: string[]) =>
    ({ needsWork, allocations: actions.map((action) => ({ decision: { action } })) }) as unknown as JobPlan;
  assert.equal(reasonFor(plan(true), {}), "no allocations");
  assert.deepEqual([reasonFor(plan(true, "start"), {}), reasonFor(plan(false, "skip"), {})], ["needs work", "already promoted"]);
  assert.equal(reasonFor(plan(true, "adopt", "skip", "skip"), { adopt: true }), "1 of 3 allocations");
  assert.equal(reasonFor(plan(false, "skip"), { adopt: true }), "nothing to adopt");
  const none = { job: { name: "web", version: "1.0" }, allocations: [], needsWork: false } as unknown as JobPlan;
  assert.deepEqual(describeAdoption(none), ["  web 1.0: skip, no allocations"]);
  const one = (worker: string, action: string, differs: PlannedFile[]) => ({
    ...{ allocation: { worker, disabled: false }, decision: { action, reason: action }, differs },
    ...{ promoted: { hash: "", version: "", files: {} }, target: { hash: "h", version: "1", files: {} } },
  });
  const allocations = [one("w1", "adopt", []), one("w2", "skip", [changed("a", { diff: "-1\n+2\n" })])];
  assert.deepEqual(describeAdoption({ ...none, needsWork: true, allocations } as unknown as JobPlan), [
    ...["  web 1.0: adopt, 1 of 2 allocations", "    w1: adopt, adopt", "    w2: leave, skip", "    web/a on w2:"],
    ...["--- jobs/web/a\tthere", "+++ jobs/web/a\tplanned", "-1", "+2"],
  ]);
});
