// The Node that an archive brings: the package that package-lock.json locks for the architecture.
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { hashOf } from "./archive.ts";

/** The architectures that have an archive of their own. */
export const ARCHITECTURES = ["arm64", "x64"] as const;
/** The longest time for one program that a release starts. */
export const STEP_LIMIT_MS = 300_000;
export type Architecture = (typeof ARCHITECTURES)[number];

/** A package as package-lock.json has it. */
export interface LockedPackage {
  name: string;
  version: string;
  license: string;
  /** The SHA-512 of the package's archive, in hexadecimal digits. */
  sha512: string;
}

/** A Node for an archive. */
export interface BundledNode {
  architecture: Architecture;
  locked: LockedPackage;
  /** Has `bin/node` and `LICENSE`. */
  folder: string;
}

/** What the lock file of a source tree says of a package. Throws where it has no SHA-512 of the package. */
export function lockedPackage(root: string, name: string): LockedPackage {
  const { packages } = JSON.parse(readFileSync(path.join(root, "package-lock.json"), "utf8"));
  const { version, license, integrity } = packages[`node_modules/${name}`] ?? {};
  const [, hash] = /^sha512-([A-Za-z0-9+/]{86}==)$/.exec(integrity) ?? [];
  if (hash === undefined) throw new Error(`package-lock.json has no SHA-512 of ${name}`);
  return { name, version, license, sha512: Buffer.from(hash, "base64").toString("hex") };
}

/** The Node for an architecture as `npm ci` has installed it here, after it has compared the hash. */
export function installedNode(root: string, architecture: Architecture): BundledNode {
  const locked = lockedPackage(root, `node-linux-${architecture}`);
  return { architecture, locked, folder: path.join(root, "node_modules", locked.name) };
}

/**
 * Takes the Node for an architecture from npm, or from what npm keeps on this machine, and unpacks it below `folder`. Throws
 * where the package is not the one that the lock file names.
 */
export async function fetchNode(root: string, architecture: Architecture, folder: string): Promise<BundledNode> {
  const locked = lockedPackage(root, `node-linux-${architecture}`);
  const target = path.join(folder, locked.name);
  mkdirSync(target);
  const archive = `${locked.name}-${locked.version}.tgz`;
  const from = ["--prefer-offline", "--ignore-scripts", "--pack-destination", folder];
  run("npm", "pack", "--silent", ...from, `${locked.name}@${locked.version}`);
  await requireHash(path.join(folder, archive), locked);
  run("tar", "-xzf", path.join(folder, archive), "-C", target, "--strip-components=1", "package/bin/node", "package/LICENSE");
  return { architecture, locked, folder: target };
}

/** Throws where a file is not the archive of a locked package. */
export async function requireHash(archive: string, locked: LockedPackage): Promise<void> {
  if ((await hashOf(archive, "sha512")) !== locked.sha512)
    throw new Error(`${archive} is not ${locked.name} ${locked.version} of package-lock.json: its SHA-512 is another`);
}

function run(program: string, ...args: string[]): void {
  const { status, stderr, error } = spawnSync(program, args, { encoding: "utf8", timeout: STEP_LIMIT_MS });
  if (status !== 0) throw new Error(`${program} ${args[0]} failed: ${error?.message ?? stderr}`);
}
