import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { diffColours } from "../../../lib/cli/base/terminal.ts";
import { PROGRAM } from "../../../scripts/local-server.ts";
import { ops } from "../../helpers/command-line.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

test("lines of a diff are coloured wherever they stand, and no other line", () => {
  assert.equal(
    diffColours("web: start\n--- a\n+++ b\n@@ -1 +1 @@\n same\n    -old\n+new\n"),
    "web: start\n\x1b[1m--- a\x1b[22m\n\x1b[1m+++ b\x1b[22m\n\x1b[36m@@ -1 +1 @@\x1b[39m\n same\n" +
      "    \x1b[31m-old\x1b[39m\n\x1b[32m+new\x1b[39m\n",
  );
});

test("a dry run has colours on a terminal only, and never with NO_COLOR", async (t) => {
  const dir = temporaryFolder(t);
  const workers = [{ host: "127.0.0.1", connection: "local", root: `${dir}/worker` }];
  makeWorkspace(dir, { workers, jobs: { web: { version: "1.0.0", selectors: ["worker"] } } });
  for (const command of ["init", "build"]) assert.equal((await ops([command, "--bucket-dir", dir])).code, 0);
  const inTerminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
  const args = [PROGRAM, "deploy", "--dry-run", "--bucket-dir", dir];
  const shown = (env: Record<string, string>) => {
    const command = ["-c", inTerminal, process.execPath, ...args];
    const { stdout, status } = spawnSync("python3", command, { env: { ...process.env, ...env }, encoding: "utf8" });
    assert.equal(status, 0, stdout);
    return stdout;
  };
  assert.match(shown({ NO_COLOR: "" }), /\x1b\[1m\+\+\+ jobs\/web\/Makefile/);
  assert.doesNotMatch(shown({ NO_COLOR: "1" }), /\x1b\[(1|3\d)m/);
  const piped = await ops(args.slice(1));
  assert.match(piped.stdout, /^\+\+\+ jobs\/web\/Makefile\tplanned$/m);
  assert.doesNotMatch(piped.stdout, /\x1b/);
});
