import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs, { existsSync, readFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import path from "node:path";
import { test } from "node:test";
import {
  faultPoint,
  onFaultPoint,
  PROGRAM_ROOT,
  programFile,
  programRelease,
  programVersion,
  selfArguments,
} from "../../lib/core/self.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("the program's folder is where its parts are", () => {
  for (const part of ["lib", "ui", "package.json"]) assert.ok(existsSync(path.join(PROGRAM_ROOT, part)), part);
});

test("the program starts itself on the very Node it runs on, with its arguments as they are", () => {
  assert.deepEqual(selfArguments("worker", "a b"), [process.execPath, path.join(PROGRAM_ROOT, "bin", "ops.js"), "worker", "a b"]);
});

test("a thread of this program gets nothing of its environment but where compiled modules are kept", async (t) => {
  const folder = temporaryFolder(t);
  const program = `
    import { Worker } from "node:worker_threads";
    import { threadEnvironment } from ${JSON.stringify(path.join(PROGRAM_ROOT, "lib/core/self.ts"))};
    new Worker("console.log(JSON.stringify(process.env))", { eval: true, env: threadEnvironment() });`;
  const env = { TOKEN: "secret", NODE_COMPILE_CACHE: folder };
  const told = (more: NodeJS.ProcessEnv) => {
    const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", program], { env: more, encoding: "utf8" });
    return JSON.parse(stdout);
  };
  assert.deepEqual(told(env), { NODE_COMPILE_CACHE: folder });
  assert.deepEqual(told({ ...env, NODE_DISABLE_COMPILE_CACHE: "1" }), {});
});

test("the program knows its version, and of a release the commit that it was made from", (t) => {
  const { version } = JSON.parse(readFileSync(path.join(PROGRAM_ROOT, "package.json"), "utf8"));
  assert.deepEqual([programRelease(), programVersion()], [{ version, commit: null }, version]);
  const read = t.mock.method(fs, "readFileSync", () => '{"version": "1.2.3", "gitHead": "0123abc"}');
  syncBuiltinESMExports();
  t.after(() => {
    read.mock.restore();
    syncBuiltinESMExports();
  });
  assert.deepEqual(programRelease(), { version: "1.2.3", commit: "0123abc" });
});

test("a module of the program is in a file of the same kind as the one that asks", () => {
  assert.equal(programFile("lib/core/self"), path.join(PROGRAM_ROOT, "lib/core/self.ts"));
});

test("whoever listens hears of every fault point that is reached", (t) => {
  const reached: string[] = [];
  onFaultPoint((point) => reached.push(point));
  t.after(() => onFaultPoint(() => {}));
  faultPoint("a moment");
  assert.deepEqual(reached, ["a moment"]);
});
