import { mkdtemp, symlink } from "node:fs/promises";
import { isIPv6, SocketAddress } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { KEY_TYPES, type PublicKey, parsePublicKey } from "../../codec/crypto/ssh-key.ts";
import { sleep } from "../../core/async.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import { exists, readBounded, realPlace, remove, writeAtomic } from "../../core/files.ts";
import { quote } from "../../core/shape.ts";
import type { Argv, CommandOutcome, Launcher } from "../../core/spawn.ts";
import type { JumpHost, SshSettings } from "../ssh/openssh.ts";

const KNOWN_HOSTS_BYTES = 4 * 1024 * 1024;
const SSH_PORT = 22;

/**
 * The name under which ssh looks for a host's key: `[host]:port`, or the host alone on port 22; in small letters, an
 * address in the form the system writes it.
 */
export function knownHostName({ host, port }: Endpoint): string {
  const address = isIPv6(host) ? new SocketAddress({ address: host, family: "ipv6" }).address : host;
  const name = address.toLowerCase();
  return port === SSH_PORT ? name : `[${name}]:${port}`;
}

/**
 * Reads lines of `<name> <key type> <key>`; blank lines and comments are passed over. Anything else (several names,
 * hashed ones, markers) throws `failed` with the line: a rule that is not understood must not be lost.
 */
export function parseKnownHosts(text: string, file: string): Map<string, PublicKey[]> {
  const known = new Map<string, PublicKey[]>();
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "" || line.startsWith("#")) continue;
    const [given = "", type = "", base64 = "", ...rest] = line.trim().split(/[ \t]+/);
    const name = given.toLowerCase();
    const key = rest.length === 0 ? parsePublicKey(type, base64) : undefined;
    const wrong = `expected a host, a key type and a key, found ${quote(line)}; remove the line`;
    if (!key || !/^[^@|!*?,]+$/.test(name)) throw new Failure("failed", `Cannot read ${file}, line ${index + 1}: ${wrong}`);
    const keys = known.get(name) ?? [];
    if (!keys.some((one) => isSameKey(one, key))) known.set(name, [...keys, key]);
  }
  return known;
}

/** True when both are the same key. */
export function isSameKey(a: PublicKey, b: PublicKey): boolean {
  return a.type === b.type && a.base64 === b.base64;
}

/** The keys in the order of preference. */
export function sortKeys(keys: readonly PublicKey[]): PublicKey[] {
  return [...keys].sort((a, b) => KEY_TYPES.indexOf(a.type) - KEY_TYPES.indexOf(b.type));
}

/** The host keys that a bucket trusts. */
export type KnownHosts = Awaited<ReturnType<typeof openKnownHosts>>;

/**
 * Reads `.ssh/known_hosts`, only for the holder of the bucket's lock; without the file no host is known. Throws
 * `failed` for a file that no ops wrote.
 */
export async function openKnownHosts(file: string) {
  const bytes = await readBounded(file, KNOWN_HOSTS_BYTES);
  const known = parseKnownHosts(bytes?.toString() ?? "", file);
  /** The keys of a host, the preferred first; none for a host that is not known. */
  const keysOf = (name: string) => sortKeys(known.get(name) ?? []);
  let saved: Promise<void> = Promise.resolve();
  /** From now on these are the keys of the host; resolves once the file (0600) says so. */
  const record = (name: string, keys: readonly PublicKey[]) => {
    known.set(name, [...keys]);
    const lines = [...known.keys()].sort().flatMap((one) => knownHostLines(one, keysOf(one)));
    // One after the other, so that the newest content is the last.
    saved = saved.then(() => writeAtomic(file, lines.join("")));
    return saved;
  };
  return { keysOf, record };
}

/** The lines of known_hosts for the keys of a host. */
function knownHostLines(name: string, keys: readonly PublicKey[]): string[] {
  return keys.map(({ type, base64 }) => `${name} ${type} ${base64}\n`);
}

