// An sshd of our own on loopback addresses, for the demo, the benchmarks and the tests: each address acts as a machine.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { userInfo } from "node:os";
import path from "node:path";
import { freePorts } from "./example.ts";

const SSHD = "/usr/sbin/sshd";
const START_LIMIT_MS = 10_000;
/** An sshd listens on at most 16 addresses. */
const ADDRESSES = 16;

/** One port on some loopback addresses. Whoever runs this program can sign in with the client key, and nobody else. */
export class PrivateSshd {
  readonly hosts: readonly string[];
  readonly port: number;
  readonly user = userInfo().username;
  readonly #folder: string;
  #listeners: ChildProcess[] = [];

  private constructor(folder: string, hosts: readonly string[], port: number) {
    this.#folder = folder;
    this.hosts = hosts;
    this.port = port;
  }

  /**
   * Starts it with keys of its own, which stay in the folder with its configuration and log. `lines` go in front of
   * the configuration; of a setting that is there twice, sshd takes the first.
   */
  static async start(folder: string, hosts: readonly string[], lines: string[] = []): Promise<PrivateSshd> {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    // sshd as root wants this folder, which the system's own one makes when it starts.
    if (process.getuid?.() === 0) mkdirSync("/run/sshd", { recursive: true, mode: 0o755 });
    const sshd = new PrivateSshd(folder, hosts, await freePorts(hosts, 1));
    for (const name of ["host_key", "client_key"]) makeKey(path.join(folder, name));
    try {
      for (let at = 0; at < hosts.length; at += ADDRESSES)
        sshd.#listeners.push(sshd.#listen(at / ADDRESSES, hosts.slice(at, at + ADDRESSES), lines));
      for (const host of hosts) await sshd.#answers(host);
    } catch (error) {
      await sshd.stop();
      throw error;
    }
    return sshd;
  }

  /** The file of the private key that may sign in. */
  get clientKey(): string {
    return path.join(this.#folder, "client_key");
  }

  /** Lines for a known_hosts file. */
  get knownHosts(): string {
    const key = readFileSync(path.join(this.#folder, "host_key.pub"), "utf8");
    return this.hosts.map((host) => `[${host}]:${this.port} ${key}`).join("");
  }

  /** Ends it, and every session that is still open. */
  async stop(): Promise<void> {
    for (const child of this.#listeners) {
      if (!isAlive(child)) continue;
      const sessions = childrenOf(child.pid as number);
      const exited = once(child, "exit");
      child.kill("SIGTERM");
      await exited;
      for (const pid of sessions) end(pid);
    }
    this.#listeners = [];
  }

  #listen(number: number, hosts: readonly string[], lines: string[]): ChildProcess {
    const file = path.join(this.#folder, `sshd_config_${number}`);
    const config = [
      ...lines,
      `Port ${this.port}`,
      ...hosts.map((host) => `ListenAddress ${host}`),
      `HostKey ${this.#folder}/host_key`,
      `AuthorizedKeysFile ${this.clientKey}.pub`,
      `AllowUsers ${this.user}`,
      "AuthenticationMethods publickey",
      "StrictModes no",
      "UsePAM no",
      "PidFile none",
      "",
    ];
    writeFileSync(file, config.join("\n"));
    const argv = ["-D", "-f", file, "-E", path.join(this.#folder, "log")];
    return spawn(SSHD, argv, { stdio: "ignore" }).on("error", () => {});
  }

  async #answers(host: string): Promise<void> {
    const end = performance.now() + START_LIMIT_MS;
    while (!(await accepts(host, this.port))) {
      const isOver = this.#listeners.some((child) => !isAlive(child)) || performance.now() > end;
      if (isOver) throw new Error(`${SSHD} does not start: ${this.#lastLog()}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  #lastLog(): string {
    try {
      return readFileSync(path.join(this.#folder, "log"), "utf8").trim().split("\n").slice(-3).join("; ");
    } catch {
      return `is it installed? (apt-get install -y openssh-server)`;
    }
  }
}

function isAlive({ pid, exitCode, signalCode }: ChildProcess): boolean {
  return pid !== undefined && exitCode === null && signalCode === null;
}

function makeKey(file: string): void {
  const { status, stderr } = spawnSync("ssh-keygen", ["-q", "-N", "", "-t", "ed25519", "-f", file]);
  if (status !== 0) throw new Error(`ssh-keygen cannot make ${file}: ${stderr}`);
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
