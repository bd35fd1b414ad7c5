import assert from "node:assert/strict";
import { chmodSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { Problems, sentenceOf } from "../../../lib/bucket/base/problems.ts";
import { checkUnchanged, packSource, pathProblem, SourceRules, scanSource } from "../../../lib/bucket/source/source-rules.ts";
import type { TarEntry } from "../../../lib/codec/archive/tar-read.ts";
import { fifo, temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

// Names that are refused are tested as a whole, with archives, in source.test.ts.

function admit(rules: SourceRules, path: string, size = 0, type = "file"): string[] {
  return rules.admit({ index: 7, path, type, mode: 0o644, size } as TarEntry);
}

test("an admitted name is answered in parts", () => {
  const rules = new SourceRules();
  assert.deepEqual(admit(rules, "workspace/jobs/web/a b"), ["workspace", "jobs", "web", "a b"]);
  assert.deepEqual(admit(rules, "ops.conf"), ["ops.conf"]);
  assert.deepEqual(admit(rules, "templates", 0, "directory"), ["templates"]);
});

test("./ before a name and ./ alone are passed over, and a name that is there twice is refused all the same", () => {
  const rules = new SourceRules();
  assert.deepEqual(admit(rules, ".", 0, "directory"), []);
  assert.deepEqual(admit(rules, "./workspace", 0, "directory"), ["workspace"]);
  assert.deepEqual(admit(rules, "./ops.conf"), ["ops.conf"]);
  assert.throws(() => admit(rules, "ops.conf"), { message: /it is in the archive twice/ });
  assert.throws(() => admit(rules, ".", 0, "directory"), { message: /it is in the archive twice/ });
  assert.throws(() => admit(rules, "."), { message: /"\." in its path is not allowed/ });
  assert.throws(() => admit(rules, "./data/ops.db"), { message: /only ops\.conf/ });
  assert.throws(() => admit(rules, "././ops.conf"), { message: /"\." in its path is not allowed/ });
  assert.throws(() => admit(rules, ".//etc/passwd"), { message: /an absolute path is not allowed/ });
});

test("names of the longest size are admitted", () => {
  const rules = new SourceRules();
  admit(rules, `workspace/${"ä".repeat(127)}n`);
  admit(rules, `workspace${`/${"n".repeat(200)}`.repeat(5)}/${"n".repeat(9)}`);
});

test("T-88 256 MiB are admitted, not one byte more", () => {
  const rules = new SourceRules();
  for (let count = 0; count < 4; count++) admit(rules, `workspace/${count}`, 64 * 1024 * 1024);
  admit(rules, "workspace/empty");
  assert.throws(() => admit(rules, "workspace/x", 1), { message: /at most 256 MiB/ });
});

test("T-88 20,000 files and folders are admitted, not one more", () => {
  const rules = new SourceRules();
  for (let count = 1; count < 20_000; count++) admit(rules, `workspace/${count}`);
  assert.throws(() => admit(rules, "workspace/x"), { message: /more than 20000 files and folders/ });
});

test("T-88 folders that are only part of a path count too", () => {
  const rules = new SourceRules();
  const deep = (count: number) => admit(rules, `workspace/${count}${"/d".repeat(490)}`);
  for (let count = 0; count < 40; count++) deep(count);
  assert.throws(() => deep(40), { code: "invalid_source", message: /more than 20000 files and folders/ });
});

test("whether there is a workspace/ is seen from its folder or anything below", () => {
  const rules = new SourceRules();
  admit(rules, "ops.conf");
  assert.equal(rules.hasWorkspace, false);
  admit(rules, "workspace/x");
  assert.equal(rules.hasWorkspace, true);
});

test("T-88 a path of 1,024 bytes with parts of 255 is one, and of one byte more it is none", () => {
  const parts = (...lengths: number[]) => lengths.map((length) => "n".repeat(length)).join("/");
  for (const right of ["a", "a/..b/c.", ".a", "...", "a b", "é", parts(255), parts(255, 255, 255, 255, 0).slice(0, -1), "~"])
    assert.equal(pathProblem(right), undefined, right);
  const wrong: [path: string, problem: RegExp][] = [
    ["", /^it has no name$/],
    ["/a", /^an absolute path/],
    ["a//b", /^an empty part/],
    ["a/", /^an empty part/],
    ["./a", /^"\." in its path/],
    ["a/..", /^"\.\." in its path/],
    ["a/./b", /^"\." in its path/],
    ["a\tb", /^its name has a control character$/],
    ["a\u0085", /^its name has a control character$/],
    [parts(256), /^a part of its path has more than 255 bytes$/],
    [`${"é".repeat(128)}/a`, /^a part of its path has more than 255 bytes$/],
    [`a/${parts(256)}`, /^a part of its path/],
    [parts(255, 255, 255, 255, 1), /^its path has more than 1024 bytes$/],
  ];
  for (const [path, problem] of wrong) assert.match(pathProblem(path) ?? "none", problem, path);
  assert.equal(pathProblem(`${parts(255, 255, 255, 254)}/n`.slice(0, 1_024)), undefined);
});

test("names that a file system may take for one another are refused, and a name is a file or a folder", () => {
  const problem = (...entries: [path: string, type?: string][]) => {
    const rules = new SourceRules();
    return entries.map(([path, type = "file"]) => rules.problemOf({ path: `workspace/${path}`, type, size: 0 })).at(-1);
  };
  const differs = (one: string, from: string) =>
    `${one} differs from workspace/${from} only in case or in how its letters are composed`;
  assert.equal(problem(["a/x"], ["A/y"]), differs("workspace/A", "a"));
  for (const [one, other] of [
    ["readme", "README"],
    ["\u00e9", "e\u0301"],
    ["stra\u00dfe", "STRASSE"],
  ] as const)
    assert.equal(problem([one], [other]), differs("it", one), other);
  assert.equal(problem(["a"], ["a/b"]), "workspace/a is both a file and a directory");
  assert.equal(problem(["a/b"], ["a"]), "workspace/a is both a file and a directory");
  assert.equal(problem(["a", "directory"], ["a", "directory"]), "it is in the archive twice");
  assert.equal(problem(["a/b"], ["a", "directory"], ["a/c"]), undefined, "a folder may be named after its files");
  assert.equal(problem(["a/b"], ["a", "directory"], ["a", "directory"]), "it is in the archive twice");
  assert.equal(problem(["a", "symlink"]), "a symlink is not allowed, only files and directories");
  const rules = new SourceRules();
  const roots = ["ops.conf", "ops.conf/a", "workspace", "templates", "data", "opsxconf", ""].map((path) =>
    rules.problemOf({ path, type: "file", size: 0 }),
  );
  const [own, below, ...others] = roots;
  assert.deepEqual([own, below], [undefined, "ops.conf must be a file"]);
  const none = "only ops.conf, workspace/ and templates/ can be pushed";
  assert.deepEqual(others, ["workspace must be a directory", "templates must be a directory", none, none, "it has no name"]);
  assert.equal(new SourceRules().problemOf({ path: "ops.conf", type: "directory", size: 0 }), "ops.conf must be a file");
});

test("the source of a folder is packed without what is never part of one, and refused by the name of what cannot be", async (t) => {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, {
    files: { "ops.conf": "1234", "workspace/a/b": "#!5", "workspace/venv/x": "", "templates/t/c": "67", other: "x" },
  });
  const { files, bytes } = await packSource(dir);
  assert.deepEqual([files, bytes], [4, 4 + 3 + 2 + 2], "with workers.json");
  const refused = async (message: string, at = dir) =>
    await assert.rejects(packSource(at), { code: "invalid_source", message: `Cannot push ${message}` });
  await refused(`${dir}/none: there is no such folder`, `${dir}/none`);
  await refused(`${dir}/other/below: there is no such folder`, `${dir}/other/below`);
  await refused(`${dir}/templates: it has no workspace/, so it is not a bucket`, `${dir}/templates`);
  const bad = path.join(dir, "workspace/a/z");
  symlinkSync("b", bad);
  await refused(`${bad}: a symbolic link is not allowed`);
  const other = temporaryFolder(t);
  makeWorkspace(other, {});
  fifo(path.join(other, "workspace/pipe"));
  await refused(`${other}/workspace/pipe: a special file is not allowed`, other);
  const third = temporaryFolder(t);
  writeFileSync(path.join(third, "workspace"), "");
  await refused(`${third}: it has no workspace/, so it is not a bucket`, third);
  const fourth = temporaryFolder(t);
  makeWorkspace(fourth, {});
  writeFileSync(Buffer.from(`${fourth}/workspace/\xff`, "latin1"), "");
  await refused(`${fourth}/workspace/\uFFFD: a name that is not UTF-8 is not allowed`, fourth);
  symlinkSync("loop", path.join(fourth, "loop"));
  await assert.rejects(packSource(path.join(fourth, "loop")), { code: "ELOOP" });
});

test("a file that changes while it is packed fails the push by its name", async (t) => {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, { files: { "workspace/run": "#!1", "workspace/plain": "2" } });
  chmodSync(path.join(dir, "workspace/plain"), 0o655);
  const packed = Buffer.concat(await Array.fromAsync((await packSource(dir)).archive));
  const modeOf = (name: string) => packed.subarray(packed.indexOf(name) + 100).toString("latin1", 0, 7);
  assert.deepEqual(["workspace/run", "workspace/plain", "workspace/jobs"].map(modeOf), ["0000755", "0000644", "0000755"]);
  chmodSync(path.join(dir, "workspace/plain"), 0o677);
  const { archive } = await packSource(dir);
  const file = path.join(dir, "workspace/plain");
  rmSync(file);
  symlinkSync("run", file);
  await assert.rejects(Array.fromAsync(archive), {
    code: "invalid_source",
    message: `Cannot push ${file}: it changed while it was packed`,
  });
});

