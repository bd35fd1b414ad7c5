import { isIP } from "node:net";
import { Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import type { Argv } from "../../core/spawn.ts";
import type { WorkerAddress } from "../base/transport.ts";

/** What ops.conf says about ssh. */
export interface SshSettings {
  /** For workers and jump hosts that name no user. */
  user: string;
  /** For workers that name no port. */
  port: number;
  /** The private key, and the host keys that are trusted. */
  keyFile: string;
  knownHostsFile: string;
  /** `ssh_options`. */
  options: Readonly<Record<string, string>>;
  /** How many commands are at work on all workers together. */
  concurrency: number;
  /** Whether commands run through `sudo -n` where the user is not root. */
  useSudo: boolean;
}

/** A host to go through, as `ssh_jump` names it. */
export interface JumpHost {
  user: string;
  host: string;
  port: number;
}

/** The parts of `[user@]host[:port]`, an IPv6 address with a port in brackets; which it is was checked when it was read. */
export function parseJump(jump: string, defaultUser: string): JumpHost {
  const at = jump.indexOf("@");
  const user = at < 0 ? defaultUser : jump.slice(0, at);
  const target = jump.slice(at + 1);
  const [, bracketed, plain, port] = /^(?:\[([^\]]+)\]|([^:]+)):(\d+)$/.exec(target) ?? [];
  return { user, host: bracketed ?? plain ?? target, port: Number(port ?? 22) };
}

/** The files of a run's ssh, by name in its folder; the key and the known hosts are links, so their paths mean nothing to ssh. */
export const SSH_FILES = { config: "config", key: "key", knownHosts: "known_hosts" } as const;

const HOST = /^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/;
const USER = /^[a-z_][a-z0-9_-]*$/;
const FOLDER = /^(\/[A-Za-z0-9._-]+)+$/;
const OPTION =
  /^(KexAlgorithms|Ciphers|MACs|HostKeyAlgorithms|Compression|ConnectTimeout|ServerAliveInterval|ServerAliveCountMax) [A-Za-z0-9@.,+:*^_-]{1,500}$/;

/**
 * The text of the configuration that all ssh of a run reads: one entry per worker under its own name, and one per jump
 * host. Every value is checked once more, so that none can add a line or mean something else to ssh; throws `failed`.
 */
export function sshConfig(folder: string, settings: SshSettings, workers: readonly WorkerAddress[]): string {
  verify("folder", folder, FOLDER.test(folder));
  const options = Object.entries(settings.options).map(([name, value]) => `${name} ${value}`);
  for (const option of options) verify("ssh option", option, OPTION.test(option));
  const jumps = new Map(workers.flatMap((worker) => jumpOf(worker, settings) ?? []).map((one) => [nameOf(one), one]));
  return [
    ...section("Host *", options),
    ...workers.flatMap((worker, index) => {
      const jump = jumpOf(worker, settings);
      return section(`Host ${worker.host}`, [
        ...target(worker.host, worker.sshUser ?? settings.user, worker.sshPort ?? settings.port),
        `ControlPath ${folder}/${socketName(index)}`,
        ...(jump ? [`ProxyJump ${aliasOf(jump, jumps)}`] : []),
      ]);
    }),
    ...[...jumps.values()].flatMap((jump) =>
      section(`Host ${aliasOf(jump, jumps)}`, target(jump.host, jump.user, jump.port)),
    ),
    ...section("Host *", common(folder)),
  ].join("");
}

/** The file name of the control socket of the worker at this place of the list. */
export function socketName(index: number): string {
  return `s${index}`;
}

/** The host to go through to a worker, or undefined. */
export function jumpOf({ sshJump }: WorkerAddress, { user }: SshSettings): JumpHost | undefined {
  return sshJump === undefined ? undefined : parseJump(sshJump, user);
}

/** Opens the connection to a worker and keeps it, in the foreground and without a session. */
export function masterArgv(folder: string, host: string): Argv {
  return ["ssh", "-F", `${folder}/${SSH_FILES.config}`, "-M", "-N", "-T", "--", host];
}

function target(host: string, user: string, port: number): string[] {
  verify("host", host, isIP(host) !== 0 ? !host.includes("%") : HOST.test(host));
  verify("user", user, USER.test(user));
  verify("port", String(port), Number.isInteger(port) && port >= 1 && port <= 65_535);
  return [`HostName ${host}`, `User ${user}`, `Port ${port}`];
}

function verify(what: string, value: string, isRight: boolean): void {
  if (!isRight) throw new Failure("failed", `Cannot use the ${what} ${quote(value)} with ssh`);
}

function nameOf({ user, host, port }: JumpHost): string {
  return `${user}@${host} ${port}`;
}

/** The underscore cannot be part of a worker's name. */
function aliasOf(jump: JumpHost, jumps: ReadonlyMap<string, JumpHost>): string {
  return `jump_${[...jumps.keys()].indexOf(nameOf(jump))}`;
}

/** What holds everywhere; a value that stands earlier in the file wins, so the operator's options come first. */
function common(folder: string): string[] {
  return [
    "BatchMode yes",
    "StrictHostKeyChecking yes",
    `UserKnownHostsFile ${folder}/${SSH_FILES.knownHosts}`,
    "GlobalKnownHostsFile none",
    "UpdateHostKeys no",
    "VerifyHostKeyDNS no",
    `IdentityFile ${folder}/${SSH_FILES.key}`,
    "IdentitiesOnly yes",
    "IdentityAgent none",
    "PreferredAuthentications publickey",
    "ConnectTimeout 10",
    "ConnectionAttempts 1",
    "ServerAliveInterval 15",
    "ServerAliveCountMax 3",
    "ClearAllForwardings yes",
    "ForwardAgent no",
    "ForwardX11 no",
    "EscapeChar none",
    "LogLevel INFO",
  ];
}

function section(head: string, lines: readonly string[]): string[] {
  return [head, ...lines.map((line) => `  ${line}`)].map((line) => `${line}\n`);
}
