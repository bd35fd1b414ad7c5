import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";
import { Launcher } from "../../lib/core/spawn.ts";
import { helperFiles, runScript, type ScriptFile, scriptCommand, scriptFiles, stageScripts } from "../../lib/hook/scripts.ts";
import { temporaryFolder, writeFiles } from "../helpers/temporary.ts";

const file = (name: string, text = "", mode = 0o600): ScriptFile => ({ path: name, mode, content: Buffer.from(text) });

test("a hook is a script in Python, TypeScript or JavaScript; of several the first of these", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const all = ["py", "ts", "js"].map((kind) => `_hooks/look.${kind}`);
  const staged = (paths: string[]) =>
    scriptCommand(layout, { folder: "/staged", files: paths.map((name) => file(name)), job: "web", hook: "look" });
  for (const [index, path] of all.entries()) {
    const command = await staged(all.slice(index));
    assert.deepEqual([command.at(-1), command.includes("hook-run")], [`/staged/${path}`, index > 0]);
  }
  await assert.rejects(staged(["_hooks/other.js"]), {
    code: "ErrHookFileNotFound",
    message: "Cannot run hook look of job web: it has no script",
  });
});

test("a script in Python runs in the first virtual environment of the job's folder, whatever its capitals, else on PATH", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const hook = { folder: "/staged", files: [file("_hooks/look.py")], job: "web", hook: "look" };
  const command = () => scriptCommand(layout, hook);
  assert.deepEqual(await command(), ["python3", "-u", "/staged/_hooks/look.py"]);
  writeFiles(layout.jobs, { "other/_hooks/.venv/bin/python3": "", "Web/manifest.json": "" });
  assert.equal((await command())[0], "python3");
  for (const place of ["_modules/venv", "_modules/.venv", "_hooks/venv", "_hooks/.venv"]) {
    writeFiles(path.join(layout.jobs, "Web"), { [`${place}/bin/python3`]: "" });
    assert.deepEqual(await command(), [path.join(layout.jobs, "Web", place, "bin/python3"), "-u", "/staged/_hooks/look.py"]);
  }
});

test("the helpers are staged as they are, for the owner alone, and go before files of the job with their names", () => {
  const library = (name: string) => readFileSync(path.join(PROGRAM_ROOT, "lib/hook/helpers", name));
  const helpers = ["ops.py", "ops.ts"].map((name) => ({ path: `_hooks/${name}`, mode: 0o600, content: library(name) }));
  assert.deepEqual(helperFiles(), helpers);
  const modules = file("_hooks/package.json", '{"type": "module"}\n');
  const [own, more] = [file("_hooks/look.ts", "look", 0o700), file("_hooks/package.json", "{}")];
  assert.deepEqual(scriptFiles([own, file("_hooks/ops.py", "mine")]), [modules, own, ...[...helpers].sort(inOrder)]);
  assert.deepEqual(scriptFiles([own, more])[0], more, "a package.json of the job counts");
});

const inOrder = (a: ScriptFile, b: ScriptFile) => a.path.localeCompare(b.path);

test("staging makes _hooks anew, with modes as given, and leaves other files as they are", async (t) => {
  const folder = path.join(temporaryFolder(t), "allocation");
  const staged = [file("_hooks/look.ts", "look", 0o700), file("conf/a.conf", "new")];
  await stageScripts(folder, staged);
  writeFileSync(path.join(folder, "_hooks/old.ts"), "old");
  writeFileSync(path.join(folder, "conf/a.conf"), "of the deploy");
  await stageScripts(folder, staged);
  assert.deepEqual(readdirSync(folder, { recursive: true }).sort(), ["_hooks", "_hooks/look.ts", "conf", "conf/a.conf"]);
  assert.equal(readFileSync(path.join(folder, "conf/a.conf"), "utf8"), "of the deploy");
  const modes = ["_hooks", "_hooks/look.ts", "conf/a.conf"].map((name) => statSync(path.join(folder, name)).mode & 0o777);
  assert.deepEqual(modes, [0o700, 0o700, 0o600]);
  mkdirSync(path.join(folder, "x"));
  await assert.rejects(stageScripts(folder, [file(`x/${"n".repeat(300)}`)]), { code: "ENAMETOOLONG" });
});

test("a script is run by a bash that stays and tells how it ended, with nothing of its output kept", async (t) => {
  const lines: string[] = [];
  const options = {
    cwd: temporaryFolder(t),
    environment: { PATH: process.env.PATH ?? "", GREETING: "it's me" },
    onLine: (line: string) => void lines.push(line),
    secrets: { longest: 0, cut: (_: Buffer, limit: number) => limit },
    signal: new AbortController().signal,
  };
  const run = (script: string) => runScript(new Launcher({ OURS: "x" }), ["sh", "-c", script, "a b"], options);
  const { exitCode, signal, stdout } = await run('echo "$GREETING $0 $OURS"; pwd; tr "\\0" "\\n" < /proc/$PPID/cmdline; exit 3');
  assert.deepEqual([exitCode, signal, stdout], [3, null, ""]);
  assert.deepEqual(lines.slice(0, 4), ["it's me a b ", options.cwd, "bash", "-c"]);
  assert.equal((await run("kill -9 $$")).exitCode, 128 + 9);
});
