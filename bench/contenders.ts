import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";

/** What one run of a command took: wall time, and the CPU of it and of all its children that it waited for. */
export interface Cost {
  ms: number;
  cpuMs: number;
}

/** How the workers of the fleet are reached; what ssh, rsync and the others are told of it. */
export interface Reach {
  hosts: readonly string[];
  port: number;
  user: string;
  keyFile: string;
  knownHostsFile: string;
  /** Options of ssh that differ from its defaults; all sides get them. */
  options: Readonly<Record<string, string>>;
}

/** The tools that are compared, and the Debian packages that bring them. */
const TOOLS = { ansible: "ansible", clush: "clustershell", rsync: "rsync", xargs: "findutils" };
export type Tool = keyof typeof TOOLS;

/** How many the bare loops have at work at a time. */
const WIDTH = "32";
const ANSIBLE_FORKS = "50";

/** The tools that are not on this machine, each with the command that installs it. */
export function missingTools(): Map<Tool, string> {
  const folders = (process.env.PATH ?? "").split(path.delimiter);
  const names = Object.keys(TOOLS) as Tool[];
  const missing = names.filter((name) => !folders.some((folder) => isExecutable(path.join(folder, name))));
  return new Map(missing.map((name) => [name, `apt-get install -y ${TOOLS[name]}`]));
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * What Debian ships, against one fleet. All of it reads the same ssh configuration.
 * "Cold" is a connection for every command; "warm" goes over connections that OpenSSH keeps (ControlPersist).
 */
export class Contenders {
  readonly #folder: string;
  readonly #reach: Reach;

  constructor(folder: string, reach: Reach) {
    this.#folder = folder;
    this.#reach = reach;
    mkdirSync(this.#path("control"), { recursive: true, mode: 0o700 });
    writeFileSync(this.#path("cold.conf"), configuration(reach, []));
    writeFileSync(
      this.#path("warm.conf"),
      configuration(reach, ["ControlMaster auto", `ControlPath ${this.#path("control")}/%C`, "ControlPersist 600"]),
    );
    writeFileSync(this.#path("inventory"), reach.hosts.map((host) => `${host}\n`).join(""));
  }

  /** One ssh per worker, 32 at a time, each with a connection of its own. */
  bareLoop(command: string): Promise<Cost> {
    return this.#loop(["ssh", "-F", this.#path("cold.conf"), "{}", command]);
  }

  /** `clush`, over connections that are open when `warmUp` came before. */
  clush(command: string): Promise<Cost> {
    const options = `-F ${this.#path("warm.conf")}`;
    return this.#measured(["clush", "-S", "-f", "64", "-o", options, "-w", this.#reach.hosts.join(","), command]);
  }

  /** `rsync` to every worker, 32 at a time, over connections that are open when `warmUp` came before. */
  rsyncLoop(source: string, target: (host: string) => string): Promise<Cost> {
    const shell = `ssh -F ${this.#path("warm.conf")}`;
    return this.#loop(["rsync", "-a", "--delete", "-e", shell, `${source}/`, `{}:${target("{}")}/`]);
  }

  /** `ansible -m raw`, each time with connections of its own. */
  async ansibleRaw(command: string): Promise<Cost> {
    const folder = this.#path("ansible-cold");
    const cost = await this.#ansible(folder, ["-m", "raw", "-a", command]);
    await this.#closeAll(`${folder}/%C`);
    rmSync(folder, { recursive: true });
    return cost;
  }

  /** `ansible -m synchronize`, over connections that are open when it ran before. */
  ansibleSynchronize(source: string, target: string): Promise<Cost> {
    const what = `src=${source}/ dest=${target}/ delete=yes use_ssh_args=yes`;
    return this.#ansible(this.#path("ansible-warm"), ["-m", "synchronize", "-a", what]);
  }

  /** Opens the connections for the warm ones. */
  async warmUp(): Promise<void> {
    await this.#loop(["ssh", "-F", this.#path("warm.conf"), "{}", "true"]);
  }

  /** Closes the connections that OpenSSH keeps. */
  async close(): Promise<void> {
    await this.#closeAll(`${this.#path("control")}/%C`);
    await this.#closeAll(`${this.#path("ansible-warm")}/%C`);
  }

  async #closeAll(controlPath: string): Promise<void> {
    const options = ["-F", this.#path("cold.conf"), "-o", `ControlPath=${controlPath}`, "-O", "exit"];
    await this.#loop(["sh", "-c", 'ssh "$@" 2>/dev/null || true', "sh", ...options, "{}"]);
  }

  #ansible(controlFolder: string, args: string[]): Promise<Cost> {
    mkdirSync(controlFolder, { recursive: true, mode: 0o700 });
    const ssh = `-F ${this.#path("cold.conf")} -o ControlMaster=auto -o ControlPersist=600`;
    return this.#measured(["ansible", "all", "-i", this.#path("inventory"), "-f", ANSIBLE_FORKS, ...args], {
      ANSIBLE_SSH_ARGS: ssh,
      ANSIBLE_SSH_CONTROL_PATH: "%(directory)s/%%C",
      ANSIBLE_SSH_USETTY: "false",
      ANSIBLE_SSH_CONTROL_PATH_DIR: controlFolder,
      ANSIBLE_HOME: this.#path("ansible"),
      ANSIBLE_LOCAL_TEMP: this.#path("ansible/tmp"),
      ANSIBLE_PYTHON_INTERPRETER: "/usr/bin/python3",
      ANSIBLE_DEPRECATION_WARNINGS: "false",
    });
  }

  #loop(command: string[]): Promise<Cost> {
    return this.#measured(["xargs", "-a", this.#path("inventory"), "-P", WIDTH, "-I", "{}", ...command]);
  }

  #measured(argv: string[], env: Record<string, string> = {}): Promise<Cost> {
    return measured(argv, this.#path("output"), env);
  }

  #path(name: string): string {
    return path.join(this.#folder, name);
  }
}

