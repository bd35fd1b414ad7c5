import assert from "node:assert/strict";
import { test } from "node:test";
import { SshDeploys } from "../../helpers/ssh-deploys.ts";

test("make that prints without end is stopped at its time limit, and its worker is not unreachable", async (t) => {
  const fleet = await SshDeploys.start(t, 1, []);
  await fleet.build({
    web: {
      manifest: { lifecycle_timeout_seconds: 2, tolerate: { unreachable: "100%" } },
      files: { Makefile: "start:\n\t@yes 'a line of output that never ends'\n" },
    },
  });
  const { record } = await fleet.run("deploy");
  const { jobs } = record.result as { jobs: { allocations: { outcome: string; error: string }[] }[] };
  const { outcome, error } = jobs[0]?.allocations[0] ?? {};
  assert.equal(outcome, "failed");
  assert.match(error ?? "", /^`make start` of job web on 127\.0\.0\.1 was (stopped|killed) at its time limit of 2 s/);
});
