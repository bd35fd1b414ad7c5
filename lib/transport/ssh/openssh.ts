import { isIP } from "node:net";
import path from "node:path";
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
  /** The key before, which is offered after the key while some worker may know only that one. */
  oldKeyFile?: string | undefined;
  /** `ssh_options`. */
  options: Readonly<Record<string, string>>;
  /** How many commands are at work on all workers together. */
  concurrency: number;
  /** Whether commands run through `sudo -n` where the user is not root. */
  useSudo: boolean;
  /** For how long a command whose connection was lost is looked for; 0 for not at all. */
  reattachSeconds: number;
  /** How many bytes of each output of a command a worker keeps for that. */
  spoolBytes: number;
  /** A server has started the run: its console can do what a sentence asks for. */
  isServed?: boolean;
}

/** A host to go through, as `ssh_jump` names it. */
export type JumpHost = ReturnType<typeof parseJump>;

/** The parts of `[user@]host[:port]`, an IPv6 address with a port in brackets. The workspace has checked the form. */
export function parseJump(jump: string, defaultUser: string) {
  const at = jump.indexOf("@");
  const user = at < 0 ? defaultUser : jump.slice(0, at);
  const target = jump.slice(at + 1);
  const [, bracketed, plain, port] = /^(?:\[([^\]]+)\]|([^:]+)):(\d+)$/.exec(target) ?? [];
  return { user, host: bracketed ?? plain ?? target, port: Number(port ?? 22) };
}

/**
 * The files of a run's ssh, by name in its folder; the key and the known hosts are links, so their paths mean nothing
 * to ssh.
 */
export const SSH_FILES = {
  config: "config",
  masters: "masters",
  key: "key",
  oldKey: "old_key",
  knownHosts: "known_hosts",
  keeper: "keeper",
  agent: "agent",
} as const;

const HOST_NAME = /^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/;
const USER_NAME = /^[a-z_][a-z0-9_-]*$/;
const PLAIN_FOLDER = /^(\/[A-Za-z0-9._-]+)+$/;
const SSH_OPTION =
  /^(KexAlgorithms|Ciphers|MACs|HostKeyAlgorithms|Compression|ConnectTimeout|ServerAliveInterval|ServerAliveCountMax) [A-Za-z0-9@.,+:*^_-]{1,500}$/;

/**
 * The text of the configuration of a run's ssh: the file for all who use its connections, the one for those who open
 * them, or the one for those who have no key and ask an agent for signatures. The first has an entry per worker under its
 * own name. The others have entries only for workers that differ from the settings: each ssh reads the whole file when it
 * starts. All have one per jump host. Every value is checked once more, so that none can add a line or mean something
 * else to ssh; throws `failed`.
 */
