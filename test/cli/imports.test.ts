import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import path from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";
import { link, temporaryFolder, writeFiles } from "../helpers/temporary.ts";

const IMPORTS = pathToFileURL(path.join(PROGRAM_ROOT, "lib/cli/imports.ts")).href;

/** What a program prints in which the modules of lib find each other quickly. */
function printed(file: string): string {
  const { stdout, stderr } = spawnSync(process.execPath, [`--import=${IMPORTS}`, file], { encoding: "utf8" });
  assert.equal(stderr, "");
  return stdout;
}

test("a module of lib is there once, whether another one imports it, or a program that reaches ops by a link", (t) => {
  const folder = writeFiles(temporaryFolder(t), {
    ops: link(PROGRAM_ROOT),
    "program.ts": `
      import { Failure } from "./ops/lib/core/errors.ts";
      import { parseBaseUrl } from "./ops/lib/cli/remote/client.ts";
      try { parseBaseUrl("no address"); } catch (error) { console.log(error instanceof Failure); }`,
  });
  assert.equal(printed(path.join(folder, "program.ts")), "true\n");
});

test("modules of others find each other as Node has it: CommonJS, and links", (t) => {
  const folder = writeFiles(temporaryFolder(t), {
    "own/package.json": "{}",
    "own/common.js": "exports.name = __filename;",
    "linked.js": link("own/common.js"),
    "program.mjs": 'import common from "./linked.js"; console.log(common.name);',
  });
  assert.equal(printed(path.join(folder, "program.mjs")), `${path.join(folder, "own/common.js")}\n`);
});
