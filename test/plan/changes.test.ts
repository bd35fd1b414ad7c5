import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type ChangePolicy,
  changedPaths,
  decide,
  decideAdoption,
  isGateOpen,
  type Promoted,
  type Target,
} from "../../lib/plan/changes.ts";

const files = { Makefile: "755:m", "conf/app.yml": "644:1" };
const target: Target = { hash: "new", version: "2.0.0", files: { ...files, "conf/app.yml": "644:2" } };
const known = { gate: "" as const, unfinished: false, stopped: false };
const same: Promoted = { hash: "new", version: "2.0.0", files: target.files, ...known };
const older: Promoted = { ...same, hash: "old", version: "1.0.0", files };
const never: Promoted = { hash: "", version: "0.0.0", files: {}, ...known };

const always: ChangePolicy = { restartPolicy: "always", restartGlobs: [] };
const reload = (...restartGlobs: string[]): ChangePolicy => ({ restartPolicy: "reload", restartGlobs });
const sync: ChangePolicy = { restartPolicy: "never", restartGlobs: [] };

test("HR-103 HR-104 HR-105 the first rule that applies decides what happens to an allocation", () => {
  const cases: [name: string, promoted: Promoted, policy: ChangePolicy, force: boolean, action: string, disabled?: boolean][] = [
    ["new", never, always, false, "start"],
    ["new, whatever the policy", never, sync, false, "start"],
    ["a first start that was cut off", { ...never, unfinished: true }, always, false, "start"],
    ["complete", same, always, false, "skip"],
    ["complete, forced", same, always, true, "restart"],
    ["complete, forced, reload", same, reload(), true, "reload"],
    ["complete, forced, never", same, sync, true, "sync"],
    ["changed", older, always, false, "restart"],
    ["changed, no glob", older, reload(), false, "reload"],
    ["changed, a glob matches", older, reload("conf/*"), false, "restart"],
    ["changed, another glob", older, reload("bin/**"), false, "reload"],
    ["changed, one file before", { ...older, files: { Makefile: "755:m" } }, reload("conf/*"), false, "restart"],
    ["changed, files unknown", { ...older, files: {} }, reload("**"), false, "reload"],
    ["changed, never", older, sync, false, "sync"],
    ["only the version changed", { ...same, version: "1.0.0" }, always, false, "restart"],
    ["not finished before", { ...same, unfinished: true }, always, false, "restart"],
    ["stopped, whatever the policy", { ...same, stopped: true }, sync, false, "start"],
    ["stopped and changed", { ...older, stopped: true }, reload(), false, "start"],
    ["disabled and stopped, complete", { ...same, stopped: true }, always, false, "skip", true],
    ["disabled, never started", never, always, false, "skip", true],
    ["disabled, never started, forced", never, always, true, "skip", true],
    ["disabled, complete", same, always, false, "skip", true],
    ["disabled, changed", older, always, false, "promote", true],
    ["disabled, only the version changed", { ...same, version: "1.0.0" }, always, false, "promote", true],
    ["disabled, not finished before", { ...same, unfinished: true }, always, false, "promote", true],
    ["disabled, forced", same, always, true, "promote", true],
  ];
  for (const [name, promoted, policy, force, action, disabled = false] of cases)
    assert.equal(decide({ disabled, promoted, target }, policy, { force, syncOnly: false }).action, action, name);
});

test("with sync_only a restart or reload only brings files, for the same reason; anything else stays as it is", () => {
  const cases: [promoted: Promoted, policy: ChangePolicy, disabled: boolean, action: string, reason: string][] = [
    [older, always, false, "sync", "files changed"],
    [older, reload(), false, "sync", "files changed"],
    [older, sync, false, "sync", "files changed"],
    [never, always, false, "start", "new"],
    [{ ...same, stopped: true }, always, false, "start", "it was stopped"],
    [same, always, false, "skip", "already promoted"],
    [older, always, true, "promote", "disabled"],
  ];
  for (const [promoted, policy, disabled, action, reason] of cases) {
    const options = { force: false, syncOnly: true };
    assert.deepEqual(decide({ disabled, promoted, target }, policy, options), { action, reason });
  }
});

test("an allocation is adopted where ops has never done anything to it, and else skipped for the first reason", () => {
  const skip = (reason: string) => ({ action: "skip", reason });
  const began = skip("an earlier deploy or job control began there: deploy it");
  const cases: [disabled: boolean, promoted: Promoted, isKnown: boolean, decision: object][] = [
    [false, never, false, { action: "adopt", reason: "the files there are the rendered ones" }],
    [false, never, true, began],
    [false, same, false, skip("already promoted")],
    [false, same, true, skip("already promoted")],
    [true, same, true, skip("disabled")],
    [true, never, false, skip("disabled")],
  ];
  for (const [disabled, promoted, isKnown, decision] of cases)
    assert.deepEqual(decideAdoption({ disabled, promoted, isKnown }), decision);
});

test("a gate is open while it is pending or failed", () => {
  const open = (["", "pending", "passed", "failed"] as const).filter((gate) => isGateOpen({ ...same, gate }));
  assert.deepEqual(open, ["pending", "failed"]);
});

test("changed paths are those added, altered or removed", () => {
  assert.deepEqual(changedPaths({ a: "1", b: "1", c: "1" }, { a: "1", b: "2", d: "1" }), ["b", "c", "d"]);
});