export function sshConfig(
  file: "config" | "masters" | "agent",
  folder: string,
  settings: SshSettings,
  workers: readonly WorkerAddress[],
): string {
  requireSafe("folder", folder, PLAIN_FOLDER.test(folder));
  const options = Object.entries(settings.options).map(([name, value]) => `${name} ${value}`);
  for (const option of options) requireSafe("ssh option", option, SSH_OPTION.test(option));
  const jumps = [...new Set(workers.flatMap(({ sshJump }) => sshJump ?? []))];
  // The underscore cannot be part of a worker's name.
  const jumpAlias = (jump: string) => `jump_${jumps.indexOf(jump)}`;
  const own = workers.map(({ host, sshUser: user, sshPort: port, sshJump }, index) => {
    requireSafe("host", host, isHost(host));
    const socket = file === "config" ? [`ControlPath ${folder}/${socketName(index)}`] : [];
    const jump = sshJump === undefined ? [] : [`ProxyJump ${jumpAlias(sshJump)}`];
    return { host, lines: [...loginOptions(user, port), ...socket, ...jump] };
  });
  return [
    ...section("Host *", options),
    ...own.flatMap(({ host, lines }) => (lines.length > 0 ? section(`Host ${host}`, lines) : [])),
    ...jumps.flatMap((jump) => section(`Host ${jumpAlias(jump)}`, jumpOptions(parseJump(jump, settings.user)))),
    ...section("Host *", [
      ...loginOptions(settings.user, settings.port),
      ...commonOptions(folder, file === "agent" ? agentOptions(folder) : keyOptions(folder, settings)),
    ]),
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
export function masterArgv(folder: string, socket: string, host: string): Argv {
  return ["ssh", "-F", `${folder}/${SSH_FILES.masters}`, "-S", `${folder}/${socket}`, "-M", "-N", "-T", "--", host];
}

function jumpOptions({ host, user, port }: JumpHost): string[] {
  requireSafe("host", host, isHost(host));
  return [`HostName ${host}`, ...loginOptions(user, port)];
}

function isHost(host: string): boolean {
  return isIP(host) !== 0 ? !host.includes("%") : HOST_NAME.test(host);
}

function loginOptions(user: string | undefined, port: number | undefined): string[] {
  if (user !== undefined) requireSafe("user", user, USER_NAME.test(user));
  if (port !== undefined) requireSafe("port", String(port), Number.isInteger(port) && port >= 1 && port <= 65_535);
  return [...(user === undefined ? [] : [`User ${user}`]), ...(port === undefined ? [] : [`Port ${port}`])];
}

function requireSafe(what: string, value: string, isRight: boolean): void {
  if (!isRight) throw new Failure("failed", `Cannot use the ${what} ${quote(value)} with ssh`);
}

function keyOptions(folder: string, { oldKeyFile }: SshSettings): string[] {
  return [
    `IdentityFile ${folder}/${SSH_FILES.key}`,
    ...(oldKeyFile === undefined ? [] : [`IdentityFile ${folder}/${SSH_FILES.oldKey}`]),
    "IdentitiesOnly yes",
    "IdentityAgent none",
  ];
}

function agentOptions(folder: string): string[] {
  return ["IdentityFile none", `IdentityAgent ${folder}/${SSH_FILES.agent}`];
}

/** What holds for all hosts. The first value in the file wins, so the operator's options come before these. */
function commonOptions(folder: string, keys: readonly string[]): string[] {
  return [
    "BatchMode yes",
    "StrictHostKeyChecking yes",
    `UserKnownHostsFile ${folder}/${SSH_FILES.knownHosts}`,
    "GlobalKnownHostsFile none",
    "UpdateHostKeys no",
    "VerifyHostKeyDNS no",
    ...keys,
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

/** What ssh says, and what that means. */
interface ConnectTroubleKind {
  pattern: RegExp;
  /** For how long it is worth trying again; zero by default. */
  retryMs?: number;
  /** True for keys and options, which only a person can change. */
  lasts?: boolean;
  /** The server may have dropped the connection because too many came at a time. */
  isDropped?: boolean;
  /**
   * Which worker, what happened, what to do, as a {@link WorkerFailure} takes it. `{1}` stands for the first group of the
   * pattern, `{place}` and the like for a name.
   */
  sentence: string;
}

/** For a server that drops connections while too many come, or a network that loses a connection. */
const TRANSIENT_MS = 15_000;
/** For a server that is just being started again. */
const REFUSED_MS = 3_000;

/** What ssh says; the first match counts: behind a jump host several of these come together. */
const TROUBLES: readonly ConnectTroubleKind[] = [
  {
    pattern: /REMOTE HOST IDENTIFICATION HAS CHANGED/,
    lasts: true,
    sentence:
      "Refused to connect to {place}: another host key is shown there than the one that is trusted; if that is right, trust the new one: `ops worker trust --force{only}`{byForce}",
  },
  {
    pattern: /Host key verification failed|No \S+ host key is known/,
    lasts: true,
    sentence: "Cannot connect to {place}: the host key is not known; check and record it: `ops worker trust{only}`{inWorkers}",
  },
  {
    pattern: /Load key .*?: (.+)/,
    lasts: true,
    sentence: "Cannot sign in on {place}: ssh cannot use the private key secrets/{key}: {1}; store another one: {store}",
  },
  {
    pattern: /Permission denied|Too many authentication failures/,
    lasts: true,
    sentence:
      "Cannot sign in on {place} as {user}: the key secrets/{key} is not accepted there; put its public part (`ops ssh-key show`) into that user's authorized_keys, or store the right key: {store}",
  },
  {
    pattern: /Unable to negotiate .*?: (no matching .+? found)|(Bad (?:SSH2 )?\S+ '.+?')/,
    lasts: true,
    sentence: "Cannot connect to {place}: {1}{2}; see ssh_options in ops.conf",
  },
  { pattern: /Could not resolve hostname (\S+): (.+)/, sentence: "Cannot connect to {place}: the name has no address: {2}" },
  {
    pattern: /open failed: (?:connect failed: )?(.+)/,
    sentence: "Cannot connect to {workers}: the jump host does not get to port {port} there: {1}",
  },
  {
    pattern: /connect to host \S+ port (\d+): Connection refused/,
    retryMs: REFUSED_MS,
    sentence: "Cannot connect to {place}: nothing listens on port {1} there; is sshd running, and is ssh_port right?",
  },
  {
    pattern: /timed out during banner exchange|the login timed out|Connection to \S+ port \d+ timed out/,
    retryMs: TRANSIENT_MS,
    sentence:
      "Cannot sign in on {place}: port {port} accepts the connection, but the login hangs; does sshd hang there, or is the host out of memory or processes?",
  },
  {
    pattern: /timed out/,
    retryMs: TRANSIENT_MS,
    sentence: "Cannot connect to {place}: no answer on port {port} in time; is it up, and does the network let ssh through?",
  },
  {
    pattern: /Connection to \S+ closed by remote host/,
    retryMs: TRANSIENT_MS,
    sentence: "Cannot connect to {place}: the connection is closed right after the login; see the log of sshd there",
  },
  { pattern: /^\s*$/, retryMs: TRANSIENT_MS, sentence: "Cannot connect to {place}: ssh ended without a word" },
  {
    pattern: /Connection (?:closed|reset)|Broken pipe/,
    retryMs: TRANSIENT_MS,
    isDropped: true,
    sentence:
      "Cannot connect to {place}: the connection is dropped before the login is done; sshd there may have too many logins at a time (MaxStartups) or has blocked this machine",
  },
  { pattern: /connect to host \S+ port \d+: (.+)/, sentence: "Cannot connect to {place}: {1}" },
];

/** What the messages of an ssh mean that could not connect. */
export function connectTrouble(messages: string, worker: WorkerAddress, settings: SshSettings) {
  const names = troubleNames(messages, worker, settings);
  for (const { pattern, retryMs = 0, lasts = false, isDropped = false, sentence } of TROUBLES) {
    const found = pattern.exec(messages);
    if (!found) continue;
    const words = sentence.replace(/\{(\w+)\}/g, (_, name) => names[name] ?? found[Number(name)] ?? "");
    return { sentence: words, retryMs, lasts, isDropped };
  }
  const sentence = `Cannot connect to ${names.place}: ${lastLine(messages)}`;
  return { sentence, retryMs: 0, lasts: false, isDropped: false };
}

/** The names for the sentences. Behind a jump host, messages that name only the jump host are about the jump host. */
function troubleNames(messages: string, worker: WorkerAddress, settings: SshSettings): Record<string, string> {
  const { host, sshUser = settings.user, sshPort = settings.port } = worker;
  const jump = jumpOf(worker, settings);
  const workers = "{workers}";
  const inWorkers = inConsole(settings, "Trust under Workers");
  const byForce = inConsole(settings, "Trust by force under Workers");
  const names = { workers, only: "{only}", key: path.basename(settings.keyFile), store: storeKey(settings), inWorkers, byForce };
  if (!jump || !messages.includes(jump.host) || messages.includes(host))
    return { ...names, place: workers, user: sshUser, port: String(sshPort) };
  return { ...names, place: `the jump host ${jump.host} of ${workers}`, user: jump.user, port: String(jump.port) };
}

/** What stores a private key. */
export function storeKey(settings: SshSettings): string {
  return `\`ops ssh-key set\`${inConsole(settings, "Keys under Source")}`;
}

function inConsole({ isServed }: SshSettings, place: string): string {
  return isServed ? `, or ${place} in the console` : "";
}

/** The last line of a text, without a period. */
export function lastLine(text: string): string {
  return (text.trim().split("\n").at(-1) ?? "").trim().replace(/\.$/, "");
}
