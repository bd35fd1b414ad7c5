import { createPrivateKey, X509Certificate } from "node:crypto";
import type { LookupAddress } from "node:dns";
import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import path from "node:path";
import { createSecureContext } from "node:tls";
import { readTotpSecret, STRONG_SECRET_BYTES } from "../auth/totp.ts";
import { refuseUsedRoot } from "../bucket/source/root.ts";
import { isLoopback } from "../codec/address.ts";
import { parseDurationMs } from "../codec/config/number.ts";
import { Failure, messageOf } from "../core/errors.ts";
import { readGuarded, realPlace } from "../core/files.ts";
import { quote } from "../core/shape.ts";
import type { OtherUser } from "../core/spawn.ts";
import type { TlsPair } from "../http/node-server.ts";
import { hookUserOf } from "../run/hook-user.ts";

/** The configuration of a server; nothing of it changes after the start. */
export interface ServerConfig {
  /** Absolute. */
  readonly root: string;
  /** It is the earlier variant (control-plane.md, Earlier variant). */
  readonly earlier?: true;
  /** The address to bind, resolved; empty for all of this host. */
  readonly host: string;
  readonly port: number;
  readonly token: string;
  /** Where the token was read; undefined for one of a flag or a variable. */
  readonly tokenFile?: string;
  readonly tls?: TlsFiles;
  /** A command for `sh` that gets each line of the audit. */
  readonly auditSink?: string;
  /** Where it is set, requests need a TOTP code besides the token. */
  readonly totp?: { readonly secret: Uint8Array; readonly sessionMs: number };
  /** What is called every minute, as long as the server lives. */
  readonly heartbeatUrl?: string;
  /** Whom hook scripts, and the commands of local workers, run as; without one as the server itself. */
  readonly hookUser?: OtherUser;
}

/** The flags of `ops server`, as typed, by name; those that were not given are missing. */
export type ServerFlags = Readonly<Record<string, string | undefined>>;

const OWN_VARIABLES = ["OPS_SERVE_ROOT", "OPS_SERVE_TOKEN", "OPS_SERVE_TOTP_SECRET_FILE", "CREDENTIALS_DIRECTORY"] as const;
/** control-plane.md, Limits. */
const DEFAULT_ADDRESS = "127.0.0.1:9090";
const LEAST_TOKEN = 16;
const DEFAULT_TOTP_SESSION = "30m";
const LONGEST_TOTP_SESSION_MS = 7 * 24 * 3_600_000;

/**
 * Turns flags and environment into the configuration, or refuses the start with one sentence (`usage`) before anything
 * is created. A flag beats a file, and a file beats a variable. The server's own variables are removed from `env`: no
 * child process inherits them.
 */
export async function serverConfig(flags: ServerFlags, env: NodeJS.ProcessEnv, earlier = false): Promise<ServerConfig> {
  const variables = takeVariables(env);
  if (earlier && variables.OPS_SERVE_TOTP_SECRET_FILE !== undefined)
    throw refusedStart("ops serve has no TOTP, but OPS_SERVE_TOTP_SECRET_FILE is set: unset it, or use ops server");
  const given = await tokenOf(flags, variables.OPS_SERVE_TOKEN);
  const address = await listenAddress(flags.addr ?? DEFAULT_ADDRESS);
  const tls = await tlsOf(flags);
  if (!tls && !address.loopback)
    throw refusedStart(
      `--addr ${flags.addr} can be reached from other hosts: give --tls-cert and --tls-key, or a loopback address`,
    );
  const totp = await totpOf(flags, variables, tls);
  const heartbeatUrl = await heartbeatOf(flags);
  const root = flags.root ?? variables.OPS_SERVE_ROOT ?? "";
  if (root === "") throw refusedStart("no root: give --root or set OPS_SERVE_ROOT to the folder of the buckets");
  await refuseUsedRoot(path.resolve(root), earlier ? "env.json" : "bucket.json");
  const { "audit-sink": auditSink } = flags;
  if (auditSink?.trim() === "") throw refusedStart("--audit-sink is empty: give a command that reads lines");
  const config = { root: realPlace(root), host: address.host, port: address.port, ...given };
  const hookUser = await hookUserIn(flags, variables, config.root);
  return Object.freeze({
    ...config,
    ...(tls && { tls }),
    ...(totp && { totp }),
    ...(auditSink && { auditSink }),
    ...(heartbeatUrl && { heartbeatUrl }),
    ...(hookUser && { hookUser }),
    ...(earlier && { earlier }),
  });
}

type OwnVariables = Partial<Record<(typeof OWN_VARIABLES)[number], string>>;

function takeVariables(env: NodeJS.ProcessEnv): OwnVariables {
  const taken: OwnVariables = {};
  for (const name of OWN_VARIABLES) {
    if (env[name] !== undefined) taken[name] = env[name];
    delete env[name];
  }
  return taken;
}

