import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import fsp from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import net from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { Problems, sentenceOf } from "../../../lib/bucket/base/problems.ts";
import {
  parseSourceJson,
  parseSourceToml,
  readSource,
  relative,
  writeEdits,
  writeSourceFile,
} from "../../../lib/bucket/source/source-file.ts";
import { checkUnchanged, scanSource } from "../../../lib/bucket/source/source-rules.ts";
import { readWorkspace } from "../../../lib/bucket/workspace/workspace.ts";
import { diskSteps, linesOf } from "../../helpers/disk-record.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace, type WorkspaceSpec } from "../../helpers/workspace.ts";

const WEB: WorkspaceSpec = { workers: ["a"], jobs: { web: { selectors: ["worker"] } } };

function workspace(t: TestContext, spec: WorkspaceSpec = WEB) {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, spec);
  const layout = layoutOf(dir);
  const problems = new Problems();
  return { dir, layout, problems, errors: () => problems.errors.map(sentenceOf) };
}

/** What reading the whole workspace finds wrong. */
async function errorsIn(t: TestContext, spec: WorkspaceSpec, change: (dir: string) => void = () => {}) {
  const { dir, layout, problems, errors } = workspace(t, spec);
  change(dir);
  await readWorkspace(layout, problems, new AbortController().signal);
  return errors();
}

test("the files of each job are found, in order, with what is in no job left out", (t) => {
  const { layout, problems } = workspace(t, {
    jobs: { web: {}, api: {} },
    files: { "workspace/jobs/README": "", "workspace/notes/x": "", "workspace/jobs/api/b/c": "" },
  });
  const { jobs, states } = scanSource(layout, problems);
  assert.deepEqual(
    [...jobs].map(([job, files]) => [job, files.map((file) => file.path)]),
    [
      ["api", ["Makefile", "b/c", "manifest.json"]],
      ["web", ["Makefile", "manifest.json"]],
    ],
  );
  assert.deepEqual([states.has("notes/x"), states.has("workers.json")], [true, true]);
});

const CHANGES: [what: string, change: (workspace: string) => void, path: string][] = [
  ["grew", (at) => appendFileSync(`${at}/jobs/web/Makefile`, "#\\n"), "jobs/web/Makefile"],
  ["was removed", (at) => rmSync(`${at}/workers.json`), "workers.json"],
  ["came", (at) => writeFileSync(`${at}/jobs/web/new`, ""), "jobs/web/new"],
  [
    "was replaced by one as long",
    (at) => {
      writeFileSync(`${at}/other`, "[]");
      renameSync(`${at}/other`, `${at}/workers.json`);
    },
    "workers.json",
  ],
  [
    "became a link",
    (at) => {
      rmSync(`${at}/jobs/web/Makefile`);
      symlinkSync("x", `${at}/jobs/web/Makefile`);
    },
    "jobs/web/Makefile",
  ],
  ["went with its folder", (at) => renameSync(`${at}/jobs/web`, `${at}/../web`), "jobs/web/Makefile"],
];

for (const [what, change, file] of CHANGES)
  test(`ErrSourceChanged: a file that ${what} while the workspace was read`, (t) => {
    const { layout, problems, errors } = workspace(t);
    const tree = scanSource(layout, problems);
    checkUnchanged(layout, tree, problems);
    assert.deepEqual(errors(), []);
    change(layout.workspace);
    checkUnchanged(layout, tree, problems);
    assert.match(
      errors().join(),
      new RegExp(
        `^ErrSourceChanged: workspace: ${file}: was changed( \\(and 1 more\\))? while the build read the workspace: build again$`,
      ),
    );
  });

test("a workspace that changes while it is read is refused, or read as one of its states", async (t) => {
  const { dir, layout } = workspace(t);
  const files = Array.from({ length: 40 }, (_, index) => path.join(dir, "workspace/jobs/web", `file${index}`));
  const writeAll = (text: string, from = 0) => {
    for (const file of files.slice(from)) writeFileSync(file, text);
  };
  const outcomes = new Set<string>();
  for (let round = 1; round <= 30; round++) {
    writeAll("0");
    const problems = new Problems();
    // At another moment of the reading each time.
    const soon = (ticks: number): unknown => setImmediate(() => (ticks === 0 ? writeAll(`${round}`, 20) : soon(ticks - 1)));
    soon(round % 15);
    const { jobs } = await readWorkspace(layout, problems, new AbortController().signal);
    const changed = new Set(files.slice(20).map((file) => path.basename(file)));
    const own = jobs[0]?.files.filter((file) => changed.has(file.path)) ?? [];
    const texts = new Set(own.map((file) => file.content.toString()));
    const codes = problems.errors.map(({ code }) => code);
    outcomes.add(codes.at(-1) ?? `${texts.size} states`);
  }
  assert.ok(outcomes.has("ErrSourceChanged"), [...outcomes].join());
  assert.ok(!outcomes.has("2 states"), [...outcomes].join());
});

