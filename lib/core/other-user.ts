/** Another user of this machine, for commands that must not have the rights of this program. */
export interface OtherUser {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  /** A folder that there is. */
  readonly home: string;
}

/** The other user enters the folder itself: this program could be led by a link into one that is closed to that user. */
const ENTER = 'cd -- "$1" && shift && unset OLDPWD && exec "$@"';
/** What is about the user of this program. */
const OWN_VARIABLES = /^(HOME|USER|LOGNAME|SHELL|MAIL|TMPDIR|SSH_AUTH_SOCK|PWD|OLDPWD|XDG_.*)$/;
/** Not the login shell, which is often nologin: ssh starts its way over a jump host by `SHELL`. */
const SHELL = "/bin/sh";

/**
 * The command line with which root runs a command as another user in a folder: with the groups of that user, without
 * capabilities, and with no program that could give it any (setuid). The process stays the same one, so it leads its group
 * and signals reach it. Needs setpriv of util-linux.
 */
export function argvAs({ uid, gid }: OtherUser, argv: readonly string[], folder: string): [string, ...string[]] {
  const user = [`--reuid=${uid}`, `--regid=${gid}`, "--init-groups"];
  const rights = ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"];
  return ["setpriv", ...user, ...rights, "--", "sh", "-c", ENTER, "sh", folder, ...argv];
}

/** The environment of a command of another user: what is about the user of this program is that user's. */
export function environmentAs({ name, home }: OtherUser, environment: NodeJS.ProcessEnv): Record<string, string> {
  const kept = Object.entries(environment).filter((one): one is [string, string] => {
    return one[1] !== undefined && !OWN_VARIABLES.test(one[0]);
  });
  return { ...Object.fromEntries(kept), HOME: home, USER: name, LOGNAME: name, SHELL };
}
