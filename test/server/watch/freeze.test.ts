import assert from "node:assert/strict";
import { test } from "node:test";
import { RUN_KINDS, type RunKind } from "../../../lib/run/protocol.ts";
import { isHeldBack, requireThawed } from "../../../lib/server/watch/freeze.ts";

const [FROM, TO] = [Date.UTC(2026, 10, 27), Date.UTC(2026, 10, 28)];
const FREEZE = { fromMs: FROM, toMs: TO, reason: "the feast" };
const HELD_BACK = ["deploy", "rollback", "snapshot_restore", "run_command", "hooks", "job_run"];

test("CP-972 a freeze holds back what brings something else to the workers or runs what somebody wrote there", () => {
  assert.deepEqual(RUN_KINDS.filter(isHeldBack).toSorted(), HELD_BACK.toSorted());
  const start = (kind: RunKind, params = {}, now = FROM) => requireThawed([FREEZE], { kind, params }, now);
  for (const kind of RUN_KINDS)
    if (HELD_BACK.includes(kind)) assert.throws(() => start(kind), { code: "frozen" });
    else start(kind);
  const details = { from: new Date(FROM).toISOString(), to: new Date(TO).toISOString(), reason: "the feast" };
  const why = `Cannot start deploy: the bucket is frozen until ${details.to}: the feast`;
  const message = `${why}; in an emergency an admin gives --break-glass`;
  assert.throws(() => start("deploy", { dry_run: false }), { code: "frozen", message, details });
  start("deploy", { dry_run: true });
  assert.throws(() => start("hooks", { dry_run: true }), { code: "frozen" }, "only a deploy has a dry run");
  start("deploy", {}, FROM - 1);
  start("deploy", {}, TO);
  assert.throws(() => start("deploy", {}, TO - 1), { code: "frozen" });
});
