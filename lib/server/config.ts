import { createPrivateKey, X509Certificate } from "node:crypto";
import { lookup } from "node:dns/promises";
import { readFile } from "node:fs/promises";
import { BlockList, isIP } from "node:net";
import path from "node:path";
import { refuseUsedRoot } from "../bucket/root.ts";
import { Failure, messageOf } from "../core/errors.ts";
import { quote } from "../core/shape.ts";

/** All that a server is told at its start; nothing of it changes afterwards. */
export interface ServerConfig {
  /** Absolute. */
  readonly root: string;
  /** The address to bind, resolved; empty for all of this host. */
  readonly host: string;
  readonly port: number;
  readonly token: string;
  readonly tls?: { readonly certFile: string; readonly keyFile: string };
}

/** The flags of `ops server`, as typed; undefined where one was not given. */
export interface ServerFlags {
  root?: string | undefined;
  token?: string | undefined;
  tokenFile?: string | undefined;
  addr?: string | undefined;
  tlsCert?: string | undefined;
  tlsKey?: string | undefined;
}

/** control-plane.md, Limits. */
export const DEFAULT_ADDRESS = "127.0.0.1:9090";

const OWN_VARIABLES = ["OPS_SERVE_ROOT", "OPS_SERVE_TOKEN", "OPS_SERVE_TOTP_SECRET_FILE"] as const;

/**
 * Turns flags and environment into the configuration, or refuses the start with one sentence (`usage`) before anything
 * is created. A flag beats a file, which beats a variable. The server's own variables are taken out of `env`, so that
 * no child process inherits them.
 */
export async function serverConfig(flags: ServerFlags, env: NodeJS.ProcessEnv): Promise<ServerConfig> {
  const variables = takeVariables(env);
  if (variables.OPS_SERVE_TOTP_SECRET_FILE !== undefined)
    throw refusal(
      "OPS_SERVE_TOTP_SECRET_FILE is set, but this version has no TOTP; unset it to serve by token only",
    );
  const token = await tokenOf(flags, variables.OPS_SERVE_TOKEN);
  const address = splitAddress(flags.addr ?? DEFAULT_ADDRESS);
  const tls = await tlsOf(flags);
  const host = await resolved(address.host);
  if (!tls && !host.loopback)
    throw refusal(
      `--addr ${flags.addr} can be reached from other hosts: give --tls-cert and --tls-key, or a loopback address`,
    );
  const root = flags.root ?? variables.OPS_SERVE_ROOT ?? "";
  if (root === "") throw refusal("no root: give --root or set OPS_SERVE_ROOT to the folder of the buckets");
  await refuseUsedRoot(path.resolve(root));
  const config = { root: path.resolve(root), host: host.address, port: address.port, token };
  return Object.freeze({ ...config, ...(tls && { tls: Object.freeze(tls) }) });
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
  const text = file === undefined ? undefined : await readText("--token-file", file);
  const token = flags.token ?? text?.replace(/\r?\n$/, "") ?? variable;
  if (token === undefined)
    throw refusal("no API token: set OPS_SERVE_TOKEN, or give --token-file or --token");
  const source = flags.token !== undefined ? "--token" : (file ?? "OPS_SERVE_TOKEN");
  if (token === "") throw refusal(`the API token of ${source} is empty`);
  // Anything else could never arrive in an Authorization header.
  if (!/^[\x21-\x7e]+$/.test(token))
    throw refusal(`the API token of ${source} has blanks or characters that are not ASCII`);
  return token;
}

function splitAddress(text: string): { host: string; port: number } {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]*)\]|([^:[\]]*)):(\d{1,5})$/.exec(text) ?? [];
  const port = Number(digits ?? Number.NaN);
  if (!(port <= 65_535) || (bracketed !== undefined && isIP(bracketed) !== 6))
    throw refusal(`--addr ${quote(text)}: expected HOST:PORT, such as ${DEFAULT_ADDRESS} or [::1]:9090`);
  return { host: bracketed ?? plain ?? "", port };
}

/** What a name stands for is looked up once, and that very address is bound: what was judged is what listens. */
async function resolved(host: string): Promise<{ address: string; loopback: boolean }> {
  if (host === "") return { address: "", loopback: false };
  try {
    const found = await lookup(host, { all: true });
    const first = found.find((one) => one.family === 4) ?? found[0];
    return { address: first?.address ?? host, loopback: found.every((one) => isLoopback(one.address)) };
  } catch (error) {
    throw refusal(`--addr: the host name ${quote(host)} cannot be resolved`, error);
  }
}

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

function isLoopback(address: string): boolean {
  const [plain = ""] = address.split("%");
  return LOOPBACK.check(plain, isIP(plain) === 6 ? "ipv6" : "ipv4");
}

async function tlsOf(flags: ServerFlags): Promise<ServerConfig["tls"]> {
  const { tlsCert, tlsKey } = flags;
  if (tlsCert === undefined && tlsKey === undefined) return undefined;
  if (tlsKey === undefined) throw refusal("--tls-cert is given without --tls-key");
  if (tlsCert === undefined) throw refusal("--tls-key is given without --tls-cert");
  const certText = await readText("--tls-cert", tlsCert);
  const keyText = await readText("--tls-key", tlsKey);
  const certificate = parsed("--tls-cert", tlsCert, "a PEM certificate", () => new X509Certificate(certText));
  const key = parsed("--tls-key", tlsKey, "an unencrypted PEM key", () => createPrivateKey(keyText));
  if (!certificate.checkPrivateKey(key))
    throw refusal(`--tls-key ${tlsKey} does not belong to the certificate ${tlsCert}`);
  return { certFile: path.resolve(tlsCert), keyFile: path.resolve(tlsKey) };
}

function parsed<T>(flag: string, file: string, what: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw refusal(`${flag} ${file} is not ${what}`, error);
  }
}

async function readText(flag: string, file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    throw refusal(`${flag} ${file} cannot be read: ${messageOf(error)}`, error);
  }
}

function refusal(message: string, cause?: unknown): Failure {
  return new Failure("usage", message, { cause });
}
