// An sshd of our own on loopback addresses, for the demo, the benchmarks and the tests: each address acts as a machine.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { userInfo } from "node:os";
import path from "node:path";
import { freePorts } from "./example.ts";
import { patience } from "./patience.ts";

const SSHD = "/usr/sbin/sshd";
const START_LIMIT_MS = 10_000;
/** An sshd listens on at most 16 addresses. */
const ADDRESSES = 16;

/** The kinds of keys that ssh-keygen makes. */
export type KeyKind = "ed25519" | "ecdsa" | "rsa";

/** One port on some loopback addresses. Whoever runs this program can sign in with the client key, and nobody else. */
export class PrivateSshd {
  readonly folder: string;
  readonly hosts: readonly string[];
  readonly port: number;
  readonly user = userInfo().username;
  /** The file of the private key that may sign in. */
  readonly clientKey: string;
  #lines: readonly string[];
  #hostKeys: readonly string[] = [];
  #made = 0;
  #listeners: ChildProcess[] = [];

  private constructor(folder: string, hosts: readonly string[], port: number, lines: readonly string[]) {
    this.folder = folder;
    this.hosts = hosts;
    this.port = port;
    this.#lines = lines;
    this.clientKey = makeKey(folder, "client_key", "-t", "ed25519");
  }

  /**
   * Starts it with keys of its own, which stay in the folder with its configuration and log. `lines` go in front of
   * the configuration; of a setting that is there twice, sshd takes the first.
   */
  static async start(
    folder: string,
    hosts: readonly string[],
    lines: readonly string[] = [],
    kinds: readonly KeyKind[] = ["ed25519"],
  ): Promise<PrivateSshd> {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    // sshd as root wants this folder, which the system's own one makes when it starts.
    if (process.getuid?.() === 0) mkdirSync("/run/sshd", { recursive: true, mode: 0o755 });
    const sshd = new PrivateSshd(folder, hosts, await freePorts(hosts, 1), lines);
    sshd.newKeys(kinds);
    await sshd.run();
    return sshd;
  }

  /** The files of its host keys, in the order in which they were asked for. */
  get hostKeys(): readonly string[] {
    return this.#hostKeys;
  }

  /** Its processes that listen, one for each 16 addresses. */
  get pids(): number[] {
    return this.#listeners.filter(isAlive).map(({ pid }) => pid as number);
  }

  /** What it logged so far. */
  get log(): string {
    return readFileSync(path.join(this.folder, "log"), "utf8");
  }

  /** Lines for a known_hosts file. */
  get knownHosts(): string {
    const keys = this.#hostKeys.map(publicPart);
    return this.hosts.flatMap((host) => keys.map((key) => `[${host}]:${this.port} ${key}\n`)).join("");
  }

  /** Makes host keys, which count from the next `run` on. */
  newKeys(kinds: readonly KeyKind[], keep: readonly string[] = []): void {
    const made = kinds.map((kind) => makeKey(this.folder, `host_key_${this.#made++}`, "-t", kind));
    this.#hostKeys = [...keep, ...made];
  }

  /** From the next `run` on, this file says who may sign in. */
  authorize(file: string): void {
    this.#lines = [`AuthorizedKeysFile ${file}`, ...this.#lines];
  }

  /** Starts it again, on the same port. */
  async run(): Promise<void> {
    try {
      for (let at = 0; at < this.hosts.length; at += ADDRESSES)
        this.#listeners.push(this.#listen(at / ADDRESSES, this.hosts.slice(at, at + ADDRESSES)));
      for (const host of this.hosts) await this.#answers(host);
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  /** Ends it, and every session that is still open. */
  async stop(): Promise<void> {
    for (const child of this.#listeners) {
      if (!isAlive(child)) continue;
      const sessions = childrenOf(child.pid as number);
      const exited = once(child, "exit");
      child.kill("SIGKILL");
      await exited;
      for (const pid of sessions) end(pid);
    }
    this.#listeners = [];
  }

  #listen(number: number, hosts: readonly string[]): ChildProcess {
    const file = path.join(this.folder, `sshd_config_${number}`);
    const isEnvironment = (line: string) => line.startsWith("SetEnv ");
    const environment = this.#lines.filter(isEnvironment).map((line) => line.slice("SetEnv".length));
    // Of a variable that is there twice, sshd takes the first.
    environment.push(` "HOME=${this.folder}"`);
    const config = [
      ...this.#lines.filter((line) => !isEnvironment(line)),
      // Shells that sshd starts would read the login files of whoever runs this program, which may be slow, and may say something.
      `SetEnv${environment.join("")}`,
      `Port ${this.port}`,
      ...hosts.map((host) => `ListenAddress ${host}`),
      ...this.#hostKeys.map((key) => `HostKey ${key}`),
      `AuthorizedKeysFile ${this.clientKey}.pub`,
      `AllowUsers ${this.user}`,
      "AuthenticationMethods publickey",
      "StrictModes no",
      "UsePAM no",
      "PidFile none",
      "",
    ];
    writeFileSync(file, config.join("\n"));
    const argv = ["-D", "-f", file, "-E", path.join(this.folder, "log")];
    return spawn(SSHD, argv, { stdio: "ignore" }).on("error", () => {});
  }

  async #answers(host: string): Promise<void> {
    const start = performance.now();
    while (!(await accepts(host, this.port))) {
      const isOver = this.#listeners.some((child) => !isAlive(child)) || performance.now() - start > patience(START_LIMIT_MS);
      if (isOver) throw new Error(`${SSHD} does not start: ${this.#lastLog()}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  #lastLog(): string {
    try {
      return this.log.trim().split("\n").slice(-3).join("; ");
    } catch {
      return `is it installed? (apt-get install -y openssh-server)`;
    }
  }
}

/** Makes a key pair with ssh-keygen; answers the file of the private part. */
export function makeKey(folder: string, name: string, ...options: string[]): string {
  const file = path.join(folder, name);
  const { status, stderr } = spawnSync("ssh-keygen", ["-q", "-N", "", "-f", file, ...options]);
  if (status !== 0) throw new Error(`ssh-keygen cannot make ${file}: ${stderr}`);
  return file;
}

/** `<type> <base64>` of a key pair. */
export function publicPart(file: string): string {
  return readFileSync(`${file}.pub`, "utf8").split(" ").slice(0, 2).join(" ");
}

function isAlive({ pid, exitCode, signalCode }: ChildProcess): boolean {
  return pid !== undefined && exitCode === null && signalCode === null;
}

function accepts(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, host);
    socket.on("connect", () => resolve(true)).on("error", () => resolve(false));
    socket.on("connect", () => socket.destroy());
  });
}

function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, "latin1").split(" ").filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

function end(pid: number): void {
  try {
    process.kill(pid, "SIGTERM");
  } catch {}
}
