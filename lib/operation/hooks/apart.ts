import { chmod, chown, lstat, mkdir, mkdtemp, readdir, rmdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { piecesOf } from "../../bucket/base/contents.ts";
import { layoutOf } from "../../bucket/base/layout.ts";
import { stagingFolder } from "../../bucket/catalog/staging.ts";
import { packSource } from "../../bucket/source/source-rules.ts";
import { writeTar } from "../../codec/archive/tar-write.ts";
import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { exists, PRIVATE_FILE, PRIVATE_FOLDER, realPlace, remove, unlessMissing } from "../../core/files.ts";
import { identify, isAlive } from "../../core/process.ts";
import type { Launcher, OtherUser } from "../../core/spawn.ts";
import type { ScriptFile } from "../../hook/scripts.ts";
import { openAgent } from "../../transport/ssh/agent.ts";
import type { OperationContext } from "../base/context.ts";
import type { Fleet } from "../base/fleet.ts";
import { type ScriptPlace, unlessWithoutSsh } from "./hook-script.ts";

// A folder for the scripts of a session that run as another user:
//
//   ops-hooks-<pid>-<start of the process>-…/   root's; the group of the user may go through
//     bucket/                                   the user's: to scripts, the bucket's root
//     ssh/                                      root's: what ssh needs to sign in without the key
//
// Scripts may put links into bucket/ at any time. So root opens, makes and removes nothing below it by a path: all of that
// is done by commands of the user, who is led by a link only to where a script could have gone anyway.

const FOLDER_NAME = /^ops-hooks-(?<pid>\d+)-(?<start_time>\d+)-/;
const PASSAGE = 0o710;
/** Scripts may run programs of theirs there, which /run often forbids. */
const PLACES = [...new Set([realPlace(tmpdir()), "/tmp", "/run"])];
/** $1 is a folder; a script's own files are made anew each time. */
const UNPACK = 'umask 077 && rm -rf -- "$1/_hooks" && mkdir -p -- "$1" && exec tar -xmof - -C "$1"';
/** $1 is the folder, which a script may have closed. */
const EMPTY_BUCKET = 'chmod 700 -- "$1" && cd -- "$1" && { chmod -R u+rwX . 2>/dev/null; exec find . -mindepth 1 -delete; }';
const UNPACK_LIMIT_MS = 300_000;
const EMPTY_LIMIT_MS = 60_000;
/** What a script has left running may still make files. */
const MOST_TRIES = 5;

/**
 * Makes the folder of a session whose scripts run as another user: a copy of the source, and what its scripts need. Only
 * root can. It is removed at the end of the session; {@link sweepApart} removes what a killed run has left.
 */
export async function openApart(
  context: OperationContext & { hookUser: OtherUser },
  fleet: Fleet,
  workers: string,
): Promise<ScriptPlace> {
  const { layout: source, launcher, log, signal, hookUser: user } = context;
  const folder = await makeApart(launcher, user);
  await using opened = new AsyncDisposableStack();
  opened.defer(() =>
    removeApart(folder, launcher, user).catch((error: unknown) =>
      log.warn(`${messageOf(error)}; the next run tries again to remove it`),
    ),
  );
  const layout = layoutOf(path.join(folder, "bucket"));
  const unpack = async (target: string, archive: AsyncIterable<Uint8Array>) => {
    const how = { user, cwd: layout.root, input: archive, timeoutMs: UNPACK_LIMIT_MS, signal };
    const { exitCode, stderr, reason } = await launcher.run(["sh", "-c", UNPACK, "sh", target], how);
    throwIfCancelled(signal);
    if (exitCode !== 0) throw new Failure("failed", `Cannot write to ${target} as ${user.name}: ${stderr.trim() || reason}`);
  };
  const { archive } = await packSource(source.root).catch((cause: unknown) => {
    throw new Failure("failed", `Cannot copy the source for scripts of hooks: ${messageOf(cause)}`, { cause });
  });
  await unpack(layout.root, archive);
  await unpack(layout.tmp, archiveOf([{ path: "workers.json", mode: PRIVATE_FILE, content: Buffer.from(workers) }]));
  const agent = await unlessWithoutSsh(context, async () => {
    const setup = await fleet.sshSetup();
    return setup && (await openAgent(path.join(folder, "ssh"), setup, user, { launcher, signal }));
  });
  if (agent) opened.defer(() => agent.close());
  const rest = opened.move();
  return {
    layout,
    user,
    sshConfig: agent?.configFile,
    async stage(worker, job, files) {
      const target = stagingFolder(layout, worker, job);
      await unpack(target, archiveOf(files));
      return target;
    },
    close: () => rest.disposeAsync(),
  };
}

/** Removes the folders of sessions whose process is gone. */
export async function sweepApart(launcher: Launcher, user: OtherUser): Promise<void> {
  for (const place of PLACES)
    for (const name of (await unlessMissing(readdir(place))) ?? []) {
      const { pid, start_time = "" } = FOLDER_NAME.exec(name)?.groups ?? {};
      if (pid === undefined || isAlive({ pid: Number(pid), start_time })) continue;
      const folder = path.join(place, name);
      const found = await unlessMissing(lstat(folder));
      // Everybody may make a folder of such a name there.
      if (found?.isDirectory() && found.uid === process.getuid?.()) await removeApart(folder, launcher, user).catch(() => {});
    }
}

function archiveOf(files: readonly ScriptFile[]): AsyncIterable<Uint8Array> {
  return writeTar(files.map(({ content, ...file }) => ({ ...file, size: content.length, content: piecesOf(content) })));
}

/** Makes the folder where the user gets to it. */
async function makeApart(launcher: Launcher, user: OtherUser): Promise<string> {
  const own = identify(process.pid);
  for (const place of PLACES) {
    const folder = await mkdtemp(path.join(place, `ops-hooks-${own?.pid}-${own?.start_time}-`)).catch(() => undefined);
    if (folder === undefined) continue;
    const bucket = path.join(folder, "bucket");
    await mkdir(bucket, PRIVATE_FOLDER);
    await chown(bucket, user.uid, user.gid);
    await chown(folder, process.getuid?.() ?? 0, user.gid);
    await chmod(folder, PASSAGE);
    const { exitCode } = await launcher.run(["true"], { user, cwd: bucket, timeoutMs: EMPTY_LIMIT_MS });
    if (exitCode === 0) return folder;
    await removeApart(folder, launcher, user);
  }
  throw new Failure("failed", `Cannot make a folder for hooks that ${user.name} can enter, in ${PLACES.join(", ")}`);
}

/** Removes the folder; what is below bucket/ goes by the user who owns it. Throws `failed` where files come faster than they go. */
async function removeApart(folder: string, launcher: Launcher, user: OtherUser): Promise<void> {
  const bucket = path.join(folder, "bucket");
  for (let tries = 1; await exists(bucket); tries++) {
    // Only root can put something else in the place of this folder.
    const { uid, gid } = await lstat(bucket);
    await launcher.run(["sh", "-c", EMPTY_BUCKET, "sh", bucket], { user: { ...user, uid, gid }, timeoutMs: EMPTY_LIMIT_MS });
    const isEmpty = await rmdir(bucket).then(
      () => true,
      () => false,
    );
    if (!isEmpty && tries === MOST_TRIES) throw new Failure("failed", `Cannot remove ${bucket}: it does not get empty`);
  }
  await remove(folder);
}
