import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { SCHEMA_NAMES } from "../../../lib/bucket/workspace/schemas.ts";
import { completionsOf } from "../../../lib/cli/bucket/completion.ts";
import { COMMANDS } from "../../../lib/cli/main.ts";
import { PROGRAM_ROOT } from "../../../lib/core/self.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { PROGRAM } from "../../../scripts/local-server.ts";
import { ops } from "../../helpers/command-line.ts";
import { temporaryFolder, writeFiles } from "../../helpers/temporary.ts";
import { makeBucket } from "../../helpers/workspace.ts";

/** What the last of these words may become. */
const words = (...typed: string[]) => completionsOf(COMMANDS, typed).map(([word]) => word);

const RUNS = ["01a20cfb-9289-7c66-806b-46bd540eee8a", "01a20cfc-9289-7c66-806b-46bd540eee8a"] as const;

async function bucket(t: TestContext): Promise<string> {
  const made = await makeBucket(t, {
    workers: ["10.0.0.1", "10.0.0.2"].map((host) => ({ host, labels: ["db"], root: "/opt/worker" })),
    jobs: {
      web: { version: "1.0.0", selectors: ["db"], hooks: { look: { executed_on: ["cli"] } } },
      cache: { version: "1.0.0", selectors: ["worker"] },
    },
    files: { "workspace/jobs/web/_hooks/look.py": "" },
  });
  await build(made.context("build"), {});
  for (const run of RUNS) mkdirSync(path.join(made.layout.runs, run));
  mkdirSync(made.layout.snapshots, { recursive: true });
  for (const name of ["20261124T095547.716Z-d5ae2ae1", "$(reboot)"]) writeFileSync(path.join(made.layout.snapshots, name), "");
  return made.dir;
}

test("commands are completed word by word, without those that the program calls itself", () => {
  assert.deepEqual(words("worker", ""), ["trust", "facts", "uptime", "sysstat", "--help"].slice(0, 4));
  assert.deepEqual(words("dep"), ["deploy"]);
  assert.deepEqual(words("help", "snapshot", "v"), ["verify"]);
  assert.deepEqual(words("nothing", ""), []);
  assert.ok(words("").includes("build") && !words("").includes("keep") && !words("").includes("hook-run"));
  assert.deepEqual(
    completionsOf(COMMANDS, ["k"]).map((one) => one.join(": ")),
    ["kv: set-secret, delete-secret, export, import, rekey"],
  );
});

test("flags of a command are completed, but for those that were given", () => {
  assert.deepEqual(words("build", "--p"), ["--purge-job-kv"]);
  const given = words("build", "--purge-job-kv", "--json", "");
  assert.deepEqual(given.slice(0, 4), ["--bucket-dir", "--wait", "--break-glass", "--detach"]);
  assert.deepEqual(words("gc", "-"), words("gc", "--"));
  assert.ok(words("server", "").includes("--root") && words("server", "").includes("install"));
});

test("values of flags are completed from their few words, from files or from folders; of a list, the next part", () => {
  assert.deepEqual(words("logs", "--format", ""), ["human", "raw"]);
  assert.deepEqual(words("logs", "--format=r"), ["--format=raw"]);
  assert.deepEqual(words("cat", "deployments", "--state", "failed,dis"), ["failed,disabled"]);
  assert.ok(!words("cat", "deployments", "--state", "failed,").includes("failed,failed"));
  assert.deepEqual(words("completion", ""), ["bash", "zsh", "fish"]);
  assert.deepEqual(words("server", "--tls-cert", "x"), [":files"]);
  assert.deepEqual(words("server", "--tls-cert=x"), [":files"]);
  assert.deepEqual(words("build", "--bucket-dir", ""), [":folders"]);
  assert.deepEqual(words("logs", "--tail", ""), []);
});

test("the few words of templates and schemas are those that there are", () => {
  const templates = readdirSync(path.join(PROGRAM_ROOT, "lib/bucket/templates"));
  assert.deepEqual(words("job", "create", "x", "--template", "").sort(), templates.sort());
  assert.deepEqual(words("schema", ""), SCHEMA_NAMES);
});

test("jobs, workers, labels, hooks, runs and snapshots are those of the bucket; a name with special characters is left out", async (t) => {
  const dir = await bucket(t);
  const value = (command: string, flag: string) => words(command, "--bucket-dir", dir, flag, "");
  assert.deepEqual(value("deploy", "--jobs"), ["cache", "web"]);
  assert.deepEqual(words("deploy", "--bucket-dir", dir, "--jobs", "web,"), ["web,cache"]);
  assert.deepEqual(value("deploy", "--force-only"), ["10.0.0.1", "10.0.0.2"]);
  assert.deepEqual(words("worker", "facts", `--bucket-dir=${dir}`, "-l", ""), ["db", "worker"]);
  assert.deepEqual(words("worker", "facts", `--bucket-dir=${dir}`, "-w", "10.0.0.2,"), ["10.0.0.2,10.0.0.1"]);
  assert.deepEqual(words("hooks", `--bucket-dir=${dir}`, "lo"), ["look"]);
  assert.deepEqual(words("hooks", `--bucket-dir=${dir}`, "look", "w"), ["web"]);
  assert.deepEqual(words("job", "stop", `--bucket-dir=${dir}`, "cache,w"), ["cache,web"]);
  assert.deepEqual(value("deploy", "--retry").slice(1), [...RUNS].reverse(), "the first is the build");
  assert.deepEqual(words("snapshot", "verify", `--bucket-dir=${dir}`, ""), ["20261124T095547.716Z-d5ae2ae1"]);
  assert.deepEqual(words("runs", "cancel", "--bucket-dir", dir, ""), words("runs", "show", "--bucket-dir", dir, ""));
  assert.ok(words("runs", "show", "--bucket-dir", dir, "").includes(RUNS[0] as string));
  const revision = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
  mkdirSync(path.join(layoutOf(dir).revisions, revision), { recursive: true });
  assert.deepEqual(words("revisions", "diff", "--bucket-dir", dir, ""), [revision]);
  assert.deepEqual(words("revisions", "diff", revision, "--bucket-dir", dir, ""), [revision]);
});

