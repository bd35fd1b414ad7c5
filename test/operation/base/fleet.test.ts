import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import type { CatalogWorker } from "../../../lib/bucket/base/model.ts";
import { Redactor } from "../../../lib/core/redact.ts";
import { Fleet } from "../../../lib/operation/base/fleet.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

/** How a command on this machine, the only worker, ends. */
interface End {
  reason?: string;
  exitCode?: number | null;
  stdout?: string;
  stderr?: string;
}

/** A fleet whose commands end like this, one after the other; `asked` are their argument lists. */
function fleetOf(t: TestContext, ...ends: End[]) {
  const asked: (readonly string[])[] = [];
  const launcher = {
    async run(argv: readonly string[]) {
      asked.push(argv);
      return { reason: "exit", exitCode: 0, stdout: "", stderr: "", ...ends.shift() };
    },
  };
  const context = {
    layout: layoutOf(temporaryFolder(t)),
    launcher,
    signal: new AbortController().signal,
    progress: { during: (_: unknown, __: unknown, work: unknown) => work },
    log: { info() {}, redactor: new Redactor() },
    run: { bucketId: "b" },
  };
  const worker = { host: "w", connection: "local", root: temporaryFolder(t) } as CatalogWorker;
  return { fleet: new Fleet(context as unknown as ConstructorParameters<typeof Fleet>[0], [worker]), asked };
}

test("a worker is asked for its tools once, until it is forgotten", async (t) => {
  const { fleet, asked } = fleetOf(t);
  assert.equal(await fleet.reach("w"), await fleet.reach("w"));
  assert.deepEqual(
    asked.map((argv) => argv.slice(-4)),
    [["make", "tar", "find", "sha256sum"]],
  );
  fleet.forget("w");
  await fleet.reach("w");
  assert.equal(asked.length, 2);
});

for (const [what, end, code, lasts, message] of [
  [
    "lacks tools",
    { stdout: "make find sha256sum " },
    "ErrWorkerPrerequisites",
    true,
    "Cannot run jobs on worker w: not installed there: make, find, sha256sum; on Debian: `apt-get install make findutils coreutils`",
  ],
  ["cannot run a script", { exitCode: 2, stderr: "no room\n" }, "failed", true, "Cannot run a script on worker w: no room"],
  ["gives no answer", { exitCode: null, reason: "timeout" }, "failed", false, "Cannot run a script on worker w: timeout"],
] as const)
  test(`a worker that ${what} is not reached, and the sentence says why`, async (t) => {
    await assert.rejects(fleetOf(t, end).fleet.reach("w"), { code, lasts, message });
  });

test("nothing is made for ssh where no worker is reached over it, and an unknown worker is told", async (t) => {
  const { fleet } = fleetOf(t);
  assert.deepEqual([await fleet.sshConfigFile(), await fleet.sshSetup()], [undefined, undefined]);
  const message = "Cannot find worker x in the catalog: build the bucket again";
  await assert.rejects(fleet.open("x"), { code: "failed", message });
});