/** Where an ssh server listens. */
export interface Endpoint {
  host: string;
  port: number;
}

/** How a scan reaches hosts: the keys are to sign in with at jump hosts. */
export interface ScanTools extends Pick<SshSettings, "keyFile" | "oldKeyFile" | "options"> {
  launcher: Launcher;
  signal: AbortSignal;
}

/** The kinds of host keys by their name for ssh-keyscan, each with the algorithms that make ssh ask for that kind. */
const KEY_KINDS = {
  ed25519: "ssh-ed25519",
  ecdsa: "ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521",
  rsa: "rsa-sha2-512,rsa-sha2-256",
} as const;
type KeyKind = keyof typeof KEY_KINDS;

const ANSWER_LIMIT_S = 10;
/** Longer than the programs' own limits: for a host that falls silent in the middle. */
const SCAN_LIMIT_MS = 25_000;
const SCAN_GRACE_MS = 1_000;
const SCAN_KEEP_BYTES = 64 * 1024;
/** Between two attempts, each up to twice as long: a server drops connections when many come at once (MaxStartups). */
const PAUSES_MS = [200, 500, 1_000, 2_000];
const SSH_TROUBLE =
  /Permission denied|Host key verification|no matching|open failed|timed out|Could not resolve|Connection (?:closed|reset|refused)/;

/**
 * All keys that a host offers. The kinds are asked for one after the other, so that the host sees one connection at a
 * time. A dropped connection is tried again; each attempt has 25 s. Throws `unreachable` or `failed` with the reason.
 */
export function scanHost(endpoint: Endpoint, tools: ScanTools): Promise<PublicKey[]> {
  return scanKinds((kind) => keyscan(endpoint, kind, tools), tools.signal);
}

/**
 * Like {@link scanHost}, for a host behind a jump host whose `trusted` keys are known. ssh records the key that the
 * host shows in an empty file; then the host turns ssh away, since ssh offers no key to a host that is not known yet.
 */
export async function scanBehind(
  endpoint: Endpoint,
  hop: JumpHost,
  trusted: readonly PublicKey[],
  tools: ScanTools,
): Promise<PublicKey[]> {
  const { keyFile, oldKeyFile } = tools;
  if (!(await exists(keyFile))) throw new Failure("failed", `there is no ssh key to sign in at the jump host with: ${keyFile}`);
  // ssh runs inside the folder and gets bare file names: no character of a path can mean something to ssh.
  const folder = await mkdtemp(path.join(realPlace(tmpdir()), "ops-trust-"));
  try {
    await symlink(path.resolve(keyFile), path.join(folder, "key"));
    if (oldKeyFile !== undefined) await symlink(path.resolve(oldKeyFile), path.join(folder, "old_key"));
    await writeAtomic(path.join(folder, "known"), knownHostLines("hop", trusted).join(""));
    await writeAtomic(path.join(folder, "config"), scanConfig(endpoint, hop, tools));
    return await scanKinds((kind) => sshScan(folder, kind, tools), tools.signal);
  } finally {
    await remove(folder);
  }
}

/** Looks for each kind of key; `look` answers the keys of a kind, or why the host gave no answer. */
async function scanKinds(look: (kind: KeyKind) => Promise<PublicKey[] | string>, signal: AbortSignal): Promise<PublicKey[]> {
  const keys: PublicKey[] = [];
  for (const kind of Object.keys(KEY_KINDS) as KeyKind[]) keys.push(...(await patiently(() => look(kind), signal)));
  if (keys.length > 0) return keys;
  throw new Failure("failed", `it offers no host key of a kind in use: ${Object.keys(KEY_KINDS).join(", ")}`);
}

async function patiently(look: () => Promise<PublicKey[] | string>, signal: AbortSignal): Promise<PublicKey[]> {
  for (let attempt = 0; ; attempt++) {
    const found = await look();
    if (typeof found !== "string") return found;
    const pause = /\bConnection (closed|reset)\b/.test(found) ? PAUSES_MS[attempt] : undefined;
    if (pause === undefined) throw new Failure("unreachable", found);
    await sleep(pause * (1 + Math.random()), signal);
  }
}

