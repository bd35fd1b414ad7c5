import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { COMMANDS } from "../../lib/cli/main.ts";
import { manPages } from "../../scripts/man-pages.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const PAGES = manPages(COMMANDS, { version: "0.1.0", date: "2026-11-24" });

test("there is a page for each command that is shown, and one for all", () => {
  assert.equal(PAGES.size, COMMANDS.filter(({ hidden }) => !hidden).length + 1);
  assert.ok(PAGES.has("ops-server-totp-enroll.1") && PAGES.has("ops-run-command.1") && !PAGES.has("ops-hook-run.1"));
});

test("mandoc finds nothing to say about the pages, and shows what a command does and takes", (t) => {
  const folder = temporaryFolder(t);
  for (const [name, text] of PAGES) writeFileSync(path.join(folder, name), text);
  const mandoc = (...args: string[]) => spawnSync("mandoc", args, { cwd: folder, encoding: "utf8" });
  // Pages of ops name each other, and mandoc would look for those in the system.
  const { status, stdout } = mandoc("-Tlint", "-Wstyle", ...PAGES.keys());
  assert.deepEqual([status, stdout], [0, ""]);
  const deploy = mandoc("-Tascii", "-O", "width=200", "ops-deploy.1").stdout.replaceAll(/.\u0008/g, "");
  assert.match(deploy, /ops-deploy - Bring the workers to the state of the catalog, in health-gated waves/);
  assert.match(deploy, /^ +-n, --dry-run\n? +Change nothing on any worker/m);
  assert.match(deploy, /^ops 0\.1\.0 +2026-11-24/m);
  assert.match(mandoc("-Tascii", "ops-hooks.1").stdout.replaceAll(/.\u0008/g, ""), /ops hooks hook \[job\] \[flags\]/);
  // Flags behind the words of a command would be among those.
  assert.match(mandoc("-Tascii", "ops-exec.1").stdout.replaceAll(/.\u0008/g, ""), /ops exec \[flags\] worker -- command\.\.\./);
  // Both operands are set in italics; brackets are not.
  assert.ok(PAGES.get("ops-hooks.1")?.includes("\n.I hook\n.RI [ job ]\n"));
});
