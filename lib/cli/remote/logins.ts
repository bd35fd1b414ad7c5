import { createHash } from "node:crypto";
import { homedir } from "node:os";
import path from "node:path";
import { Failure, hasErrno, messageOf } from "../../core/errors.ts";
import { makePrivateFolder, readGuarded, realPlace, remove, writeAtomic } from "../../core/files.ts";
import { check, type Infer, object, optional, string } from "../../core/shape.ts";

const LOGIN = object({
  /** Of the server. */
  address: string(),
  /** The sessions, as a `Cookie` header. */
  cookies: string(),
  /** When the session ends, RFC 3339; empty where there is only that of a TOTP code. */
  ends: string(),
  ca_file: optional(string()),
});
/** What a server has opened for this user: a session, or that of a TOTP code. The token itself is not kept. */
export type Login = Omit<Infer<typeof LOGIN>, "address">;

/** The folder of the sessions, in the state folder of the user: a file of mode 0600 for each server. */
export function loginsFolder(env: NodeJS.ProcessEnv = process.env): string {
  const given = env.XDG_STATE_HOME ?? "";
  return path.join(path.isAbsolute(given) ? given : path.join(homedir(), ".local/state"), "ops", "logins");
}

/** What is kept of a server; undefined for nothing. Throws `usage` where others can read the file. */
export async function loginAt(base: URL): Promise<Login | undefined> {
  const file = fileOf(base);
  try {
    const checked = check(LOGIN, JSON.parse(await readGuarded(file)));
    return checked.ok && checked.value.address === addressOf(base) ? checked.value : undefined;
  } catch (error) {
    if (error instanceof SyntaxError || hasErrno(error, "ENOENT", "ENOTDIR")) return undefined;
    throw new Failure("usage", `the session in ${file} cannot be used: ${messageOf(error)}`);
  }
}

/** Makes the folder of the sessions. Throws where that cannot be. */
export async function prepareLogins(): Promise<void> {
  await makePrivateFolder(realPlace(loginsFolder()));
}

/** Keeps the session with a server, or forgets it. */
export async function keepLogin(base: URL, login: Login | undefined): Promise<void> {
  if (login === undefined) return await remove(fileOf(base));
  await prepareLogins();
  await writeAtomic(fileOf(base), `${JSON.stringify({ address: addressOf(base), ...login }, null, 2)}\n`, 0o600);
}

function fileOf(base: URL): string {
  const name = createHash("sha256").update(addressOf(base)).digest("hex").slice(0, 32);
  return path.join(realPlace(loginsFolder()), `${name}.json`);
}

function addressOf(base: URL): string {
  return base.origin + base.pathname.replace(/\/$/, "");
}
