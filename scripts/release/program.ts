// The files of the program as it is installed: JavaScript that TypeScript has made of lib, one file for each module, and
// what the program reads beside it.
import { spawnSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import path from "node:path";
import { walk } from "../../lib/core/walk.ts";
import type { ReleaseFile } from "./archive.ts";
import { STEP_LIMIT_MS } from "./node.ts";

/** What of the source tree is shipped. TypeScript of the program itself goes as JavaScript, see {@link isCompiled}. */
export const SHIPPED = [
  "CHANGELOG.md",
  "CONTRIBUTING.md",
  "LICENSE",
  "README.md",
  "bin",
  "docs",
  "examples",
  "lib",
  "openapi.yaml",
  "ui",
];
const EXECUTABLE = 0o755;
const PLAIN = 0o644;

/** Helper libraries are TypeScript as hook scripts import them. */
const isCompiled = (file: string) =>
  file === "bin/ops.js" || (/^lib\/.*\.ts$/.test(file) && !file.startsWith("lib/hook/helpers/"));

/**
 * The files of the program of a source tree, sorted by path, from the commit with this id. `folder` is for what TypeScript
 * makes. Throws with TypeScript's own words where a type is wrong.
 */
export function programFiles(root: string, folder: string, commit: string): ReleaseFile[] {
  compile(root, folder);
  const sources = SHIPPED.flatMap((name) => (path.extname(name) || name === "LICENSE" ? [name] : below(root, name)));
  const files = [
    ...sources.filter((file) => !isCompiled(file)).map((file) => read(root, file)),
    ...[...below(folder, "bin"), ...below(folder, "lib")].map((file) => read(folder, file)),
    { path: "package.json", mode: PLAIN, content: manifest(root, commit) },
  ];
  return files.sort((a, b) => (a.path < b.path ? -1 : 1));
}

function compile(root: string, folder: string): void {
  const tsc = path.join(root, "node_modules/typescript/bin/tsc");
  const argv = [tsc, "-p", path.join(root, "tsconfig.release.json"), "--outDir", folder];
  const options = { cwd: root, encoding: "utf8", timeout: STEP_LIMIT_MS } as const;
  const { status, stdout, stderr, error } = spawnSync(process.execPath, argv, options);
  if (status !== 0) throw new Error(`TypeScript did not make the program: ${error?.message ?? `${stdout}${stderr}`}`);
}

function below(root: string, folder: string): string[] {
  return walk(path.join(root, folder)).map((file) => `${folder}/${file.path}`);
}

function read(root: string, file: string): ReleaseFile {
  const place = path.join(root, file);
  const isProgram = file === "bin/ops.js" || (statSync(place).mode & 0o100) !== 0;
  return { path: file, mode: isProgram ? EXECUTABLE : PLAIN, content: readFileSync(place) };
}

/** The package.json of the package: without what only the source tree needs, and with the commit. */
function manifest(root: string, commit: string): Buffer {
  const { name, version, description, license, type, engines, bin } = JSON.parse(
    readFileSync(path.join(root, "package.json"), "utf8"),
  );
  const kept = { name, version, description, license, type, engines, bin, files: SHIPPED, gitHead: commit };
  return Buffer.from(`${JSON.stringify(kept, null, 2)}\n`);
}
