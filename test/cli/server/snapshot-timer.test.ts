import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { parseFlags } from "../../../lib/cli/base/flags.ts";
import { COMMANDS } from "../../../lib/cli/main.ts";
import { PROGRAM_ROOT } from "../../../lib/core/self.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const UNITS = ["ops-snapshot@.service", "ops-snapshot@.timer"].map((name) => path.join(PROGRAM_ROOT, "lib/cli/scripts", name));

test("CP-642 systemd accepts the timer of snapshots, for a folder as its instance", (t) => {
  const folder = temporaryFolder(t);
  // systemd-analyze looks for the program.
  const program = path.join(folder, "ops");
  writeFileSync(program, "#!/bin/sh\n");
  chmodSync(program, 0o755);
  const units = UNITS.map((unit) => path.join(folder, path.basename(unit)));
  for (const [index, unit] of units.entries()) copyFileSync(UNITS[index] as string, unit);
  const [service = ""] = units;
  writeFileSync(service, readFileSync(service, "utf8").replace("/usr/local/bin/ops", program));
  const instances = units.map((unit) => unit.replace("@.", "@srv-bucket."));
  for (const [index, instance] of instances.entries()) copyFileSync(units[index] as string, instance);
  const { status, stdout, stderr } = spawnSync("systemd-analyze", ["verify", "--man=no", ...instances], { encoding: "utf8" });
  const said = `${stdout}${stderr}`.split("\n").filter((line) => line.includes("ops-snapshot"));
  assert.deepEqual([status, said], [0, []], stderr);
});

test("CP-642 the command of the timer is one that the program has", () => {
  const [, line = ""] = /^ExecStart=\S+ (.*)$/m.exec(readFileSync(UNITS[0] as string, "utf8")) ?? [];
  const command = COMMANDS.find(({ name }) => name === "snapshot create");
  assert.ok(command && line.startsWith("snapshot create "), line);
  const { values } = parseFlags(command, line.split(" ").slice(2));
  assert.deepEqual(Object.fromEntries(values), { "bucket-dir": "%f", wait: "1h", note: "timer" });
});
