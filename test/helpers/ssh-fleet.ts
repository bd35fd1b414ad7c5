import { once } from "node:events";
import { appendFileSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import path from "node:path";
import { pipeline } from "node:stream";
import type { TestContext } from "node:test";
import { hasMembers, signalProcess } from "../../lib/core/process.ts";
import { Launcher } from "../../lib/core/spawn.ts";
import type { Transport, WorkerAddress } from "../../lib/transport/base/transport.ts";
import { SSH_PLACES } from "../../lib/transport/ssh/folder.ts";
import type { SshSettings } from "../../lib/transport/ssh/openssh.ts";
import { SshConnections } from "../../lib/transport/ssh/ssh.ts";
import { makeKey, type PrivateSshd, publicPart } from "../../scripts/private-sshd.ts";
import { startSshd } from "./sshd.ts";
import { temporaryFolder } from "./temporary.ts";

type Clean = Pick<TestContext, "after">;

/** How a fleet differs from the usual one. */
export interface FleetOptions {
  /** The workers' addresses, in 127.0.0.0/8; three by default. */
  hosts?: readonly string[];
  /** More lines for sshd's configuration. */
  sshd?: readonly string[];
  /** A shell script that stands between sshd and every command: it is to run `sh -c "$SSH_ORIGINAL_COMMAND"`. */
  login?: string;
  /** Environment of every command, besides HOME. */
  env?: Readonly<Record<string, string>>;
}

export const BUCKET_ID = "0190a5e8-0000-7000-8000-000000000002";
const HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
/** On so many one sshd listens itself. */
const ADDRESSES = 16;

/**
 * Workers for one test: a private sshd on loopback addresses, each of them a worker with a root folder of its own. It
 * runs as whoever runs the test, root or not, and ends with the test, with all that was started over it.
 */
export class SshFleet {
  readonly folder: string;
  readonly sshd: PrivateSshd;
  readonly hosts: readonly string[];
  readonly launcher = new Launcher(process.env);
  readonly knownHostsFile: string;
  #strangers = 0;

  private constructor(folder: string, sshd: PrivateSshd, hosts: readonly string[]) {
    this.folder = folder;
    this.sshd = sshd;
    this.hosts = hosts;
    this.knownHostsFile = path.join(folder, "known_hosts");
    this.trust(sshd.hostKeys[0] as string);
  }

  static async start(t: Clean, options: FleetOptions = {}): Promise<SshFleet> {
    let fleet: SshFleet | undefined;
    // Before the folders go, and before sshd alone is ended: its sessions are found by it.
    t.after(() => (fleet ? fleet.#end() : undefined));
    const folder = temporaryFolder(t);
    const login = path.join(folder, "login");
    writeFileSync(login, `#!/bin/sh\n${options.login ?? ""}\n`, { mode: 0o755 });
    const env = Object.entries({ HOME: folder, ...options.env }).map(([name, value]) => ` "${name}=${value}"`);
    const lines = [
      `SetEnv${env.join("")}`,
      ...(options.sshd ?? []),
      ...(options.login === undefined ? [] : [`ForceCommand ${login}`]),
    ];
    const hosts = options.hosts ?? HOSTS;
    const isOne = hosts.length <= ADDRESSES;
    const sshd = await startSshd(t, ["ed25519"], lines, isOne ? hosts : hosts.slice(0, 1));
    if (!isOne) await forward(t, hosts.slice(1), sshd);
    fleet = new SshFleet(folder, sshd, hosts);
    return fleet;
  }

  /** The workers as the catalog knows them. */
  get workers(): WorkerAddress[] {
    return this.hosts.map((host) => this.worker(host));
  }

  /** One worker; `more` replaces what is right. */
  worker(host: string, more: Partial<WorkerAddress> = {}): WorkerAddress {
    const { user: sshUser, port: sshPort } = this.sshd;
    return { host, connection: "ssh", root: path.join(this.folder, "roots", host), sshUser, sshPort, ...more };
  }

  /** What ops.conf would say; `more` replaces what is right. */
  settings(more: Partial<SshSettings> = {}): SshSettings {
    return {
      user: this.sshd.user,
      port: this.sshd.port,
      options: {},
      concurrency: 32,
      useSudo: false,
      reattachSeconds: 60,
      spoolBytes: 2 ** 26,
      keyFile: this.sshd.clientKey,
      knownHostsFile: this.knownHostsFile,
      ...more,
    };
  }

  /** Connections of a run to these workers (by default all), closed after the test. */
  async connect(
    t: Clean,
    more: Partial<SshSettings> = {},
    workers: readonly WorkerAddress[] = this.workers,
  ): Promise<{ connections: SshConnections; transports: Transport[] }> {
    const connections = await SshConnections.open(this.settings(more), workers, this.launcher);
    t.after(() => connections.close());
    return { connections, transports: workers.map((worker) => connections.transport(worker, BUCKET_ID)) };
  }

  /** The way to the first worker only. */
  async one(t: Clean, more: Partial<SshSettings> = {}): Promise<Transport> {
    return (await this.connect(t, more, this.workers.slice(0, 1))).transports[0] as Transport;
  }

  /** Writes known_hosts: every worker has the host key in this file. */
  trust(keyFile: string): void {
    const key = publicPart(keyFile);
    writeFileSync(this.knownHostsFile, this.hosts.map((host) => `[${host}]:${this.sshd.port} ${key}\n`).join(""));
  }

  /** Adds the workers of another fleet to known_hosts. */
  trustAlso(other: SshFleet): void {
    appendFileSync(this.knownHostsFile, readFileSync(other.knownHostsFile));
  }

  /** How many connections have signed in so far. */
  get logins(): number {
    return this.sshd.log.split("Accepted publickey").length - 1;
  }

  /** A key pair that nobody knows. */
  strangersKey(): string {
    return makeKey(this.folder, `stranger_${this.#strangers++}`, "-t", "ed25519");
  }

  /** The processes of sshd for the connections that are open. */
  get sessions(): number[] {
    return this.sshd.pids.flatMap(descendants).filter((pid) => /^sshd/.test(commandOf(pid)));
  }

  /** What runs in the sessions of the connections. */
  get shells(): number[] {
    return this.sshd.pids.flatMap(descendants).filter((pid) => !/^sshd/.test(commandOf(pid)));
  }

  /** Stops the processes of all connections as they are, or lets them go on: a worker that hangs. */
  freeze(signal: "SIGSTOP" | "SIGCONT" = "SIGSTOP"): void {
    for (const pid of this.sessions) signalProcess(pid, signal);
  }

  /** Lets nobody connect any more: who tries gets no answer. */
  freezeListener(): void {
    for (const pid of this.sshd.pids) signalProcess(pid, "SIGSTOP");
  }

  /** Cuts all connections that are open. */
  cut(): void {
    for (const pid of this.sessions) signalProcess(pid, "SIGKILL");
  }

  /** The processes that work below the workers' root folders. */
  get processes(): number[] {
    return allProcesses().filter((pid) => workingFolder(pid).startsWith(path.join(this.folder, "roots")));
  }

  async #end(): Promise<void> {
    const ours = [...this.sshd.pids.flatMap(descendants), ...this.processes];
    const folders = sshFolders(this.folder);
    for (const pid of keepersOf(this.folder)) signalProcess(-pid, "SIGKILL");
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
    await this.sshd.stop();
    await this.launcher.endAll(0);
    for (const pid of ours) signalProcess(pid, "SIGKILL");
  }
}

/** The folders of ssh connections whose known hosts lie below this folder. */
export function sshFolders(below: string): string[] {
  const folders = SSH_PLACES.flatMap((place) => readdirSync(place).map((name) => path.join(place, name)));
  return folders.filter((folder) => {
    return path.basename(folder).startsWith("ops-ssh-") && linkOf(path.join(folder, "known_hosts")).startsWith(below);
  });
}

/** The keepers of buckets below this folder. */
export function keepersOf(below: string): number[] {
  const pids = sshFolders(below).map((folder) => Number(/^ops-ssh-(\d+)-\d+-kept-/.exec(path.basename(folder))?.[1]));
  return pids.filter((pid) => !Number.isNaN(pid) && hasMembers(pid));
}

/** Lets more addresses lead to one sshd: many workers behind one endpoint. */
async function forward(t: Clean, hosts: readonly string[], sshd: PrivateSshd): Promise<void> {
  for (const host of hosts) {
    const server = createServer((socket) => {
      const onward = connect(sshd.port, sshd.hosts[0]);
      pipeline(socket, onward, socket, () => {});
    }).listen(sshd.port, host);
    t.after(() => server.close());
    await once(server, "listening");
  }
}

function allProcesses(): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

/** The children of a process, theirs, and so on. */
export function descendants(pid: number): number[] {
  const parents = new Map(allProcesses().map((one) => [one, parentOf(one)]));
  const found = [pid];
  for (const one of found) for (const [child, parent] of parents) if (parent === one) found.push(child);
  return found.slice(1);
}

function parentOf(pid: number): number {
  return Number(/\) \S+ (\d+)/.exec(textOf(`/proc/${pid}/stat`))?.[1] ?? -1);
}

/** The command line of a process; empty where there is none. */
export function commandOf(pid: number): string {
  return textOf(`/proc/${pid}/cmdline`).replaceAll("\0", " ");
}

function textOf(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

function workingFolder(pid: number): string {
  return linkOf(`/proc/${pid}/cwd`);
}

function linkOf(file: string): string {
  try {
    return readlinkSync(file);
  } catch {
    return "";
  }
}