test("links, FIFOs, sockets and other special files are refused by name, wherever they are", async (t) => {
  const { dir, layout, problems, errors } = workspace(t);
  const server = net.createServer().listen(path.join(dir, "workspace/socket"));
  await new Promise((resolve) => server.once("listening", resolve));
  execFileSync("mkfifo", [path.join(dir, "workspace/jobs/web/pipe")]);
  symlinkSync("web", path.join(dir, "workspace/jobs/loop"));
  symlinkSync("..", path.join(dir, "workspace/up"));
  scanSource(layout, problems);
  server.close();
  assert.deepEqual(errors().sort(), [
    "ErrInvalidJob: workspace/jobs/loop: a symbolic link is not allowed",
    "ErrInvalidJob: workspace/jobs/web: pipe: a special file is not allowed",
    "invalid_source: workspace: socket: a special file is not allowed",
    "invalid_source: workspace: up: a symbolic link is not allowed",
  ]);
});

const TEXT_FILES: [file: string, code: string][] = [
  ["ops.conf", "ErrInvalidOpsConf"],
  ["workspace/bucket.conf", "ErrInvalidBucketConf"],
  ["workspace/bucket.jobs.conf", "ErrInvalidBucketConf"],
  ["workspace/workers.json", "ErrInvalidWorkerJSON"],
  ["workspace/disabled.json", "ErrInvalidDisabledJSON"],
  ["workspace/schedules.json", "ErrInvalidSchedules"],
  ["workspace/notify.json", "ErrInvalidNotify"],
  ["workspace/jobs/web/manifest.json", "ErrInvalidManifest"],
  ["workspace/jobs/web/vars.toml", "ErrInvalidJobVars"],
];

for (const [file, code] of TEXT_FILES)
  test(`${file} that is not UTF-8 is refused by its own error; a plain file may hold any bytes`, async (t) => {
    const bytes = Buffer.from([0x61, 0x22, 0xff, 0xc0, 0x80]);
    const write = (at: string) => (dir: string) => writeFileSync(path.join(dir, at), bytes);
    assert.deepEqual(await errorsIn(t, WEB, write(file)), [`${code}: ${file}: is not UTF-8 text`]);
    assert.deepEqual(await errorsIn(t, WEB, write("workspace/jobs/web/image")), []);
  });

test("a file behind a link is not edited, and nothing is left beside it", async (t) => {
  const dir = temporaryFolder(t);
  const real = path.join(temporaryFolder(t), "web");
  mkdirSync(path.join(dir, "workspace", "jobs"), { recursive: true });
  mkdirSync(real);
  writeFileSync(path.join(real, "manifest.json"), "before");
  symlinkSync(real, path.join(dir, "workspace", "jobs", "web"));
  const file = "workspace/jobs/web/manifest.json";
  const edit = writeEdits(layoutOf(dir), [{ file, after: "after", mode: 0o644 }]);
  await assert.rejects(edit, { code: "failed", message: /: a symbolic link is on the way to it; put a folder there$/ });
  assert.equal(readFileSync(path.join(dir, file), "utf8"), "before");
  assert.deepEqual(readdirSync(path.join(dir, "workspace")), ["jobs"]);
});

test("files with CRLF line ends and a byte order mark read as others do", async (t) => {
  const { layout, problems, errors } = workspace(t, {
    jobs: { web: {} },
    files: {
      "ops.conf": '\ufeffssh_user = "me"\r\n# end\r\n',
      "workspace/workers.json": '\ufeff[\r\n  {"host": "a"}\r\n]\r\n',
      "workspace/bucket.conf": 'a = """\r\none\r\ntwo"""\r\n',
      "workspace/jobs/web/manifest.json": '\ufeff{\r\n"selectors": ["worker"]\r\n}\r\n',
      "workspace/jobs/web/vars.toml": "a = 1\r\n",
    },
  });
  const read = await readWorkspace(layout, problems, new AbortController().signal);
  assert.deepEqual(errors(), []);
  assert.equal(read.bucketConf.values.get("a"), "one\r\ntwo");
  assert.deepEqual([read.workers.length, read.jobs[0]?.manifest.selectors], [1, ["worker"]]);
});