async function tokenOf(flags: ServerFlags, variable: string | undefined): Promise<Pick<ServerConfig, "token" | "tokenFile">> {
  if (flags.token !== undefined) return { token: checkedToken(flags.token, "--token") };
  const { "token-file": file } = flags;
  if (file !== undefined) return { token: await readServerToken(file), tokenFile: path.resolve(file) };
  if (variable === undefined) throw refusedStart("no API token: set OPS_SERVE_TOKEN, or give --token-file or --token");
  return { token: checkedToken(variable, "OPS_SERVE_TOKEN") };
}

/** The server's own token in a file. Throws `usage` like {@link readToken}, and for one that no client could send. */
export async function readServerToken(file: string): Promise<string> {
  return checkedToken(await readToken(file), file);
}

function checkedToken(token: string, source: string): string {
  if (token === "") throw refusedStart(`the API token of ${source} is empty`);
  // No other token could arrive in an Authorization header.
  if (!/^[\x21-\x7e]+$/.test(token)) throw refusedStart(`the API token of ${source} has blanks or characters that are not ASCII`);
  return token;
}

/** The token in a file, without the end of its line. Throws `usage` for a file that others may use. */
export async function readToken(file: string): Promise<string> {
  return (await readNamedFile("--token-file", file, NOT_FOR_OTHERS)).replace(/\r?\n$/, "");
}

/** The warning about a token that is short enough to guess; undefined for a longer one. */
export function tokenWarning({ token }: Pick<ServerConfig, "token">): string | undefined {
  if (token.length >= LEAST_TOKEN) return undefined;
  return `warning: the API token has under ${LEAST_TOKEN} characters and can be guessed: make one with openssl rand -base64 32`;
}

/** The warning about a TOTP secret that is shorter than it should be; undefined for a longer one, and without TOTP. */
export function totpWarning({ totp }: Pick<ServerConfig, "totp">): string | undefined {
  if (totp === undefined || totp.secret.length >= STRONG_SECRET_BYTES) return undefined;
  return `warning: the TOTP secret has ${totp.secret.length * 8} bits, ${STRONG_SECRET_BYTES * 8} are advised: remove the file and make another with ops server totp-enroll`;
}

async function tlsOf({ "tls-cert": cert, "tls-key": key }: ServerFlags): Promise<TlsFiles | undefined> {
  if (cert === undefined && key === undefined) return undefined;
  if (key === undefined) throw refusedStart("--tls-cert is given without --tls-key");
  if (cert === undefined) throw refusedStart("--tls-key is given without --tls-cert");
  const files = Object.freeze({ certFile: path.resolve(cert), keyFile: path.resolve(key) });
  await readTlsPair(files);
  return files;
}

/** The address of the heartbeat. It may hold a secret, and so it stands in a file. */
async function heartbeatOf({ "heartbeat-url-file": file }: ServerFlags): Promise<string | undefined> {
  if (file === undefined) return undefined;
  const text = (await readNamedFile("--heartbeat-url-file", file, NOT_FOR_OTHERS)).trim();
  const { protocol, hostname, username, password } = new URL(URL.canParse(text) ? text : "none:");
  const isHere = hostname === "localhost" || isLoopback(hostname.replace(/^\[|\]$/g, ""));
  const isPlain = username === "" && password === "";
  if (isPlain && (protocol === "https:" || (protocol === "http:" && isHere))) return text;
  const expected = "an address with https://, or with http:// on this host, without user and password";
  throw refusedStart(`--heartbeat-url-file ${file}: expected ${expected}`);
}

/** The user of hooks, who must be kept from all that the server keeps to itself. */
async function hookUserIn(flags: ServerFlags, variables: OwnVariables, root: string): Promise<OtherUser | undefined> {
  const { "hook-user": name, "token-file": token, "tls-key": key, "heartbeat-url-file": heartbeat } = flags;
  const totp = flags["totp-secret-file"] ?? variables.OPS_SERVE_TOTP_SECRET_FILE;
  const files = [token, totp, key, heartbeat].filter((file) => file !== undefined);
  return name === undefined ? undefined : await hookUserOf(name, [root, ...files.map((file) => path.resolve(file))]);
}

