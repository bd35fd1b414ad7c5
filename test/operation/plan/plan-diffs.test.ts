import assert from "node:assert/strict";
import { test } from "node:test";
import { Redactor } from "../../../lib/core/redact.ts";
import type { AllocationPlan } from "../../../lib/operation/plan/plan-job.ts";
import { planDiffs } from "../../../lib/operation/plan/plan-text.ts";
import type { PlannedFile } from "../../../lib/plan/deploy-plan.ts";

interface Side {
  text: string;
  /** What was read for it; null where it is no secret. */
  secrets?: readonly string[] | null;
}

/** Plans diffs in a bucket that keeps these contents, by their sum. */
function planner(kept: Record<string, Side> = {}) {
  const sealed = (of: Side) => [of.text, ...(of.secrets ?? [])].map((part) => Buffer.from(part).toString("base64")).join(" ");
  const rowOf = (side: Side | undefined) =>
    side && { sealed: side.secrets ? 1 : 0, size_bytes: 0, content: Buffer.from(side.secrets ? sealed(side) : side.text) };
  const db = {
    get: (_sql: string, sum: string) => {
      if (sum === "damaged") throw new Error("the database is damaged");
      return rowOf(kept[sum]);
    },
  };
  const kv = { unseal: (_namespace: string, _key: string, text: string) => text };
  const add = planDiffs({ db, kv, log: { redactor: new Redactor() } } as never);
  return (file: Partial<PlannedFile>, after?: Side, { job = "web", worker = "w0" } = {}) => {
    const planned = { path: "a", change: "changed", from: "644:1", to: "644:2", ...file } as PlannedFile;
    const secret = { isSecret: Boolean(after?.secrets), ...(after?.secrets && { secrets: after.secrets }) };
    const files = after ? [{ path: planned.path, content: Buffer.from(after.text), ...secret }] : [];
    add({ allocation: { job, worker }, tree: { files } } as unknown as AllocationPlan, [planned]);
    const { diff, note } = planned;
    return diff === undefined ? { note } : { diff };
  };
}

const plain = (text: string): Side => ({ text, secrets: null });
const added = { from: null, change: "added" } as const;
const LIMIT = 64 * 1024;
const UNMASKABLE = { note: "a secret was read for it that cannot be masked" };

test("a file of a plan has the diff from what is promoted to what is planned, or says why not", () => {
  const plan = planner({ 1: plain("1\n"), zero: plain("a\0"), long: plain("x".repeat(LIMIT + 1)) });
  const rows: [what: string, file: Partial<PlannedFile>, after: Side | undefined, shown: object][] = [
    ["changed", {}, plain("2\n"), { diff: "@@ -1 +1 @@\n-1\n+2\n" }],
    ["added", added, plain("2\n"), { diff: "@@ -0,0 +1 @@\n+2\n" }],
    ["removed", { to: null }, undefined, { diff: "@@ -1 +0,0 @@\n-1\n" }],
    ["another mode", { from: "644:1", to: "755:1" }, plain("1\n"), { note: "its mode changes from 644 to 755" }],
    ["not kept", { from: "644:9" }, plain("1\n"), { note: "the content 9 of a promoted file is not kept any more" }],
    ["binary", { path: "b" }, plain("a\0"), { note: "binary" }],
    ["binary before", { from: "644:zero" }, plain("a\n"), { note: "binary" }],
    ["too long", { path: "c" }, plain("x".repeat(LIMIT + 1)), { note: "longer than 64 KiB" }],
    ["too long before", { from: "644:long" }, plain("x"), { note: "longer than 64 KiB" }],
    ["empty", { ...added, path: "d" }, plain(""), { note: "empty" }],
  ];
  for (const [what, file, after, shown] of rows) assert.deepEqual(plan(file, after), shown, what);
  assert.ok("diff" in plan({ ...added, path: "e" }, plain("x".repeat(LIMIT))));
  assert.throws(() => plan({ from: "644:damaged" }, plain("x")), /the database is damaged/);
});

test("a file with a secret is shown masked where all of them stand in it as they would in the log", () => {
  const secret = (text: string, ...secrets: string[]): Side => ({ text, secrets });
  const show = (before: Side | undefined, after: Side) => planner(before && { 1: before })(before ? {} : added, after);
  const line = (text: string) => ({ diff: `@@ -0,0 +1 @@\n+${text}\n` });
  assert.deepEqual(show(undefined, secret("a hunter-two-2\n", "hunter-two-2")), line("a ***"));
  assert.deepEqual(show(undefined, secret("hunter-two-2 other-word\n", "hunter-two-2", "other-word")), line("*** ***"));
  for (const after of [
    secret("HUNTER-TWO-2\n", "hunter-two-2"),
    secret("hunter-two-2\n", "hunter-two-2", "other-word"),
    secret("abc\n", "abc"),
    secret("nothing was read\n"),
  ])
    assert.deepEqual(show(undefined, after), UNMASKABLE, after.text);
  assert.deepEqual(show(secret("abc\n", "abc"), plain("b\n")), UNMASKABLE, "before the change, too");
  const old = secret("hunter-two-2\n", "hunter-two-2");
  assert.deepEqual(show(old, plain("not hunter-two-2\n")), { diff: "@@ -1 +1 @@\n-***\n+not ***\n" });
  assert.deepEqual(show(old, secret("other-word\n", "other-word")), { note: "only secrets in it change" });
  assert.deepEqual(show(plain("other-word\n"), secret("other-word\n", "other-word")), { note: "only secrets in it change" });
});

test("a plan has 256 KiB of diffs, half of them only for what no other worker has", () => {
  const plan = planner();
  const put = (path: string, bytes: number, worker = "w0") => {
    // The diff has 15 bytes beside the content.
    const { diff, note } = plan({ ...added, path }, plain(`${"x".repeat(bytes - 16)}\n`), { worker }) as Partial<PlannedFile>;
    return note ?? Buffer.byteLength(diff ?? "");
  };
  const all = 256 * 1024;
  const large = 65_000;
  assert.deepEqual([put("a", large), put("a", large, "w1"), put("a", large, "w2")], [large, large, "as on w0"]);
  assert.deepEqual([put("b", 2_000), put("b", 2_000, "w1")], [2_000, "as on w0"]);
  assert.deepEqual([put("c", large), put("d", large), put("e", large)], [large, large, "the plan is too long"]);
  const left = all - 4 * large - 2_000;
  assert.deepEqual([put("f", left + 1), put("g", left)], ["the plan is too long", left]);
});

test("only the same change of the same file of a job is the one of another worker", () => {
  const plan = planner({ 1: plain("1\n"), 3: plain("3\n") });
  const diff = (text: string, file: Partial<PlannedFile> = {}, job?: string) =>
    plan(file, plain(text), { worker: text, ...(job && { job }) });
  const shown = (before: string, after: string) => ({
    diff: `@@ -1 +1 @@\n-${before}\n+${after}\n\\ No newline at end of file\n`,
  });
  assert.deepEqual(diff("first"), shown("1", "first"));
  assert.deepEqual(diff("second"), shown("1", "first"), "it is not made again");
  assert.deepEqual(diff("job", {}, "api"), shown("1", "job"));
  assert.deepEqual(diff("path", { path: "b" }), shown("1", "path"));
  assert.deepEqual(diff("from", { from: "644:3" }), shown("3", "from"));
  assert.deepEqual(diff("to", { to: "644:4" }), shown("1", "to"));
});
