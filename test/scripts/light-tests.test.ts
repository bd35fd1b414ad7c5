import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import path from "node:path";
import { test } from "node:test";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";
import { temporaryFolder, writeFiles } from "../helpers/temporary.ts";

const CASES: [what: string, code: number, body: string][] = [
  ["an error that nobody caught", 1, 'setImmediate(() => { throw new Error("lost"); });'],
  ["a rejection that nobody caught", 1, 'void Promise.reject(new Error("lost"));'],
  ["an error after the end of its test", 1, 'setTimeout(() => { throw new Error("lost"); }, 50);'],
  ["a rejection after the end of its test", 1, 'setTimeout(() => { void Promise.reject(new Error("lost")); }, 50);'],
  ["nothing", 0, ""],
];

for (const [what, code, body] of CASES)
  test(`a test file that leaves ${what} ends with ${code}`, (t) => {
    const text = `import { test } from "node:test";\ntest("one", async () => { ${body} await new Promise(setImmediate); });\n`;
    const folder = writeFiles(temporaryFolder(t), { "lost.test.mjs": text });
    const light = path.join(PROGRAM_ROOT, "scripts/light-tests.ts");
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const run = spawnSync(process.execPath, ["--test", `--import=${light}`, "lost.test.mjs"], {
      cwd: folder,
      env,
      encoding: "utf8",
    });
    assert.equal(run.status, code, run.stdout + run.stderr);
    assert.equal(run.stdout.includes('lost"'), code === 1, run.stdout);
  });
