import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { PROGRAM_ROOT, selfArguments } from "../../lib/core/self.ts";
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
