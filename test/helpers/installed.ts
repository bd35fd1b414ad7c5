import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { patience } from "../../scripts/patience.ts";

const CHECKS = fileURLToPath(new URL("../fixtures/installed.ts", import.meta.url));
/** How long installation and checks may take; on a quiet machine they take eight seconds. */
const LIMIT_MS = 120_000;
const RELEASE = fileURLToPath(new URL("../../scripts/release/main.ts", import.meta.url));
const SOURCE = fileURLToPath(new URL("../../bin", import.meta.url));
/** The user that a proof makes for itself, in a namespace where nobody else sees the user. */
const USER = { name: "ops-stranger", id: 64_321 };

/**
 * Runs a command, its place in `$@`, where there is no network but loopback, where /opt is empty, and where the program of
 * the source tree is not there. Whatever the command has started ends with it.
 */
const ISOLATED = `
mount -t tmpfs none "$SOURCE" && mount -t tmpfs none /opt && mount --bind "$ACCOUNTS" /etc/passwd || exit 99
busybox ip link set lo up || exit 99
unset SOURCE ACCOUNTS
exec "$@"`;
const UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", ISOLATED, "sh"];

/** True where this process may make such a place. */
export const CAN_ISOLATE =
  process.getuid?.() === 0 &&
  spawnSync("unshare", ["--net", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/opt"]).status === 0;

/** A program that was made by a release, and how a stranger installs and checks it. */
export interface Stranger {
  /** The archive of the release: one that has a Node, or the npm package. */
  archive: string;
  /** Who runs the program; root installs it. */
  as: "root" | "user";
  /** Deploys over ssh, too. */
  deploys: boolean;
  /** What `ops version --json` tells beside its Node. */
  expected: { version: string; commit: string };
}

/**
 * Installs an archive of a release where there is no network and an empty home, and checks the program that is installed
 * (test/fixtures/installed.ts). `folder` is an empty one. Throws with what the checks said.
 */
export function checkInstalled(folder: string, { archive, as, deploys, expected }: Stranger): void {
  chmodSync(folder, 0o711);
  const [home, programs, temporary] = ["home", "programs", "tmp"].map((name) => path.join(folder, name)) as [
    string,
    string,
    string,
  ];
  for (const one of [home, programs, temporary]) mkdirSync(one);
  chmodSync(temporary, 0o1777);
  const accounts = path.join(folder, "passwd");
  // sshd has a user of its own.
  writeFileSync(accounts, `${readFileSync("/etc/passwd", "utf8")}${USER.name}:x:${USER.id}:${USER.id}::${home}:/bin/sh\n`);
  const isPackage = archive.endsWith(".tgz");
  // The package runs on the Node of whoever installs it; the archive finds none that is new enough.
  if (isPackage) symlinkSync(process.execPath, path.join(programs, "node"));
  const place = CAN_ISOLATE ? "/opt/ops" : path.join(folder, "ops");
  const install = isPackage
    ? `npm install -g --prefix ${place} ${archive}`
    : `mkdir ${place} && tar -xzf ${archive} -C ${place} --strip-components=1`;
  const program = path.join(place, isPackage ? "bin/ops" : "ops");
  const who = as === "user" ? `setpriv --reuid=${USER.id} --regid=${USER.id} --clear-groups ` : "";
  const run = `${install} && exec env OPS_PROGRAM=${program} ${who}${process.execPath} ${CHECKS} ${deploys ? "deploy" : ""}`;
  const [file = "", ...args] = [...(CAN_ISOLATE ? UNSHARE : []), "sh", "-c", run];
  const { status, stdout, stderr } = spawnSync(file, args, {
    cwd: "/",
    timeout: patience(LIMIT_MS),
    encoding: "utf8",
    env: {
      HOME: home,
      TMPDIR: temporary,
      PATH: `${programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`,
      SOURCE,
      ACCOUNTS: accounts,
      EXPECTED_VERSION: expected.version,
      EXPECTED_COMMIT: expected.commit,
    },
  });
  rmSync(temporary, { recursive: true });
  assert.equal(status, 0, `${path.basename(archive)} as ${as}: ${stdout}${stderr}`);
}

/**
 * Makes a release as `npm run release` does and proves what its archives promise, each installed anew: the package as root,
 * the archive as root and as a user. Answers what was proved. Only root can take the network away.
 */
export async function installRelease(folder: string): Promise<string[]> {
  if (!CAN_ISOLATE) throw new Error("only root can make a place without a network");
  chmodSync(folder, 0o711);
  const dist = path.join(folder, "dist");
  const made = spawnSync(process.execPath, [RELEASE, "--dirty", "--target", dist], { encoding: "utf8" });
  if (made.status !== 0) throw new Error(made.stderr);
  const { predicate } = JSON.parse(readFileSync(path.join(dist, "provenance.json"), "utf8"));
  const { version, commit } = predicate.buildDefinition.externalParameters;
  const name = `ops-${version}`;
  return [
    [`${name}.tgz`, "root"],
    [`${name}-linux-${process.arch}.tar.gz`, "root"],
    [`${name}-linux-${process.arch}.tar.gz`, "user"],
  ].map(([archive, as], index) => {
    const place = path.join(folder, String(index));
    mkdirSync(place);
    checkInstalled(place, {
      archive: path.join(dist, archive as string),
      as: as as "root" | "user",
      deploys: true,
      expected: { version, commit },
    });
    return `${archive} as ${as}`;
  });
}