test("hostile sizes and depths end in one clear error each", async (t) => {
  const manifest = "workspace/jobs/web/manifest.json";
  const of = (text: string, file = manifest) => errorsIn(t, { ...WEB, files: { [file]: text } });
  const deep = (depth: number) => `${"[".repeat(depth)}${"]".repeat(depth)}`;
  assert.deepEqual(await of(`{"version": "${"1".repeat(10 * 1024 * 1024)}"}`), [
    "ErrInvalidManifest: workspace/jobs/web/manifest.json: has more than 1048576 bytes",
  ]);
  assert.match((await of("1".repeat(2 * 1024 * 1024), "workspace/workers.json")).join(), /has more than 1048576 bytes$/);
  assert.deepEqual(await of(deep(100_000)), [
    "ErrInvalidManifest: workspace/jobs/web/manifest.json: expected an object, found a list",
  ]);
  assert.match((await of("[".repeat(100_000))).join(), /manifest\.json: line 1, column 100001: not valid JSON: /);
  assert.match(
    (await of(`{"resources": {"ports": {"a": ${deep(50_000)}}}}`)).join(),
    /ports\/a: expected \{\} .*, found a list$/,
  );
  assert.match((await of(`a = ${deep(50_000)}`, "workspace/bucket.conf")).join(), /at most 100 levels of nesting/);
  const many = Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`P${index}`, {}]));
  assert.equal((await of(JSON.stringify({ resources: { ports: many } }))).length, 100, "at most 100 problems a file");
});

test("names that are too long, and paths, are refused", async (t) => {
  const long = "n".repeat(200);
  const errors = await errorsIn(t, {
    workers: [{ host: "h".repeat(254), labels: ["l".repeat(101)] }],
    jobs: { ["j".repeat(101)]: {}, web: { selectors: ["s".repeat(101)], resources: { ports: { ["p".repeat(101)]: {} } } } },
    files: { [`workspace/jobs/web/${[long, long, long, long, long].join("/")}/x`]: "" },
  });
  for (const part of [
    /path has more than 1024 bytes/,
    /0\/host: /,
    /0\/labels\/0: /,
    /a job's name has/,
    /selectors\/0: /,
    /ErrPortKeyFormat: /,
  ])
    assert.ok(
      errors.some((line) => part.test(line)),
      `${part}: ${errors.join("\n")}`,
    );
  assert.equal(errors.length, 6, errors.join("\n"));
  for (const line of errors) assert.ok(line.length < 1_500, line);
});

test("a control character in a name is shown, not written out", async (t) => {
  const errors = await errorsIn(t, WEB, (dir) => {
    mkdirSync(path.join(dir, "workspace/jobs/web/a\x1b[31m\n"));
    writeFileSync(path.join(dir, "workspace/jobs/web/a\x1b[31m\n/b"), "");
  });
  assert.deepEqual(errors, ['ErrInvalidJob: workspace/jobs/web: "a\\u001b[31m\\n"/b: its name has a control character']);
});

test("a file that is larger than a push may be is one error, and is not read", async (t) => {
  const errors = await errorsIn(t, WEB, (dir) => {
    const file = path.join(dir, "workspace/jobs/web/image");
    writeFileSync(file, "");
    truncateSync(file, 64 * 1024 ** 3);
  });
  assert.deepEqual(errors, ["ErrInvalidJob: workspace/jobs/web: image: all files together may have at most 256 MiB"]);
});

test("more files than a push may hold are one error", (t) => {
  const { dir, layout, problems, errors } = workspace(t);
  const folder = path.join(dir, "workspace/jobs/web/many");
  mkdirSync(folder);
  for (let index = 0; index < 20_100; index++) writeFileSync(path.join(folder, `${index}`), "");
  scanSource(layout, problems);
  assert.equal(errors().length, 1);
  assert.match(errors().join(), /there are more than 20000 files and folders$/);
});

test("files of the source are replaced with their mode, and what a killed edit has left goes with the next one", async (t) => {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, { files: { "ops.conf": "1", "workspace/a/b": "1", "templates/t/x": "1" } });
  const left = [".ops-edit.tmp", "workspace/.ops-edit.tmp", "templates/..ops-edit.tmp.0a.tmp", "workspace/.ops-edit.tmp.x"];
  const kept = ["workspace/.ops-edit.tmpx", "workspace/x.ops-edit.tmp", "workspace/a/.ops-edit.tmp"];
  for (const name of [...left, ...kept]) writeFileSync(path.join(dir, name), "");
  mkdirSync(path.join(dir, "templates/.ops-edit.tmp.d"));
  const edits = [
    { file: "ops.conf", after: "2", mode: 0o600 },
    { file: "workspace/a/b", after: "3", mode: 0o755 },
    { file: "templates/t/x", after: "4", mode: 0o644 },
  ];
  await writeEdits({ root: dir }, edits);
  for (const { file, after, mode } of edits)
    assert.deepEqual(
      [readFileSync(path.join(dir, file), "utf8"), statSync(path.join(dir, file)).mode & 0o777],
      [after, mode],
      file,
    );
  const isThere = (name: string) => statSync(path.join(dir, name), { throwIfNoEntry: false }) !== undefined;
  assert.deepEqual(
    [left.filter(isThere), kept.filter((name) => !isThere(name)), isThere("templates/.ops-edit.tmp.d")],
    [[], [], true],
  );
  await assert.rejects(writeEdits({ root: dir }, [{ file: "workspace/none", after: "x", mode: 0o644 }]), { code: "ENOENT" });
  assert.equal(isThere("workspace/.ops-edit.tmp"), false);
  await writeEdits({ root: temporaryFolder(t) }, []);
});

