import assert from "node:assert/strict";
import { test } from "node:test";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { scriptCommand } from "../../lib/hook/scripts.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("a hook is a script in Python, TypeScript or JavaScript; of several the first of these", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const all = ["py", "ts", "js"].map((kind) => `_hooks/look.${kind}`);
  const staged = (paths: string[]) => {
    const files = paths.map((path) => ({ path, mode: 0o600, content: Buffer.alloc(0) }));
    return scriptCommand(layout, { folder: "/staged", files, job: "web", hook: "look" });
  };
  for (const [index, path] of all.entries()) {
    const command = await staged(all.slice(index));
    assert.deepEqual([command.at(-1), command.includes("hook-run")], [`/staged/${path}`, index > 0]);
  }
  await assert.rejects(staged(["_hooks/other.js"]), { code: "ErrHookFileNotFound" });
});
