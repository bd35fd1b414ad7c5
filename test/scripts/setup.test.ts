import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";
import { OLD_NODE } from "../helpers/old-node.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const base = temporaryFolder();

const TOOLS =
  "sh make tar find sha256sum setsid python3 openssl busybox patch git chromium ssh ssh-keygen ssh-keyscan tcsh redis-server oathtool zbarimg bsdtar systemd-analyze zsh fish mandoc curl promtool prometheus".split(
    " ",
  );
const MODULES = ["typescript/x", "@biomejs/biome/x", "playwright-core/x"];

let count = 0;

/** A project whose PATH is one folder with these programs; each is a shell script. */
function machine(programs: Record<string, string>, modules: string[] = MODULES) {
  const root = path.join(base, String(++count));
  const bin = path.join(root, "bin");
  mkdirSync(path.join(root, "scripts"), { recursive: true });
  mkdirSync(bin);
  cpSync(path.join(PROGRAM_ROOT, "scripts", "setup.js"), path.join(root, "scripts", "setup.js"));
  writeFileSync(path.join(root, "package.json"), '{"type": "module"}');
  for (const name of modules) {
    mkdirSync(path.join(root, "node_modules", path.dirname(name)), { recursive: true });
    writeFileSync(path.join(root, "node_modules", name), "");
  }
  for (const [name, script] of Object.entries(programs))
    writeFileSync(path.join(bin, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return (mode: string, [node, ...options]: [string, ...string[]] = [process.execPath], env: NodeJS.ProcessEnv = {}) => {
    const run = spawnSync(node, [...options, path.join(root, "scripts", "setup.js"), mode], {
      env: { PATH: bin, LOG: path.join(root, "log"), BIN: bin, ...env },
      encoding: "utf8",
    });
    const log = path.join(root, "log");
    return {
      code: run.status,
      out: run.stdout,
      err: run.stderr,
      calls: existsSync(log) ? readFileSync(log, "utf8").trim().split("\n") : [],
    };
  };
}

const all = Object.fromEntries(TOOLS.map((tool) => [tool, ""]));

test("a machine with all tools is ready, without a word", () => {
  const { make, ...rest } = all;
  for (const mode of ["demo", "demo-ssh", "test"])
    assert.deepEqual(machine({ ...rest, make: make ?? "" })(mode), { code: 0, out: "", err: "", calls: [] });
});

test("a missing tool is named with the command that installs it, and the exit code is 1", () => {
  const { make, python3, sha256sum, ...rest } = all;
  const setup = machine(rest);
  const demo = setup("demo");
  assert.equal(demo.code, 1);
  assert.deepEqual(demo.err.split("\n"), [
    "ops: npm run demo needs tools that are not on this machine:",
    "  make       apt-get install -y make",
    "  sha256sum  apt-get install -y coreutils",
    "Install them as root, here all at once, and try again:",
    "  apt-get update && apt-get install -y make coreutils",
    "",
  ]);
  assert.match(setup("test").err, / {2}python3 {4}apt-get install -y python3\n/);
});

const mayInstall = process.getuid?.() === 0 && existsSync("/etc/debian_version");
const APT = 'echo "$DEBIAN_FRONTEND $*" >> "$LOG"';

test("root on Debian lists what is missing, installs it and checks again", { skip: !mayInstall }, () => {
  const { make, ...rest } = all;
  const installs = `${APT}; case "$1" in install) : > "$BIN/make"; /bin/chmod +x "$BIN/make";; esac`;
  const { code, out, calls } = machine({ ...rest, "apt-get": installs })("demo");
  assert.equal(code, 0);
  assert.match(out, /^ops: installs with apt-get, unless OPS_SETUP=no is set:\n {2}make, for make\nops: apt-get /);
  assert.match(calls.at(-1) ?? "", /^noninteractive install .*--no-install-recommends .*make$/);
});

test("with OPS_SETUP=no nothing is installed, and what is missing is named", () => {
  const { make, ...rest } = all;
  const { code, out, err, calls } = machine({ ...rest, "apt-get": APT })("demo", undefined, { OPS_SETUP: "no" });
  assert.deepEqual({ code, out, calls }, { code: 1, out: "", calls: [] });
  assert.match(err, / {2}make {2}apt-get install -y make\n/);
});

test("a service that comes with a tool stays off", { skip: !mayInstall }, () => {
  const { "redis-server": redis, ...rest } = all;
  const installs = `${APT}; echo "offline $SYSTEMD_OFFLINE" >> "$LOG"; case "$1" in install) : > "$BIN/redis-server"; /bin/chmod +x "$BIN/redis-server";; esac`;
  const setup = machine({ ...rest, "apt-get": installs, "update-rc.d": 'echo "update-rc.d $*" >> "$LOG"' });
  const { code, out, calls } = setup("test");
  assert.equal(code, 0);
  assert.match(out, /\n {2}redis-server, for redis-server\n/);
  assert.deepEqual(calls.slice(-2), ["offline 1", "update-rc.d redis-server disable"]);
});

test("an installation that fails is tried once more with new lists, then named", { skip: !mayInstall }, () => {
  const { make, ...rest } = all;
  const { code, err, calls } = machine({ ...rest, "apt-get": `${APT}; echo 'E: no network' >&2; exit 100` })("demo");
  assert.equal(code, 1);
  assert.match(err, /E: no network/);
  assert.match(err, / {2}make {2}apt-get install -y make\n/);
  const commands = calls.map((call) => call.split(" ")[1]);
  assert.deepEqual(commands.slice(-2), ["update", "install"]);
  assert.ok(commands.length <= 3);
});

test("a project without its modules is told to install them", () => {
  const run = machine(all, MODULES.slice(0, 1))("test");
  assert.equal(run.code, 1);
  assert.equal(run.err, "ops: node_modules/@biomejs/biome is missing; run: npm ci --include=dev --include=optional\n");
  assert.equal(machine(all, [])("demo").code, 0);
  const old = machine(all, [])("demo", OLD_NODE);
  assert.equal(old.err, "ops: node_modules/.bin/node is missing; run: npm ci --include=dev --include=optional\n");
  assert.equal(machine(all, [".bin/node"])("demo", OLD_NODE).code, 0);
});

test("an unknown mode is wrong usage", () => {
  const run = machine(all)("production");
  assert.deepEqual([run.code, run.err], [2, "usage: node scripts/setup.js demo|demo-ssh|test\n"]);
});
