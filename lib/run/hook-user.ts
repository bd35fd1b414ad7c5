import { lstat } from "node:fs/promises";
import { Failure, messageOf } from "../core/errors.ts";
import { unlessMissing } from "../core/files.ts";
import { selfArguments } from "../core/self.ts";
import { quote } from "../core/shape.ts";
import { type Argv, type CommandOutcome, Launcher, type OtherUser } from "../core/spawn.ts";

const ACCOUNT_NAME = /^[A-Za-z_][\w.-]*\$?$/;
const TRIAL_LIMIT_MS = 60_000;
/** Prints those of its arguments that can be read or entered. */
const OPEN = 'for place; do if [ -r "$place" ] || [ -x "$place" ]; then printf "%s\\n" "$place"; fi; done';

/**
 * The user whom hook scripts run as. It is tried whether this machine lets root become that user without any right, and
 * whether the user can run ops, as scripts in TypeScript do. Refuses (`usage`) a user who can open one of `closed`: the root
 * and the secrets of the server.
 */
export async function hookUserOf(name: string, closed: readonly string[], launcher = new Launcher({})): Promise<OtherUser> {
  const asked = (argv: Argv, user?: OtherUser) => askedBy(launcher, name, argv, user);
  if (process.getuid?.() !== 0) throw refused(name, "only a server that runs as root can run scripts as another user");
  const user = await accountOf(name, asked);
  if (user.uid === 0) throw refused(name, "that is root: name a user that may do nothing else");
  const tried = await asked(selfArguments("version"), user);
  if (tried.exitCode !== 0) {
    const why = tried.stderr.trim().split("\n").at(-1) || "no answer in time";
    throw refused(name, `ops does not run as this user: ${why}; install ops where every user can read it, such as /opt/ops`);
  }
  const { stdout, exitCode, reason } = await asked(["sh", "-c", OPEN, "sh", ...closed], user);
  if (exitCode !== 0) throw refused(name, `what this user can open cannot be tried: ${exitCode ?? reason}`);
  const [place] = stdout.split("\n").filter(Boolean);
  if (place !== undefined) throw refused(name, `this user can open ${place}: chown root: ${place} && chmod go= ${place}`);
  return Object.freeze(user);
}

async function accountOf(name: string, asked: (argv: Argv) => Promise<CommandOutcome>): Promise<OtherUser> {
  const { stdout } = ACCOUNT_NAME.test(name) ? await asked(["getent", "passwd", name]) : { stdout: "" };
  const [found, , uid, gid, , home = ""] = stdout.trim().split(":");
  if (!found || found !== name) throw refused(name, "there is no such user here; `useradd --system --user-group` makes one");
  const hasHome = home !== "" && (await unlessMissing(lstat(home), "ENOENT", "ENOTDIR"))?.isDirectory();
  return { name, uid: Number(uid), gid: Number(gid), home: hasHome ? home : "/" };
}

async function askedBy(launcher: Launcher, name: string, argv: Argv, user?: OtherUser): Promise<CommandOutcome> {
  try {
    return await launcher.run(argv, { cwd: "/", timeoutMs: TRIAL_LIMIT_MS, user });
  } catch (error) {
    throw refused(name, `${messageOf(error)} (getent is part of libc-bin, setpriv of util-linux)`);
  }
}

function refused(name: string, why: string): Failure {
  return new Failure("usage", `--hook-user ${quote(name)}: ${why}`);
}