function configuration(reach: Reach, lines: string[]): string {
  return [
    "Host *",
    `User ${reach.user}`,
    `Port ${reach.port}`,
    `IdentityFile ${reach.keyFile}`,
    "IdentitiesOnly yes",
    `UserKnownHostsFile ${reach.knownHostsFile}`,
    "GlobalKnownHostsFile none",
    "StrictHostKeyChecking yes",
    "BatchMode yes",
    "LogLevel ERROR",
    ...Object.entries(reach.options).map(([name, value]) => `${name} ${value}`),
    ...lines,
    "",
  ].join("\n");
}

/** Prints the CPU of the command and of what it waited for behind its output. */
const TIMES = 'output=$1; shift; "$@" >"$output" 2>&1; code=$?; times; exit $code';

/** Runs a command to its end; throws with what it said where its exit code is not 0. */
export async function measured(argv: string[], output: string, env: Record<string, string> = {}): Promise<Cost> {
  const started = performance.now();
  const child = spawn("sh", ["-c", TIMES, "sh", output, ...argv], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let times = "";
  child.stdout.on("data", (chunk: Buffer) => {
    times += chunk;
  });
  const [code] = (await once(child, "close")) as [number | null];
  const ms = performance.now() - started;
  if (code === 0) return { ms, cpuMs: childrenCpuMs(times) };
  const said = readFileSync(output, "utf8").trim().split("\n").slice(-5).join("\n");
  throw new Error(`${argv[0]} ended with exit code ${code}: ${said}`);
}

/** The second line of `times` is about the children: `0m1.230000s 0m0.450000s`. */
function childrenCpuMs(times: string): number {
  const parts = [...(times.trim().split("\n")[1] ?? "").matchAll(/(\d+)m([\d.]+)s/g)];
  return parts.reduce((sum, [, minutes, seconds]) => sum + (Number(minutes) * 60 + Number(seconds)) * 1000, 0);
}
