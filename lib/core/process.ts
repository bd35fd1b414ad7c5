import { readdirSync, readFileSync } from "node:fs";
import { sleep } from "./async.ts";
import { Failure, hasErrno } from "./errors.ts";

/** A process that cannot be confused with a later one of the same number. */
export interface ProcessIdentity {
  pid: number;
  /** When it started, as the kernel counts (clock ticks since the boot, field 22 of /proc/<pid>/stat). */
  start_time: string;
}

/** A process group by its leader: pgid is the leader's pid. */
export interface GroupIdentity {
  pgid: number;
  start_time: string;
}

interface Stat {
  state: string;
  group: number;
  threads: number;
  startTime: string;
}

function readStat(pid: number): Stat | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The name in parentheses may itself hold blanks and parentheses: the fields start behind the last one.
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return { state: fields[0] ?? "", group: Number(fields[2]), threads: Number(fields[17]), startTime: fields[19] ?? "" };
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
}

/**
 * A zombie has ended: the kernel keeps its number until its parent asks. But the state is that of the first thread.
 * While other threads are left, one of them may be inside a system call that no signal stops, such as the removal of a
 * lock.
 */
function hasEnded(stat: Stat): boolean {
  return (stat.state === "Z" || stat.state === "X") && stat.threads <= 1;
}

/** The process that has this pid now, or undefined. */
export function identify(pid: number): ProcessIdentity | undefined {
  const stat = readStat(pid);
  return stat && !hasEnded(stat) ? { pid, start_time: stat.startTime } : undefined;
}

/** True while that very process lives (same pid and same start). */
export function isAlive(identity: ProcessIdentity): boolean {
  return identify(identity.pid)?.start_time === identity.start_time;
}

/** True while the group's leader lives. A daemon that the leader has left behind does not count. */
export function isGroupAlive(group: GroupIdentity): boolean {
  return isAlive({ pid: group.pgid, start_time: group.start_time });
}

/** The id of the machine's last start: processes of another boot are gone. Throws `failed` where there is no /proc. */
export function bootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
  } catch (cause) {
    throw new Failure("failed", "Cannot tell processes apart here: ops needs Linux with /proc", { cause });
  }
}

/** A limit of this process, or of another one. Node has raised that of open files as far as the hard one lets it. */
export function limitOf(what: "open files" | "processes", pid: number | "self" = "self"): number {
  const [, limit = "0"] = new RegExp(`^Max ${what} +(\\S+)`, "m").exec(readFileSync(`/proc/${pid}/limits`, "latin1")) ?? [];
  return limit === "unlimited" ? Number.POSITIVE_INFINITY : Number(limit);
}

/** The part of the limit of open files that logs may take. */
export const LOG_SHARE = 1 / 4;

/** Sends a signal to a process or, with a negative number, to a group; false when nobody is there. */
export function signalProcess(target: number, signal: NodeJS.Signals): boolean {
  try {
    process.kill(target, signal);
    return true;
  } catch (error) {
    if (hasErrno(error, "ESRCH")) return false;
    throw error;
  }
}

/** Refuses the ids that the kernel takes, once negated, for our own group (0) or for every process there is (1). */
function checkGroup(pgid: number): void {
  if (!Number.isSafeInteger(pgid) || pgid <= 1) throw new Failure("internal", `no process group has id ${pgid}`);
}

/** True while any process of the group runs, the leader or not. */
export function hasMembers(pgid: number): boolean {
  checkGroup(pgid);
  if (!signalProcess(-pgid, 0 as unknown as NodeJS.Signals)) return false;
  // The kernel also counts zombies that nobody has collected: look for a member that runs.
  return readdirSync("/proc").some((name) => {
    const stat = /^\d+$/.test(name) ? readStat(Number(name)) : undefined;
    return stat?.group === pgid && !hasEnded(stat);
  });
}

const KILL_WAIT_MS = 5_000;

/**
 * How a process group was ended: nobody was left of it (`gone`), TERM was enough, KILL was needed, or the kernel did not
 * let go of a process in time (`remaining`).
 */
export type GroupEnd = "gone" | "stopped" | "killed" | "remaining";

/** Ends all processes of a group: TERM, `graceMs` to unwind, then KILL and 5 s more. Answers how it ended. */
export async function endGroup(pgid: number, graceMs: number): Promise<GroupEnd> {
  checkGroup(pgid);
  if (!signalProcess(-pgid, "SIGTERM")) return "gone";
  if (await emptied(pgid, graceMs)) return "stopped";
  signalProcess(-pgid, "SIGKILL");
  return (await emptied(pgid, KILL_WAIT_MS)) ? "killed" : "remaining";
}

/**
 * Ends the groups whose leader lives. With `wereEnding`, groups that were told to end before, also those whose leader is
 * gone: what is left there ignores TERM, and is no daemon.
 */
export async function endGroups(groups: Iterable<GroupIdentity>, graceMs: number, wereEnding: boolean): Promise<void> {
  // No new process gets the number of a group while anything of the group is left.
  const isLeft = ({ pgid }: GroupIdentity) => wereEnding && identify(pgid) === undefined && hasMembers(pgid);
  const left = [...groups].filter((group) => isGroupAlive(group) || isLeft(group));
  await Promise.all(left.map(({ pgid }) => endGroup(pgid, graceMs)));
}

async function emptied(pgid: number, limitMs: number): Promise<boolean> {
  const until = performance.now() + limitMs;
  for (let pause = 5; hasMembers(pgid); pause = Math.min(pause * 2, 100)) {
    if (performance.now() >= until) return false;
    await sleep(pause);
  }
  return true;
}