test("the ids of buckets are those below the root", (t) => {
  const id = "993265d4-fa08-4d67-a6de-ffb45de617eb";
  const root = writeFiles(temporaryFolder(t), { [`${id}/bucket.json`]: "{}", "other/x": "" });
  const { OPS_SERVE_ROOT: before } = process.env;
  t.after(() => {
    if (before === undefined) delete process.env.OPS_SERVE_ROOT;
    else process.env.OPS_SERVE_ROOT = before;
  });
  process.env.OPS_SERVE_ROOT = root;
  assert.deepEqual(words("push", "http://127.0.0.1:9090", "--bucket", "9"), [id]);
});

/** What a shell makes of keys that are typed: Tab completes, Ctrl-A and `echo` show the line. */
function typed(t: TestContext, shell: string, lines: readonly string[]): string[] {
  const folder = writeFiles(temporaryFolder(t), {
    ops: `#!/bin/sh\nexec "${process.execPath}" "${PROGRAM}" "$@"\n`,
    "certs/x": "",
    ".zshrc": "bindkey -e\nautoload -U compinit; compinit -u -D\nsource <(ops completion zsh)\n",
    ".bashrc": "source <(ops completion bash)\n",
  });
  chmodSync(path.join(folder, "ops"), 0o755);
  const input = `${lines.map((line) => `${line}\t\u0001echo '=' \n`).join("")}exit\n`;
  const env = { ...process.env, PATH: `${folder}:${process.env.PATH}`, HOME: folder, ZDOTDIR: folder, TERM: "xterm" };
  const { stdout } = spawnSync("script", ["-qec", shell, "/dev/null"], { cwd: folder, env, input, encoding: "utf8" });
  return [...stdout.matchAll(/^= (.*?)\r*$/gm)].map(([, line = ""]) => line);
}

const TYPED = ["ops logs --format=ra", "ops logs\t--format r", "ops cat dep\t--state failed,dis", "ops server --tls-cert ce"];
const EXPECTED = ["ops logs --format=raw", "ops logs --format raw", "ops cat deployments --state failed,disabled"];

test("bash completes command lines", (t) => {
  assert.deepEqual(typed(t, "bash --rcfile .bashrc -i", TYPED), [...EXPECTED, "ops server --tls-cert certs/"]);
});

test("zsh completes command lines", (t) => {
  assert.deepEqual(typed(t, "zsh -i", TYPED), [...EXPECTED, "ops server --tls-cert certs"]);
});

test("fish completes command lines", (t) => {
  const folder = writeFiles(temporaryFolder(t), {
    ops: `#!/bin/sh\nexec "${process.execPath}" "${PROGRAM}" "$@"\n`,
    "certs/x": "",
  });
  chmodSync(path.join(folder, "ops"), 0o755);
  const lines = [TYPED[0], TYPED[2]?.replace("dep\t", "deployments "), TYPED[3], "ops dep", "ops "];
  const script = ["ops completion fish | source", ...lines.map((line) => `complete -C '${line}' | head -1`)].join("\n");
  const env = { ...process.env, PATH: `${folder}:${process.env.PATH}`, HOME: folder };
  const { stdout } = spawnSync("fish", ["--no-config", "-c", script], { cwd: folder, env, encoding: "utf8" });
  const told = stdout.split("\n");
  assert.deepEqual(told.slice(0, 3), ["--format=raw", "failed,disabled", "certs/"]);
  assert.match(told[3] ?? "", /^deploy\tBring the workers/);
  assert.match(told[4] ?? "", /^approve\t/);
});

test("completion of another shell is refused; a bucket that cannot be read is no error", async (t) => {
  const { code, stderr } = await ops(["completion", "tcsh"]);
  assert.deepEqual([code, stderr], [2, 'ops: "tcsh": expected bash, zsh, fish\n']);
  const input = ["deploy", "--bucket-dir", temporaryFolder(t), "--jobs", ""].map((word) => `${word}\0`).join("");
  const silent = spawnSync(process.execPath, [PROGRAM, "completion", "words"], { input, encoding: "utf8" });
  assert.deepEqual([silent.status, silent.stdout, silent.stderr], [0, "", ""]);
});
