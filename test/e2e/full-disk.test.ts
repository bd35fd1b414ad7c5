import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { rmSync, statfsSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { ops } from "../helpers/command-line.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const KIB = 1024;
/** Between these no command has all the room it needs, and each has a little more of it than before. */
const FREE_KIB = [0, 8, 16, 20, 28, 36, 48, 64, 96, 128, 200];
const COMMANDS = [["build"], ["deploy", "--force"], ["snapshot", "create"], ["job", "create", "late"]];

test("a disk that is full is told with the file that could not be written, by build, deploy, snapshot and job create", {
  skip: process.getuid?.() === 0 ? false : "only root mounts a small disk",
}, async (t) => {
  // Registered first, so that the folder is free when it is removed.
  t.after(() => void spawnSync("umount", ["-l", disk]));
  const disk = temporaryFolder(t);
  const { status, stderr } = spawnSync("mount", ["-t", "tmpfs", "-o", "size=3m,mode=0755", "tmpfs", disk]);
  if (status !== 0) return t.skip(`nothing can be mounted here: ${String(stderr)}`);
  const inBucket = (...args: string[]) => ops([...args, "--bucket-dir", disk]);
  assert.equal((await inBucket("init")).code, 0);
  const worker = { host: "127.0.0.1", connection: "local", root: path.join(temporaryFolder(t), "worker") };
  writeFileSync(path.join(disk, "workspace", "workers.json"), JSON.stringify([worker]));
  for (const args of [["job", "create", "web", "--selectors", "worker"], ["build"]])
    assert.equal((await inBucket(...args)).code, 0);
  const filling = path.join(disk, "filling");
  const placeless: string[] = [];
  let told = 0;
  for (const free of FREE_KIB)
    for (const args of COMMANDS) {
      rmSync(filling, { force: true });
      rmSync(path.join(disk, "workspace", "jobs", "late"), { recursive: true, force: true });
      const { bavail, bsize } = statfsSync(disk);
      writeFileSync(filling, Buffer.alloc(Math.max(0, bavail * bsize - free * KIB)));
      const { code, stdout, stderr: said } = await inBucket(...args);
      if (code === 0) continue;
      const lines = `${stdout}${said}`.split("\n").filter((line) => line.includes("disk is full"));
      told += lines.length;
      placeless.push(...lines.filter((line) => !line.includes(`${disk}/`)).map((line) => `${args.join(" ")}: ${line}`));
    }
  assert.ok(told > FREE_KIB.length, String(told));
  assert.deepEqual(placeless, []);
});
