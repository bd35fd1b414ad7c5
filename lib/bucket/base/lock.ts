import { constants } from "node:fs";
import { readdir, rename, stat, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import path from "node:path";
import { Failure, placed } from "../../core/errors.ts";
import { createExclusive, PRIVATE_FILE, readBounded, remove } from "../../core/files.ts";
import { bootId, endGroup, endGroups, type GroupIdentity, identify, isAlive, type ProcessIdentity } from "../../core/process.ts";
import { boolean, type Infer, integer, list, object, string, valueIn, withDefault } from "../../core/shape.ts";
import type { Layout } from "./layout.ts";

/** control-plane.md, Errors: the sentence of a busy bucket, verbatim. */
const BUSY_SENTENCE = "bucket busy: another ops operation is in progress";

const PROCESS = { start_time: string() };
// A later version may say more; its lock is a lock all the same.
const LATER = { unknown: "warn" } as const;
const LOCK = object(
  {
    run_id: string(),
    command: string(),
    since: string(),
    boot_id: string(),
    host: string(),
    /** The first is the owner, the only one that writes and removes the lock; then the run process. */
    holders: list(object({ pid: integer({ min: 1 }), ...PROCESS }, LATER)),
    groups: list(object({ pgid: integer({ min: 1 }), ...PROCESS }, LATER)),
    /** The run was told to stop, and its groups with it. */
    ending: withDefault(boolean(), false),
  },
  LATER,
);

/** What `data/ops.lock` says: who works in the bucket, and which process groups belong to that work. */
export type LockContent = Infer<typeof LOCK>;

/** The files of a lock: those of a bucket, or of the root of a server. `data` is the folder that they are in. */
export type LockPlace = Pick<Layout, "lock" | "takeover" | "data">;

const TAKEOVER_LIMIT_MS = 15_000;
const RECOVERY_GRACE_MS = 2_000;
const ATTEMPTS = 50;
const LOCK_BYTES = 16 * 1024 * 1024;
/** Flags for overwriting the lock; a symbolic link is not followed. */
const OVERWRITE = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_NOFOLLOW;

/**
 * The lock of a bucket while this process owns it (control-plane.md, Runs 2). It was made with link(), so it is never
 * half-written; changes replace it by rename and are not flushed to the disk, since a power loss changes the boot id.
 * A file that somebody removed is made again with the next change; one that another operation made instead is left alone.
 */
export class BucketLock {
  /** The run whose lock was taken over, because nobody carries it out any more. */
  readonly abandoned: string | undefined;
  readonly #layout: LockPlace;
  readonly #content: LockContent;
  #writing: Promise<void> | undefined;
  #again = false;
  #released = false;

  constructor(layout: LockPlace, content: LockContent, abandoned?: string) {
    this.#layout = layout;
    this.#content = content;
    this.abandoned = abandoned;
  }

  /** Adds the run process; resolves once the file says so. */
  addHolder(holder: ProcessIdentity): Promise<void> {
    this.#content.holders.push(holder);
    return this.#write();
  }

  /** Adds or drops a process group of the run; resolves once the file says so. */
  changeGroup(change: "open" | "close", group: GroupIdentity): Promise<void> {
    const others = this.#content.groups.filter((one) => one.pgid !== group.pgid);
    this.#content.groups = change === "open" ? [...others, group] : others;
    return this.#write();
  }

  /** Notes that the groups are being ended; resolves once the file says so. */
  tellEnding(): Promise<void> {
    this.#content.ending = true;
    return this.#write();
  }

  /** Frees the bucket; changes after it do nothing. Nothing of the run may be alive any more. */
  async release(): Promise<void> {
    this.#released = true;
    // A change that could not be written, on a full disk say, must not keep the bucket busy.
    await this.#writing?.catch(() => {});
    if (await isLockOf(this.#layout, this.#content.run_id)) await remove(this.#layout.lock);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }

  /** Changes that come while one is being written share the next write. */
  #write(): Promise<void> {
    if (this.#released) return Promise.resolve();
    this.#again = true;
    this.#writing ??= this.#writeLoop();
    return this.#writing;
  }

  async #writeLoop(): Promise<void> {
    try {
      while (this.#again) {
        this.#again = false;
        await this.#replace(JSON.stringify(this.#content));
      }
    } catch (error) {
      throw placed(error, this.#layout.lock);
    } finally {
      // In the same step as the last look at #again, so that no change can fall between.
      this.#writing = undefined;
    }
  }

  async #replace(text: string): Promise<void> {
    const { lock, data } = this.#layout;
    if (await isLockOf(this.#layout, this.#content.run_id)) {
      const temporary = path.join(data, ".ops.lock.update");
      await writeFile(temporary, text, { mode: PRIVATE_FILE, flag: OVERWRITE });
      await rename(temporary, lock);
    } else if (!(await createExclusive(lock, text)))
      throw new Failure("bucket_busy", `${lock} was removed, and another operation has taken it since`);
  }
}

/**
 * Takes the lock of a bucket for a run. Throws `bucket_busy` while another operation holds it; the details name the run,
 * its command, process and start. A lock whose holders are all gone is taken over, and its living groups are ended first.
 */
export async function acquireLock(layout: LockPlace, runId: string, command: string): Promise<BucketLock> {
  const content: LockContent = {
    run_id: runId,
    command,
    since: new Date().toISOString(),
    boot_id: bootId(),
    host: hostname(),
    holders: [identify(process.pid) as ProcessIdentity],
    groups: [],
    ending: false,
  };
  let abandoned: string | undefined;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    if (await createExclusive(layout.lock, JSON.stringify(content))) return new BucketLock(layout, content, abandoned);
    const found = await readLock(layout);
    if (found === undefined) continue;
    if (found !== "unreadable") {
      if (!isStale(found)) throw busyFailure(holderIn(layout, found));
      abandoned = found.run_id;
    }
    if (!(await takeOver(layout, false))) break;
  }
  throw busyFailure();
}

/** What the lock file says now; undefined without one, `unreadable` for what no ops wrote. */
export async function readLock(layout: LockPlace): Promise<LockContent | "unreadable" | undefined> {
  const bytes = await readBounded(layout.lock, LOCK_BYTES);
  return bytes && (valueIn(LOCK, bytes.toString()) ?? "unreadable");
}

async function isLockOf(layout: LockPlace, runId: string): Promise<boolean> {
  const found = await readLock(layout);
  return found !== undefined && found !== "unreadable" && found.run_id === runId;
}

/** True when none of the lock's holders can be alive: another start of this machine, or all of them gone. */
export function isStale(lock: LockContent): boolean {
  if (lock.boot_id !== bootId()) return lock.host === hostname();
  return !lock.holders.some(isAlive);
}

/** True while the process that took the lock lives (or may live, on another machine). */
export function isOwned(lock: LockContent): boolean {
  if (lock.boot_id !== bootId()) return lock.host !== hostname();
  return lock.holders[0] !== undefined && isAlive(lock.holders[0]);
}

/**
 * Removes a lock that nobody owns any more: the kernel lets one process at a time do this, and the lock is read again
 * before it is judged, and once more before it goes. With `endHolders` a run process that outlived its owner is ended
 * too (TERM, 2 s, KILL). Living groups are ended before the lock goes; what a finished leader left running is a daemon
 * and stays, but for the groups that were being ended. Answers false when others were at it for 15 s.
 */
export async function takeOver(layout: LockPlace, endHolders: boolean): Promise<boolean> {
  // Loaded when it is needed: a server that only takes free locks does without SQLite.
  const { exclusively } = await import("./database.ts");
  return await exclusively(layout.takeover, TAKEOVER_LIMIT_MS, async () => {
    const lock = await readLock(layout);
    if (lock === undefined) return;
    if (lock !== "unreadable") {
      if (endHolders ? isOwned(lock) : !isStale(lock)) return;
      // Read again, now that the owner is dead: an owner that released the lock after the first read, and then ended,
      // left the name free for another process.
      if (!(await isLockOf(layout, lock.run_id))) return;
      if (lock.boot_id === bootId()) {
        const running = lock.holders.filter(isAlive);
        for (const { pid } of running) await endGroup(pid, RECOVERY_GRACE_MS);
        // A run process that still ran has begun to end its groups when its server was gone.
        await endGroups(lock.groups, RECOVERY_GRACE_MS, lock.ending || running.length > 0);
      }
    }
    await remove(layout.lock);
    await removeLeftovers(layout);
  });
}

const LEFTOVER_AGE_MS = 60_000;

/** What was being written when a process was killed; a younger file may still be in use by somebody. */
async function removeLeftovers(layout: LockPlace): Promise<void> {
  for (const name of await readdir(layout.data)) {
    if (!name.startsWith(".ops.lock.") || !name.endsWith(".tmp")) continue;
    const file = path.join(layout.data, name);
    const age = Date.now() - ((await stat(file).catch(() => undefined))?.mtimeMs ?? Date.now());
    if (age > LEFTOVER_AGE_MS) await remove(file);
  }
}

/** Who holds a lock now, as details of `bucket_busy`; undefined for a lock that is free or can be taken over. */
export async function heldBy(layout: LockPlace): Promise<object | undefined> {
  const found = await readLock(layout);
  return found === undefined || found === "unreadable" || isStale(found) ? undefined : holderIn(layout, found);
}

/** The failure `bucket_busy`; the details say who is in the way, where this is known. */
export function busyFailure(details?: object): Failure {
  return new Failure("bucket_busy", BUSY_SENTENCE, { details });
}

function holderIn(layout: LockPlace, { run_id, command, since, host, holders, boot_id }: LockContent): object {
  const pid = holders[0]?.pid;
  const hint = `held by ${command} (run ${run_id}) on ${host}, process ${pid}, since ${since}`;
  const advice = boot_id === bootId() ? "" : `; once that host is known to be gone, remove ${layout.lock}`;
  return { run_id, command, since, host, pid, holder: hint + advice };
}
