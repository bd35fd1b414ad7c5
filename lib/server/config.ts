import path from "node:path";
import { readTotpSecret } from "../auth/totp.ts";
import { refuseUsedRoot } from "../bucket/source/root.ts";
import { parseDurationMs } from "../codec/config/number.ts";
import { realPlace } from "../core/files.ts";
import { quote } from "../core/shape.ts";
import { DEFAULT_ADDRESS, listenAddress } from "./address.ts";
import { NOT_FOR_OTHERS, readNamedFile, refusal } from "./refusal.ts";
import { readTlsPair, type TlsFiles } from "./tls.ts";

/** All that a server is told at its start; nothing of it changes afterwards. */
export interface ServerConfig {
  /** Absolute. */
  readonly root: string;
  /** The address to bind, resolved; empty for all of this host. */
  readonly host: string;
  readonly port: number;
  readonly token: string;
  readonly tls?: TlsFiles;
  /** With it, a TOTP code is needed besides the token. */
  readonly totp?: { readonly secret: Uint8Array; readonly sessionMs: number };
}

/** The flags of `ops server`, as typed; undefined where one was not given. */
export interface ServerFlags {
  root?: string | undefined;
  token?: string | undefined;
  tokenFile?: string | undefined;
  addr?: string | undefined;
  tlsCert?: string | undefined;
  tlsKey?: string | undefined;
  totpSecretFile?: string | undefined;
  totpSessionTtl?: string | undefined;
  totpIssuer?: string | undefined;
}

const OWN_VARIABLES = ["OPS_SERVE_ROOT", "OPS_SERVE_TOKEN", "OPS_SERVE_TOTP_SECRET_FILE"] as const;
const LEAST_TOKEN = 16;
const DEFAULT_TOTP_SESSION = "30m";
const LONGEST_TOTP_SESSION_MS = 7 * 24 * 3_600_000;

/**
 * Turns flags and environment into the configuration, or refuses the start with one sentence (`usage`) before anything
 * is created. A flag beats a file, which beats a variable. The server's own variables are taken out of `env`, so that
 * no child process inherits them.
 */
export async function serverConfig(flags: ServerFlags, env: NodeJS.ProcessEnv): Promise<ServerConfig> {
  const variables = takeVariables(env);
  const token = await tokenOf(flags, variables.OPS_SERVE_TOKEN);
  const address = await listenAddress(flags.addr ?? DEFAULT_ADDRESS);
  const tls = await tlsOf(flags);
  if (!tls && !address.loopback)
    throw refusal(
      `--addr ${flags.addr} can be reached from other hosts: give --tls-cert and --tls-key, or a loopback address`,
    );
  const totp = await totpOf(flags, variables.OPS_SERVE_TOTP_SECRET_FILE, tls);
  const root = flags.root ?? variables.OPS_SERVE_ROOT ?? "";
  if (root === "") throw refusal("no root: give --root or set OPS_SERVE_ROOT to the folder of the buckets");
  await refuseUsedRoot(path.resolve(root));
  const config = { root: realPlace(root), host: address.host, port: address.port, token };
  return Object.freeze({ ...config, ...(tls && { tls }), ...(totp && { totp }) });
}

function takeVariables(env: NodeJS.ProcessEnv): Partial<Record<(typeof OWN_VARIABLES)[number], string>> {
  const taken: Partial<Record<(typeof OWN_VARIABLES)[number], string>> = {};
  for (const name of OWN_VARIABLES) {
    if (env[name] !== undefined) taken[name] = env[name];
    delete env[name];
  }
  return taken;
}

async function tokenOf(flags: ServerFlags, variable: string | undefined): Promise<string> {
  const file = flags.token === undefined ? flags.tokenFile : undefined;
  const text = file === undefined ? undefined : await readNamedFile("--token-file", file, NOT_FOR_OTHERS);
  const token = flags.token ?? text?.replace(/\r?\n$/, "") ?? variable;
  if (token === undefined) throw refusal("no API token: set OPS_SERVE_TOKEN, or give --token-file or --token");
  const source = flags.token !== undefined ? "--token" : (file ?? "OPS_SERVE_TOKEN");
  if (token === "") throw refusal(`the API token of ${source} is empty`);
  // Anything else could never arrive in an Authorization header.
  if (!/^[\x21-\x7e]+$/.test(token))
    throw refusal(`the API token of ${source} has blanks or characters that are not ASCII`);
  return token;
}

/** The warning about a token that is short enough to guess; undefined for a longer one. */
export function tokenWarning({ token }: ServerConfig): string | undefined {
  if (token.length >= LEAST_TOKEN) return undefined;
  return `warning: the API token has under ${LEAST_TOKEN} characters and can be guessed: make one with openssl rand -base64 32`;
}

async function tlsOf({ tlsCert, tlsKey }: ServerFlags): Promise<TlsFiles | undefined> {
  if (tlsCert === undefined && tlsKey === undefined) return undefined;
  if (tlsKey === undefined) throw refusal("--tls-cert is given without --tls-key");
  if (tlsCert === undefined) throw refusal("--tls-key is given without --tls-cert");
  const files = Object.freeze({ certFile: path.resolve(tlsCert), keyFile: path.resolve(tlsKey) });
  await readTlsPair(files);
  return files;
}

/** A server that was meant to have TOTP never starts without it. */
async function totpOf(
  flags: ServerFlags,
  variable: string | undefined,
  tls: TlsFiles | undefined,
): Promise<ServerConfig["totp"]> {
  const source = flags.totpSecretFile === undefined ? "OPS_SERVE_TOTP_SECRET_FILE" : "--totp-secret-file";
  const file = flags.totpSecretFile ?? variable;
  const idle = flags.totpSessionTtl !== undefined ? "--totp-session-ttl" : "--totp-issuer";
  if (file === undefined && (flags.totpSessionTtl ?? flags.totpIssuer) !== undefined)
    throw refusal(`${idle} is given, but TOTP is off: give --totp-secret-file too`);
  if (file === undefined) return undefined;
  if (file === "") throw refusal(`${source} is empty: name the file that server totp-enroll wrote`);
  if (!tls) throw refusal(`${source} needs TLS, on loopback too: give --tls-cert and --tls-key`);
  const sessionMs = totpSessionMs(flags.totpSessionTtl ?? DEFAULT_TOTP_SESSION);
  return Object.freeze({ secret: await readTotpSecret(path.resolve(file)), sessionMs });
}

/** Whole seconds, because a cookie counts them. */
function totpSessionMs(text: string): number {
  const ms = parseDurationMs(text);
  if (ms === undefined || ms % 1000 !== 0 || ms < 1000 || ms > LONGEST_TOTP_SESSION_MS)
    throw refusal(`--totp-session-ttl ${quote(text)}: expected whole seconds up to 168h, such as 30m, 1h30m or 90s`);
  return ms;
}