test("an owner that may not be given is left out, and any other fault of a disk is told", async (t) => {
  const dir = temporaryFolder(t);
  writeFileSync(path.join(dir, "ops.conf"), "before");
  const edits = [{ file: "ops.conf", after: "after", mode: 0o644 }];
  let code = "EIO";
  t.mock.method(fsp, "chown", async () => {
    throw Object.assign(new Error(code), { code });
  });
  syncBuiltinESMExports();
  t.after(syncBuiltinESMExports);
  await assert.rejects(writeEdits({ root: dir }, edits), { code: "EIO" });
  assert.deepEqual([readdirSync(dir), readFileSync(path.join(dir, "ops.conf"), "utf8")], [["ops.conf"], "before"]);
  code = "EPERM";
  const steps = await diskSteps(dir, () => writeEdits({ root: dir }, edits));
  assert.equal(readFileSync(path.join(dir, "ops.conf"), "utf8"), "after");
  assert.deepEqual(linesOf(steps).slice(-2), ["rename .ops-edit.tmp -> ops.conf", "flush ."]);
});

test("a file of the source is written with its folder, and behind no link", async (t) => {
  const dir = temporaryFolder(t);
  const file = path.join(dir, "workspace/deep/x.conf");
  for (const text of ["1", "2"]) {
    await writeSourceFile(file, text);
    assert.deepEqual([readFileSync(file, "utf8"), statSync(file).mode & 0o777], [text, 0o644]);
  }
  symlinkSync(path.join(dir, "workspace"), path.join(dir, "link"));
  const message = `Cannot use ${dir}/link/deep: a symbolic link is on the way to it; put a folder there`;
  await assert.rejects(writeSourceFile(path.join(dir, "link/deep/x.conf"), "3"), { code: "failed", message });
  assert.equal(readFileSync(file, "utf8"), "2");
  assert.equal(relative(layoutOf(dir), file), "workspace/deep/x.conf");
});

test("what breaks JSON or TOML is told with its line and column, and a file at the limit is read", async (t) => {
  const { layout } = workspace(t, {});
  const parsed = (text: string | Uint8Array, parse: typeof parseSourceJson | typeof parseSourceToml = parseSourceJson) => {
    const problems = new Problems();
    const value = parse(Buffer.from(text as string), problems.in("f", "ErrInvalidManifest"));
    return problems.errors.length === 0
      ? value
      : problems.errors.map(({ path: at, message }) => `${at}: ${message.replace(/:.*/, "")}`);
  };
  assert.deepEqual([parsed("[1]"), parsed("\ufeff{}"), { ...(parsed("a = 1", parseSourceToml) as object) }], [[1], {}, { a: 1 }]);
  for (const [text, place] of [
    ["", "line 1, column 1"],
    ["[1,", "line 1, column 4"],
    ["[1,\n 2,]", "line 2, column 4"],
    ['{"a": tru}', "line 1, column 10"],
    ["x", "line 1, column 1"],
    ["{}x", "line 1, column 3"],
    ['["a\nb"]', "line 1, column 4"],
    ["[\n[\n]", "line 3, column 2"],
    ["nul", "line 1, column 4"],
    ["-", "line 1, column 2"],
  ] as const)
    assert.deepEqual(parsed(text), [`${place}: not valid JSON`], text);
  assert.deepEqual(parsed(Buffer.from([0xff])), [": is not UTF-8 text"]);
  const limit = 1024 * 1024;
  assert.equal(parsed(`"${"x".repeat(limit - 2)}"`), "x".repeat(limit - 2));
  assert.deepEqual(parsed(`"${"x".repeat(limit - 1)}"`), [`: has more than ${limit} bytes`]);
  const problems = new Problems();
  const found = problems.in("workspace/none.json", "ErrInvalidManifest");
  assert.deepEqual([await readSource(parseSourceJson, layout, found), problems.errors], [undefined, []]);
  const below = problems.in("workspace/workers.json/below", "ErrInvalidManifest");
  assert.deepEqual([await readSource(parseSourceJson, layout, below), problems.errors], [undefined, []]);
  mkdirSync(path.join(layout.workspace, "folder.json"));
  await readSource(parseSourceJson, layout, problems.in("workspace/folder.json", "ErrInvalidManifest"));
  const why = "ErrInvalidManifest: workspace/folder.json: is not a regular file; symbolic links are not allowed";
  assert.deepEqual(problems.errors.map(sentenceOf), [why]);
});
