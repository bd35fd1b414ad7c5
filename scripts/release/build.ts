// Makes a release: an npm package, an archive with a Node for each architecture, and the papers about them. The same
// commit gives the same bytes.
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { hashOf, type ReleaseFile, writeArchive } from "./archive.ts";
import { type BundledNode, lockedPackage } from "./node.ts";
import { type Commit, isoTime, provenance, sbom } from "./papers.ts";
import { programFiles } from "./program.ts";
import { systemFiles } from "./system.ts";

const SUMS = "SHA256SUMS";

/** What a release is made from. */
export interface ReleaseOptions {
  /** The source tree. */
  root: string;
  /** The folder of the release: a new or an empty one, or that of an earlier release, which is replaced. */
  target: string;
  commit: Commit;
  /** The Node of each archive. */
  nodes: readonly BundledNode[];
}

/** Makes a release and answers the names of its files. Throws, and removes nothing, for a folder that holds something else. */
export async function buildRelease(options: ReleaseOptions): Promise<string[]> {
  const target = path.resolve(options.target);
  if (existsSync(target) && readdirSync(target).length > 0 && !existsSync(path.join(target, SUMS)))
    throw new Error(`${target} holds something else than a release: empty it, or name another folder with --target`);
  mkdirSync(path.dirname(target), { recursive: true });
  const beside = mkdtempSync(`${target}-`);
  try {
    const names = await fill({ ...options, target: beside });
    chmodSync(beside, 0o755);
    rmSync(target, { recursive: true, force: true });
    renameSync(beside, target);
    return names;
  } finally {
    rmSync(beside, { recursive: true, force: true });
  }
}

async function fill({ root, target, commit, nodes }: ReleaseOptions): Promise<string[]> {
  const compiled = path.join(target, "build");
  const files = programFiles(root, compiled, commit.id);
  rmSync(compiled, { recursive: true });
  const { version, license } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
  const name = `ops-${version}`;
  const whole = [...files, ...systemFiles(files, { version, date: isoTime(commit).slice(0, 10) })];
  const archives = [
    { file: `${name}.tgz`, top: "package", files },
    ...nodes.map((node) => ({ file: `${name}-linux-${node.architecture}.tar.gz`, top: name, files: withNode(whole, node) })),
  ];
  await Promise.all(archives.map((one) => writeArchive(path.join(target, one.file), one.top, one.files, commit.timeS)));
  const made = {
    version,
    license,
    commit,
    nodes,
    compiler: lockedPackage(root, "typescript"),
    lockHash: await hashOf(path.join(root, "package-lock.json")),
    nodeHashes: await hashes(nodes.map((node) => [node.architecture, path.join(node.folder, "bin/node")])),
    archives: await hashes(archives.map(({ file }) => [file, path.join(target, file)])),
  };
  const papers = { "provenance.json": provenance(made), "sbom.spdx.json": sbom(made) };
  for (const [file, paper] of Object.entries(papers))
    writeFileSync(path.join(target, file), `${JSON.stringify(paper, null, 2)}\n`);
  return await writeSums(target, [...Object.keys(made.archives), ...Object.keys(papers)]);
}

function withNode(files: readonly ReleaseFile[], { folder }: BundledNode): ReleaseFile[] {
  return [
    ...files,
    { path: "node/bin/node", mode: 0o755, content: { file: path.join(folder, "bin/node") } },
    { path: "node/LICENSE", mode: 0o644, content: { file: path.join(folder, "LICENSE") } },
  ];
}

async function hashes(files: [name: string, file: string][]): Promise<Record<string, string>> {
  return Object.fromEntries(await Promise.all(files.map(async ([name, file]) => [name, await hashOf(file)])));
}

/** Writes SHA256SUMS, for `sha256sum -c`. */
async function writeSums(target: string, files: readonly string[]): Promise<string[]> {
  const lines = await Promise.all(files.map(async (file) => `${await hashOf(path.join(target, file))}  ${file}\n`));
  writeFileSync(path.join(target, SUMS), lines.join(""));
  return [...files, SUMS];
}