async function keyscan({ host, port }: Endpoint, kind: KeyKind, tools: ScanTools): Promise<PublicKey[] | string> {
  const options = ["-T", String(ANSWER_LIMIT_S), "-p", String(port), "-t", kind] as const;
  const outcome = await runScan(["ssh-keyscan", ...options, "--", host], tools);
  if (outcome.reason === "timeout") return "the program that listens there does not answer like an ssh server";
  const keys = [...parseKnownHosts(outcome.stdout, "the answer of ssh-keyscan").values()].flat();
  // The server's greeting is printed as a comment: the server answered and has no key of this kind.
  const answered = /^# /m.test(outcome.stdout + outcome.stderr);
  const trouble = messageLines(outcome).find((line) => !line.startsWith("#"));
  const silent = outcome.durationMs >= ANSWER_LIMIT_S * 900;
  if (keys.length > 0 || (answered && !silent && trouble === undefined)) return keys;
  return trouble ?? (silent ? `no answer within ${ANSWER_LIMIT_S} s` : "connection refused");
}

async function sshScan(folder: string, kind: KeyKind, tools: ScanTools): Promise<PublicKey[] | string> {
  const file = path.join(folder, "found");
  await remove(file);
  const options = ["-F", "config", "-o", `HostKeyAlgorithms=${KEY_KINDS[kind]}`] as const;
  const outcome = await runScan(["ssh", ...options, "--", "target", "true"], tools, folder);
  const found = await readBounded(file, SCAN_KEEP_BYTES);
  const keys = [...parseKnownHosts(found?.toString() ?? "", "what ssh recorded").values()].flat();
  const lines = messageLines(outcome);
  // A banner of the server may be among the lines.
  const trouble = lines.find((line) => SSH_TROUBLE.test(line)) ?? lines[0] ?? `no answer within ${ANSWER_LIMIT_S} s`;
  if (keys.length > 0 || trouble.includes("no matching host key type")) return keys;
  return trouble.replace(/^channel \d+: open failed: /, "from the jump host: ");
}

async function runScan(argv: Argv, { launcher, signal }: ScanTools, cwd?: string): Promise<CommandOutcome> {
  const limits = { timeoutMs: SCAN_LIMIT_MS, graceMs: SCAN_GRACE_MS, keepBytes: SCAN_KEEP_BYTES };
  const outcome = await launcher.run(argv, { cwd, signal, ...limits });
  throwIfCancelled(signal);
  return outcome;
}

/** What a program wrote on standard error, without blank lines. */
function messageLines({ stderr }: CommandOutcome): string[] {
  const lines = stderr.split("\n").map((line) => line.trim());
  return lines.filter((line) => line !== "");
}

function scanConfig(target: Endpoint, hop: JumpHost, { oldKeyFile, options }: ScanTools): string {
  return `Host target
  HostName ${target.host}
  Port ${target.port}
  HostKeyAlias target
  UserKnownHostsFile found
  StrictHostKeyChecking accept-new
  PubkeyAuthentication no
  ProxyJump hop
Host hop
  HostName ${hop.host}
  Port ${hop.port}
  User ${hop.user}
  HostKeyAlias hop
  UserKnownHostsFile known
  StrictHostKeyChecking yes
  IdentityFile key
${oldKeyFile === undefined ? "" : "  IdentityFile old_key\n"}  IdentitiesOnly yes
Host *
${Object.entries(options)
  .map((pair) => `  ${pair.join(" ")}\n`)
  .join("")}  ConnectTimeout ${ANSWER_LIMIT_S}
  GlobalKnownHostsFile none
  UpdateHostKeys no
  HashKnownHosts no
  PreferredAuthentications publickey
  IdentityAgent none
  BatchMode yes
  LogLevel INFO
`;
}
