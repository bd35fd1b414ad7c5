import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { userInfo } from "node:os";
import path from "node:path";
import type { TestContext } from "node:test";
import { temporaryFolder, until } from "./temporary.ts";

/** The kinds of keys that ssh-keygen makes. */
export type KeyKind = "ed25519" | "ecdsa" | "rsa";

/** Makes a key pair with ssh-keygen; answers the file of the private part. */
export function makeKey(folder: string, name: string, ...options: string[]): string {
  const file = path.join(folder, name);
  const done = spawnSync("ssh-keygen", ["-q", "-N", "", "-f", file, ...options]);
  if (done.status !== 0) throw new Error(`ssh-keygen: ${done.stderr}`);
  return file;
}

/** `<type> <base64>` of a key pair. */
export function publicPart(file: string): string {
  return readFileSync(`${file}.pub`, "utf8").split(" ").slice(0, 2).join(" ");
}

/** `SHA256:…` of a key pair as ssh-keygen tells it. */
export function fingerprintBy(file: string): string {
  return String(spawnSync("ssh-keygen", ["-l", "-f", `${file}.pub`]).stdout).split(" ")[1] as string;
}

/**
 * A private sshd for one test on all loopback addresses: own host keys, own port, and a key with which this user may
 * sign in.
 */
export class Sshd {
  readonly folder: string;
  readonly user = userInfo().username;
  /** The private key that may sign in. */
  readonly clientKey: string;
  port = 0;
  #keys: string[] = [];
  #made = 0;
  #process: ChildProcess | undefined;

  private constructor(folder: string) {
    this.folder = folder;
    this.clientKey = makeKey(folder, "client", "-t", "ed25519");
  }

  static async start(t: TestContext, kinds: KeyKind[], lines: string[] = []): Promise<Sshd> {
    const sshd = new Sshd(temporaryFolder(t));
    t.after(() => sshd.stop());
    sshd.port = await freePort();
    sshd.newKeys(kinds);
    await sshd.run(lines);
    return sshd;
  }

  /** The files of its host keys, in the order in which they were asked for. */
  get hostKeys(): readonly string[] {
    return this.#keys;
  }

  /** What it logged so far. */
  get log(): string {
    return readFileSync(path.join(this.folder, "log"), "utf8");
  }

  /** Makes host keys, which count from the next `run` on. */
  newKeys(kinds: KeyKind[], keep: readonly string[] = []): void {
    this.#keys = [...keep, ...kinds.map((kind) => this.#hostKey(kind))];
  }

  #hostKey(kind: KeyKind): string {
    const size = kind === "rsa" ? ["-b", "2048"] : [];
    return makeKey(this.folder, `host${this.#made++}`, "-t", kind, ...size);
  }

  async run(lines: string[] = []): Promise<void> {
    const config = path.join(this.folder, "config");
    writeFileSync(
      config,
      [
        ...lines,
        `Port ${this.port}`,
        "ListenAddress 0.0.0.0",
        ...this.#keys.map((file) => `HostKey ${file}`),
        `AuthorizedKeysFile ${this.clientKey}.pub`,
        "StrictModes no",
        "UsePAM no",
        "PidFile none",
        "LogLevel DEBUG1",
      ].join("\n"),
    );
    if (process.getuid?.() === 0 && !existsSync("/run/sshd")) mkdirSync("/run/sshd", { mode: 0o755 });
    const log = path.join(this.folder, "log");
    rmSync(log, { force: true });
    this.#process = spawn("/usr/sbin/sshd", ["-D", "-f", config, "-E", log], { stdio: "ignore" });
    await until("sshd listens", () => answers(this.port));
  }

  async stop(): Promise<void> {
    const running = this.#process;
    this.#process = undefined;
    if (!running || running.exitCode !== null || running.signalCode !== null) return;
    running.kill("SIGKILL");
    await once(running, "exit");
  }
}

/** A port that nobody listens on. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  return port;
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.on("connect", () => resolve(true)).on("error", () => resolve(false));
    socket.on("connect", () => socket.destroy());
  });
}