test("at most 100 problems of a workspace are told, and those of files that others read are theirs", (t) => {
  const layout = layoutOf(temporaryFolder(t));
  mkdirSync(layout.jobs, { recursive: true });
  const found = (own: string[] = []) => {
    const problems = new Problems();
    scanSource(layout, problems, own);
    return problems.errors.map(sentenceOf);
  };
  for (let index = 0; index < 101; index++) symlinkSync("x", path.join(layout.workspace, `l${index}`));
  assert.equal(found().length, 100);
  assert.equal(found(["l0", "l1"]).length, 99);
  const jobs = layoutOf(temporaryFolder(t));
  mkdirSync(jobs.workspace);
  writeFileSync(jobs.jobs, "");
  const problems = new Problems();
  assert.deepEqual(scanSource(jobs, problems).jobs, new Map());
  assert.deepEqual(problems.errors.map(sentenceOf), ["ErrInvalidJob: workspace/jobs: it is not a folder"]);
});

test("of several files that changed while they were read the first is named, and the others are counted", (t) => {
  const layout = layoutOf(temporaryFolder(t));
  makeWorkspace(layout.root, { files: { "workspace/b": "1", "workspace/c": "1" } });
  const tree = scanSource(layout, new Problems());
  const told = () => {
    const problems = new Problems();
    checkUnchanged(layout, tree, problems);
    return problems.errors.map(sentenceOf);
  };
  const [of, again] = ["ErrSourceChanged: workspace: ", "while the build read the workspace: build again"];
  assert.deepEqual(told(), []);
  writeFileSync(path.join(layout.workspace, "c"), "12");
  assert.deepEqual(told(), [`${of}c: was changed ${again}`]);
  writeFileSync(path.join(layout.workspace, "a"), "");
  writeFileSync(path.join(layout.workspace, "b"), "12");
  assert.deepEqual(told(), [`${of}a: was changed (and 2 more) ${again}`]);
});