/** The TOTP settings. A server that was meant to have TOTP never starts without it. */
async function totpOf(flags: ServerFlags, variables: OwnVariables, tls: TlsFiles | undefined): Promise<ServerConfig["totp"]> {
  const source = flags["totp-secret-file"] === undefined ? "OPS_SERVE_TOTP_SECRET_FILE" : "--totp-secret-file";
  const file = flags["totp-secret-file"] ?? variables.OPS_SERVE_TOTP_SECRET_FILE;
  const idle = flags["totp-session-ttl"] !== undefined ? "--totp-session-ttl" : "--totp-issuer";
  if (file === undefined && (flags["totp-session-ttl"] ?? flags["totp-issuer"]) !== undefined)
    throw refusedStart(`${idle} is given, but TOTP is off: give --totp-secret-file too`);
  if (file === undefined) return undefined;
  if (file === "") throw refusedStart(`${source} is empty: name the file that server totp-enroll wrote`);
  if (!tls) throw refusedStart(`${source} needs TLS, on loopback too: give --tls-cert and --tls-key`);
  const sessionMs = totpSessionMs(flags["totp-session-ttl"] ?? DEFAULT_TOTP_SESSION);
  const isCredential = path.dirname(path.resolve(file)) === variables.CREDENTIALS_DIRECTORY;
  return Object.freeze({ secret: await readTotpSecret(path.resolve(file), isCredential), sessionMs });
}

/** The duration of a TOTP session: whole seconds, because a cookie counts seconds. */
function totpSessionMs(text: string): number {
  const ms = parseDurationMs(text);
  if (ms === undefined || ms % 1000 !== 0 || ms < 1000 || ms > LONGEST_TOTP_SESSION_MS)
    throw refusedStart(`--totp-session-ttl ${quote(text)}: expected whole seconds up to 168h, such as 30m, 1h30m or 90s`);
  return ms;
}

type Resolve = (host: string, options: { all: true }) => Promise<LookupAddress[]>;

/** Where a server listens. */
export interface ListenAddress {
  /** The address to bind, resolved; empty for all of this host. */
  host: string;
  port: number;
  /** Whether only this host can reach it. */
  loopback: boolean;
}

/**
 * Reads `HOST:PORT`. A name, or another spelling of an address, is resolved once, and the server binds the very address
 * that was judged here. A name counts as loopback only when all its addresses do. Throws `usage` for text that cannot be
 * read or resolved.
 */
export async function listenAddress(text: string, resolve: Resolve = lookup): Promise<ListenAddress> {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]*)\]|([^:[\]]*)):(\d{1,5})$/.exec(text) ?? [];
  const port = Number(digits ?? Number.NaN);
  if (!(port <= 65_535) || (bracketed !== undefined && isIP(bracketed) !== 6))
    throw refusedStart(`--addr ${quote(text)}: expected HOST:PORT, such as ${DEFAULT_ADDRESS} or [::1]:9090`);
  return { ...(await resolvedHost(bracketed ?? plain ?? "", resolve)), port };
}

async function resolvedHost(host: string, resolve: Resolve): Promise<Omit<ListenAddress, "port">> {
  if (host === "") return { host: "", loopback: false };
  try {
    const found = await resolve(host, { all: true });
    const first = found.find((one) => one.family === 4) ?? found[0];
    return { host: first?.address ?? host, loopback: found.every((one) => isLoopback(one.address)) };
  } catch (error) {
    throw refusedStart(`--addr: the host name ${quote(host)} cannot be resolved`, error);
  }
}

/** Where a certificate and its key are. */
interface TlsFiles {
  readonly certFile: string;
  readonly keyFile: string;
}

/**
 * A certificate and its key that belong together and can be served. Throws `usage` otherwise, also for a key that others
 * may read.
 */
export async function readTlsPair({ certFile, keyFile }: TlsFiles): Promise<TlsPair> {
  const cert = await readNamedFile("--tls-cert", certFile);
  const key = await readNamedFile("--tls-key", keyFile, NOT_FOR_OTHERS);
  const certificate = parsed(`--tls-cert ${certFile} is not a PEM certificate`, () => new X509Certificate(cert));
  const privateKey = parsed(`--tls-key ${keyFile} is not an unencrypted PEM key`, () => createPrivateKey(key));
  if (!certificate.checkPrivateKey(privateKey))
    throw refusedStart(`--tls-key ${keyFile} does not belong to the certificate ${certFile}`);
  // The first certificate may be followed by others; nothing has read those until here.
  parsed(`--tls-cert ${certFile} cannot be served`, () => createSecureContext({ cert, key }));
  return { cert, key };
}

function parsed<T>(sentence: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw refusedStart(sentence, error);
  }
}

/** The failure of a start that is refused: one sentence that names the flag and what to do. */
function refusedStart(message: string, cause?: unknown): Failure {
  return new Failure("usage", message, { cause });
}

/** The mode bits that a file with a secret must not have: only its owner and group may read or write the file. */
const NOT_FOR_OTHERS = 0o006;

/** The text of a file that a flag names, unless its mode has one of the bits `refused`. Throws `usage`. */
async function readNamedFile(flag: string, file: string, refused = 0): Promise<string> {
  try {
    return await readGuarded(file, refused);
  } catch (error) {
    if (error instanceof Failure) throw refusedStart(`${flag} ${file} cannot be used: ${error.message}`, error);
    throw refusedStart(`${flag} ${file} cannot be read: ${messageOf(error)}`, error);
  }
}
