import path from "node:path";
import { Failure, messageOf } from "../../core/errors.ts";
import { object, optional, string } from "../../core/shape.ts";
import { askedOnTerminal, stdinBytes } from "../base/ask.ts";
import type { Parsed } from "../base/flags.ts";
import { printAnswer } from "../base/terminal.ts";
import { openClient, parseBaseUrl } from "./client.ts";
import { keepLogin, loginAt, loginsFolder, prepareLogins } from "./logins.ts";
import { asWhom } from "./people.ts";
import { expectAnswer } from "./remote-bucket.ts";
import { targetOf } from "./target.ts";

const SESSION = "/api/auth/session";
const OPENED = object({ expires_at: string(), name: optional(string()), role: optional(string()) });
/** A token that is longer is none. */
const MOST_BYTES = 16 * 1024;

/**
 * `ops login [base_url]`: exchanges the token for a session and keeps the session for later commands. The token comes from
 * `--token-file`, OPS_SERVE_TOKEN, the terminal or stdin. The address is never one of a file: a token would go to it.
 */
export async function loginCommand(input: Parsed): Promise<number> {
  const { values } = input;
  const base = parseBaseUrl(addressOf(input));
  const givenCa = values.get("ca-file");
  // Later commands run in other folders.
  const caFile = givenCa === undefined ? undefined : path.resolve(givenCa);
  const tokenFile = values.get("token-file");
  const token = tokenFile === undefined ? await givenToken(base.origin) : await readToken(tokenFile);
  const askCode = () => askedOnTerminal("TOTP code: ");
  const client = await openClient(base, { token, caFile, askCode });
  const code = values.get("totp");
  if (code !== undefined) await client.verifyTotp(code);
  // A session that cannot be kept could not be ended.
  await prepareLogins();
  // An earlier server does not say who one is.
  const { expires_at: ends, name, role } = expectAnswer(OPENED, await client.call("POST", SESSION, { json: {} }));
  await keepLogin(base, { cookies: client.cookies(), ends, ca_file: caFile });
  return printAnswer(
    input,
    { server: base.href, expires_at: ends, name, role },
    `signed in to ${base.origin}${asWhom({ name, role })} until ${ends}; the session is kept in ${loginsFolder()}\n`,
  );
}

/** `ops logout [base_url]`: ends the session, and forgets it even where the server cannot be reached. */
export async function logoutCommand(input: Parsed): Promise<number> {
  const { values, operands } = input;
  const named = operands[0] ?? values.get("server") ?? (await targetOf(input))?.address;
  const base = parseBaseUrl(named ?? addressOf(input));
  const login = await loginAt(base);
  if (!login) throw new Failure("not_found", `there is no session with ${base.origin}`);
  await keepLogin(base, undefined);
  const client = await openClient(base, { cookies: login.cookies, caFile: values.get("ca-file") ?? login.ca_file });
  // A session that lacks its code, or has ended, is over all the same.
  await client.call("DELETE", SESSION).catch((error: unknown) => {
    if (error instanceof Failure && ["totp_required", "unauthorized"].includes(error.code)) return;
    const left = `the session is forgotten here, and open on the server until ${login.ends}`;
    throw new Failure("failed", `${messageOf(error)}; ${left}`, { cause: error });
  });
  return printAnswer(input, { server: base.href }, `signed out of ${base.origin}\n`);
}

function addressOf({ operands, values }: Parsed): string {
  if (operands.length > 0 && values.has("server")) throw new Failure("usage", "give base_url or --server, not both");
  const address = operands[0] ?? values.get("server") ?? process.env.OPS_SERVER;
  if (address) return address;
  throw new Failure("usage", "base_url is missing: give the address of the server, such as https://ops.example:9090");
}

async function readToken(file: string): Promise<string> {
  return (await import("../../server/config.ts")).readToken(file);
}

async function givenToken(origin: string): Promise<string> {
  const given = process.env.OPS_SERVE_TOKEN || (await askedOnTerminal(`API token of ${origin}: `, { secret: true }));
  const token = given ?? (process.stdin.isTTY ? "" : (await stdinBytes(MOST_BYTES)).toString().trim());
  if (token === "") throw new Failure("usage", "no token: type it, send it to stdin, set OPS_SERVE_TOKEN, or give --token-file");
  return token;
}
