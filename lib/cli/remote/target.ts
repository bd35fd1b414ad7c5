import { readFileSync } from "node:fs";
import path from "node:path";
import { Failure, hasErrno, messageOf } from "../../core/errors.ts";
import { bucketDir, type Parsed, type Target } from "../base/flags.ts";
import type { ApiClient } from "./client.ts";

/**
 * The server that a command works on: of the flags, of the environment, or of the table `[server]` of the ops.conf in `dir`. Undefined
 * where nothing names one, and with `--local`: the command works here. Throws `usage` for a bucket without a server.
 */
export async function targetOf(input: Parsed, dir = bucketDir(input)): Promise<Target | undefined> {
  const { env } = process;
  const { values, switches } = input;
  // The folder of a server that is stopped, for tokens.
  if (values.has("root")) {
    if (!values.has("server")) return undefined;
    throw new Failure("usage", "give --root or --server, not both");
  }
  // Without an address `ops doctor --server` is about a server of this machine.
  if (switches.has("server") && !values.has("server")) return undefined;
  const own = ["server", "bucket", "token-file", "ca-file", "totp"].filter((name) => values.has(name));
  if (switches.has("local")) {
    if (own.length > 0) throw new Failure("usage", `--local does not go with --${own[0]}`);
    return undefined;
  }
  const named = values.get("server") ?? (env.OPS_SERVER || undefined);
  const found = named === undefined ? await serverTable(dir) : undefined;
  const address = named ?? found?.url;
  const bucket = values.get("bucket") ?? (env.OPS_BUCKET || undefined) ?? found?.bucket;
  if (address !== undefined)
    return {
      address,
      bucket,
      fromFolder: named === undefined,
      caFile: values.get("ca-file"),
      folderCa: found?.ca_file,
      tokenFile: values.get("token-file"),
      totp: values.get("totp"),
    };
  if (own.length > 0) throw new Failure("usage", `--${own[0]} is given without a server: give --server, or set OPS_SERVER`);
  if (!env.OPS_BUCKET) return undefined;
  throw new Failure("usage", "OPS_BUCKET is set without a server: give --server, set OPS_SERVER, or unset OPS_BUCKET");
}

interface ServerTable {
  url: string;
  bucket?: string | undefined;
  ca_file?: string | undefined;
}

/** The table `[server]` of a bucket's ops.conf; a file without one is not read any further. */
async function serverTable(dir: string): Promise<ServerTable | undefined> {
  const file = path.join(dir, "ops.conf");
  const text = textOf(file);
  if (!/^\s*(\[\s*)?["']?server["']?\s*[\].=]/m.test(text)) return undefined;
  const { parseToml } = await import("../../codec/config/toml.ts");
  const { SERVER_TABLE } = await import("../../bucket/workspace/settings.ts");
  const { check } = await import("../../core/shape.ts");
  const unusable = (why: string) => new Failure("usage", `Cannot use the table [server] of ${file}: ${why}`);
  const table = parsed(() => parseToml(text).server, unusable);
  if (table === undefined) return undefined;
  const checked = check(SERVER_TABLE, table);
  if (!checked.ok) throw unusable(checked.problems.map((one) => `${one.path} ${one.message}`).join("; "));
  const { ca_file: caFile } = checked.value;
  return { ...checked.value, ca_file: caFile === undefined ? undefined : path.resolve(dir, caFile) };
}

function textOf(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    // Whoever needs the file says what is wrong with it.
    if (hasErrno(error, "ENOENT", "ENOTDIR", "EACCES", "EISDIR")) return "";
    throw error;
  }
}

function parsed<T>(parse: () => T, unusable: (why: string) => Failure): T {
  try {
    return parse();
  } catch (error) {
    throw unusable(messageOf(error));
  }
}

/**
 * A client of the server, proven by the token of `--token-file` or OPS_SERVE_TOKEN, else by the session of `ops login`. A
 * person at a terminal is asked for a TOTP code where the server wants one. Throws `usage` where nothing proves who asks.
 */
export async function openServer(target: Target): Promise<ApiClient> {
  const { parseBaseUrl, openClient } = await import("./client.ts");
  const { askedOnTerminal } = await import("../base/ask.ts");
  const { keepLogin, loginAt } = await import("./logins.ts");
  const base = parseBaseUrl(target.address);
  const token = await tokenFor(target);
  // Whoever has the token needs no session.
  const login = await loginAt(base).catch((error: unknown) => {
    if (token === undefined) throw error;
    return undefined;
  });
  if (token === undefined && !login) throw unproven(target, base.origin);
  const caFile = target.caFile ?? login?.ca_file;
  if (target.folderCa !== undefined && target.folderCa !== login?.ca_file) throw otherCa(target, target.folderCa);
  const askCode = () => askedOnTerminal("TOTP code: ");
  // The next command needs no code either, unless the user has signed out meanwhile.
  const verified = async (cookies: string) => {
    if (login && !(await loginAt(base))) return;
    const kept = { ...(login ?? { ends: "", ca_file: caFile && path.resolve(caFile) }), cookies };
    // A user without a folder of their own gives a code to each command.
    await keepLogin(base, kept).catch((error: unknown) => {
      if (token === undefined) throw error;
    });
  };
  const client = await openClient(base, { token, cookies: login?.cookies, caFile, askCode, verified });
  if (target.totp !== undefined) await client.verifyTotp(target.totp);
  return client;
}

async function tokenFor({ tokenFile, fromFolder }: Target): Promise<string | undefined> {
  if (fromFolder && tokenFile !== undefined)
    throw new Failure("usage", "--token-file goes with --server or OPS_SERVER: a token goes to no address of a file");
  if (fromFolder) return undefined;
  if (tokenFile === undefined) return process.env.OPS_SERVE_TOKEN || undefined;
  return (await import("../../server/config.ts")).readToken(tokenFile);
}

/** A folder must not choose whom a session is shown to. */
function otherCa({ address }: Target, file: string): Failure {
  return new Failure(
    "usage",
    `ca_file of [server] is not that of \`ops login\`: sign in with \`ops login ${address} --ca-file ${file}\``,
  );
}

function unproven({ fromFolder, address }: Target, origin: string): Failure {
  const login = `sign in once with \`ops login ${address}\``;
  const why = fromFolder
    ? `${origin} is named by ops.conf only, and a token goes to no address of a file: ${login}, or give --server`
    : `no token for ${origin}: ${login}, set OPS_SERVE_TOKEN, or give --token-file`;
  return new Failure("usage", why);
}
