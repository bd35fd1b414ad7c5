import { homedir } from "node:os";
import path from "node:path";
import { Failure, hasErrno, messageOf } from "../../core/errors.ts";
import { makePrivateFolder, readGuarded, realPlace, writeAtomic } from "../../core/files.ts";
import { check, type Infer, object, optional, record, string } from "../../core/shape.ts";

/** A server that `ops login` has signed in to. The token itself is not kept. */
const LOGIN = object({
  /** The sessions, as a `Cookie` header. */
  cookies: string(),
  /** When the session ends, RFC 3339. */
  ends: string(),
  ca_file: optional(string()),
});
/** A server that `ops login` has signed in to. */
export type Login = Infer<typeof LOGIN>;

const LOGINS = record(LOGIN, { key: /^https?:/, means: "the address of a server" });
/** The mode bits that the file must not have. */
const NOT_FOR_OTHERS = 0o077;

/** The file of the sessions, mode 0600, in the state folder of the user. */
export function loginsFile(env: NodeJS.ProcessEnv = process.env): string {
  const given = env.XDG_STATE_HOME ?? "";
  return path.join(path.isAbsolute(given) ? given : path.join(homedir(), ".local/state"), "ops/logins.json");
}

/** The session with a server; undefined where there is none. Throws `usage` where others can read the file. */
export async function loginAt(base: URL): Promise<Login | undefined> {
  return (await allLogins())[addressOf(base)];
}

/** Keeps the session with a server, or forgets it. */
export async function keepLogin(base: URL, login: Login | undefined): Promise<void> {
  const { [addressOf(base)]: _, ...others } = await allLogins();
  const file = loginsFile();
  await makePrivateFolder(path.dirname(file));
  const all = login === undefined ? others : { ...others, [addressOf(base)]: login };
  await writeAtomic(realPlace(file), `${JSON.stringify(all, null, 2)}\n`, 0o600);
}

function addressOf(base: URL): string {
  return base.origin + base.pathname.replace(/\/$/, "");
}

async function allLogins(): Promise<Record<string, Login>> {
  try {
    const checked = check(LOGINS, JSON.parse(await readGuarded(loginsFile(), NOT_FOR_OTHERS)));
    return checked.ok ? checked.value : {};
  } catch (error) {
    if (error instanceof SyntaxError || hasErrno(error, "ENOENT", "ENOTDIR")) return {};
    throw new Failure("usage", `the sessions in ${loginsFile()} cannot be used: ${messageOf(error)}`);
  }
}
