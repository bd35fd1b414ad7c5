import { mkdtemp, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import type { PublicKey } from "../../codec/crypto/ssh-key.ts";
import { sleep } from "../../core/async.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import { exists, PRIVATE_FILE, readBounded, realPlace, remove } from "../../core/files.ts";
import type { Argv, CommandOutcome, Launcher } from "../../core/spawn.ts";
import type { JumpHost } from "../ssh/jump.ts";
import { knownHostLines, parseKnownHosts } from "./known-hosts.ts";

/** Where an ssh server listens. */
export interface Endpoint {
  host: string;
  port: number;
}

/** A host to go through, whose keys are trusted already. */
export interface Hop extends JumpHost {
  keys: readonly PublicKey[];
  /** The private key to sign in with there. */
  identityFile: string;
  /** `ssh_options` of ops.conf. */
  sshOptions: Readonly<Record<string, string>>;
}

/** With what hosts are asked. */
export interface ScanTools {
  launcher: Launcher;
  signal: AbortSignal;
}

/** The kinds of host keys by their name for ssh-keyscan, each with the algorithms that make ssh ask for that kind. */
const KINDS = {
  ed25519: "ssh-ed25519",
  ecdsa: "ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521",
  rsa: "rsa-sha2-512,rsa-sha2-256",
} as const;
type Kind = keyof typeof KINDS;

const ANSWER_LIMIT_S = 10;
/** Beyond the programs' own limits, for a host that goes silent in the middle. */
const SCAN_LIMIT_MS = 25_000;
const GRACE_MS = 1_000;
/** Between the attempts, each up to twice as long: a server that is asked by many at once drops some (MaxStartups). */
const PAUSES_MS = [200, 500, 1_000, 2_000];
const SSH_TROUBLE =
  /Permission denied|Host key verification|no matching|open failed|timed out|Could not resolve|Connection (?:closed|reset|refused)/;
const KEEP_BYTES = 64 * 1024;

/**
 * All keys that a host offers, one kind after the other, so that it sees one connection at a time. A connection that
 * is dropped is tried again. Each connection has 25 s at most. Throws `failed` with why there is no
 * answer.
 */
export async function scanHost(endpoint: Endpoint, tools: ScanTools): Promise<PublicKey[]> {
  return scanKinds((kind) => keyscan(endpoint, kind, tools), tools);
}

/**
 * Like {@link scanHost} for a host behind another one, with ssh: it records the key it is shown in an empty file and
 * is then turned away, since nothing is offered to a host that is not known yet.
 */
export async function scanBehind(endpoint: Endpoint, hop: Hop, tools: ScanTools): Promise<PublicKey[]> {
  if (!(await exists(hop.identityFile)))
    throw new Failure("failed", `there is no ssh key to sign in at the jump host with: ${hop.identityFile}`);
  // Run inside it, ssh gets names without any folder: no character of a path can mean something to it.
  const folder = await mkdtemp(path.join(realPlace(tmpdir()), "ops-trust-"));
  try {
    await symlink(path.resolve(hop.identityFile), path.join(folder, "key"));
    await writeFile(path.join(folder, "known"), knownHostLines("hop", hop.keys).join(""));
    await writeFile(path.join(folder, "config"), hopConfig(endpoint, hop), { mode: PRIVATE_FILE });
    return await scanKinds((kind) => sshScan(folder, kind, tools), tools);
  } finally {
    await remove(folder);
  }
}

/** What one look at a host brought: its keys of that kind, possibly none, or why it gave no answer. */
type Look = { keys: PublicKey[] } | { reason: string; transient: boolean };

async function scanKinds(look: (kind: Kind) => Promise<Look>, { signal }: ScanTools): Promise<PublicKey[]> {
  const keys: PublicKey[] = [];
  for (const kind of Object.keys(KINDS) as Kind[]) keys.push(...(await patiently(() => look(kind), signal)));
  if (keys.length === 0)
    throw new Failure("failed", `it offers no host key of a kind in use: ${Object.keys(KINDS).join(", ")}`);
  return keys;
}

async function patiently(look: () => Promise<Look>, signal: AbortSignal): Promise<PublicKey[]> {
  for (let attempt = 0; ; attempt++) {
    const found = await look();
    if ("keys" in found) return found.keys;
    const pause = PAUSES_MS[attempt];
    if (!found.transient || pause === undefined) throw new Failure("unreachable", found.reason);
    await sleep(pause * (1 + Math.random()), signal);
  }
}

async function keyscan({ host, port }: Endpoint, kind: Kind, tools: ScanTools): Promise<Look> {
  const outcome = await run(
    ["ssh-keyscan", "-T", String(ANSWER_LIMIT_S), "-p", String(port), "-t", kind, "--", host],
    tools,
  );
  const keys = [...parseKnownHosts(outcome.stdout, "the answer of ssh-keyscan").values()].flat();
  // The server's greeting comes as a comment: it answered and has no key of this kind.
  const answered = /^# /m.test(outcome.stdout + outcome.stderr);
  const [trouble] = linesOf(outcome.stderr).filter((line) => !line.startsWith("#"));
  const silent = outcome.durationMs >= ANSWER_LIMIT_S * 900;
  if (outcome.reason === "timeout") return lookedInVain("what listens there does not answer as ssh does");
  if (keys.length > 0 || (answered && !silent && trouble === undefined)) return { keys };
  return lookedInVain(trouble ?? (silent ? `no answer within ${ANSWER_LIMIT_S} s` : "connection refused"));
}

async function sshScan(folder: string, kind: Kind, tools: ScanTools): Promise<Look> {
  await remove(path.join(folder, "found"));
  const options = ["-F", "config", "-o", `HostKeyAlgorithms=${KINDS[kind]}`] as const;
  const outcome = await run(["ssh", ...options, "--", "target", "true"], tools, folder);
  const found = await readBounded(path.join(folder, "found"), KEEP_BYTES);
  const keys = [...parseKnownHosts(found?.toString() ?? "", "what ssh recorded").values()].flat();
  const lines = linesOf(outcome.stderr);
  // Among them may be what the host greets everybody with.
  const trouble = lines.find((line) => SSH_TROUBLE.test(line)) ?? lines[0] ?? `no answer within ${ANSWER_LIMIT_S} s`;
  if (keys.length > 0 || trouble.includes("no matching host key type")) return { keys };
  return lookedInVain(trouble.replace(/^channel \d+: open failed: /, "from the jump host: "));
}

function lookedInVain(reason: string): Look {
  return { reason, transient: /\bConnection (closed|reset)\b/.test(reason) };
}

async function run(argv: Argv, { launcher, signal }: ScanTools, cwd?: string): Promise<CommandOutcome> {
  const outcome = await launcher.run(argv, {
    ...(cwd !== undefined && { cwd }),
    signal,
    timeoutMs: SCAN_LIMIT_MS,
    graceMs: GRACE_MS,
    keepBytes: KEEP_BYTES,
  });
  throwIfCancelled(signal);
  return outcome;
}

function linesOf(text: string): string[] {
  return text
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

function hopConfig(target: Endpoint, hop: Hop): string {
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
  IdentitiesOnly yes
Host *
${Object.entries(hop.sshOptions)
  .map(([name, value]) => `  ${name} ${value}\n`)
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
