import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** What one run of a command took: wall time, and the CPU of it and of all its children that it waited for. */
export interface Cost {
  ms: number;
  cpuMs: number;
}

/** What one run of a command took, and the most memory and descriptors of one of its processes. */
export interface Measured extends Cost {
  memoryMb: number;
  descriptors: number;
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
const TOOLS = {
  ansible: "ansible",
  mitogen: "ansible-mitogen",
  clush: "clustershell",
  rsync: "rsync",
  curl: "curl",
  xargs: "findutils",
};
export type Tool = keyof typeof TOOLS;

/** Where Debian puts it: mitogen is no program. */
const MITOGEN = "/usr/lib/python3/dist-packages/ansible_mitogen/plugins/strategy";

/** How many the bare loops have at work at a time. */
const WIDTH = "32";
const ANSIBLE_FORKS = "50";

/** The tools that are not on this machine, or that `OPS_BENCH_WITHOUT` names, each with the way to have it. */
export function missingTools(): Map<Tool, string> {
  const unwanted = (process.env.OPS_BENCH_WITHOUT ?? "").split(",");
  const folders = (process.env.PATH ?? "").split(path.delimiter);
  const names = Object.keys(TOOLS) as Tool[];
  const isThere = (name: Tool) =>
    name === "mitogen" ? existsSync(MITOGEN) : folders.some((folder) => isExecutable(path.join(folder, name)));
  const missing = names.filter((name) => unwanted.includes(name) || !isThere(name));
  const advice = (name: Tool) => (unwanted.includes(name) ? "see OPS_BENCH_WITHOUT" : `apt-get install -y ${TOOLS[name]}`);
  return new Map(missing.map((name) => [name, advice(name)]));
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
  bareLoop(command: string): Promise<Measured> {
    return this.#loop(["ssh", "-F", this.#path("cold.conf"), "{}", command]);
  }

  /** The same with connections that stay for the next command, as ops keeps them; they are ended and counted. */
  async keptLoop(command: string): Promise<Measured> {
    const folder = this.#path("kept");
    mkdirSync(folder, { mode: 0o700 });
    const options = ["ControlMaster=auto", `ControlPath=${folder}/%C`, "ControlPersist=60"].flatMap((one) => ["-o", one]);
    const cost = await this.#loop(["ssh", "-F", this.#path("cold.conf"), ...options, "{}", command], "end");
    rmSync(folder, { recursive: true });
    return cost;
  }

  /** `clush`, over connections that are open when `warmUp` came before. */
  clush(command: string): Promise<Measured> {
    const options = `-F ${this.#path("warm.conf")}`;
    return this.#measured(["clush", "-S", "-f", "64", "-o", options, "-w", this.#reach.hosts.join(","), command], {});
  }

  /** `rsync` to every worker, 32 at a time, over connections that are open when `warmUp` came before. */
  rsyncLoop(source: string, target: (host: string) => string): Promise<Cost> {
    const shell = `ssh -F ${this.#path("warm.conf")}`;
    return this.#loop(["rsync", "-a", "--delete", "-e", shell, `${source}/`, `{}:${target("{}")}/`]);
  }

  /** `ansible -m raw`, each time with connections of its own. */
  async ansibleRaw(command: string, strategy: "linear" | "mitogen_linear" = "linear"): Promise<Measured> {
    const folder = this.#path("ansible-cold");
    const argv = ["ansible", "all", "-i", this.#path("inventory"), "-f", ANSIBLE_FORKS, "-m", "raw", "-a", command];
    const plugins = strategy === "mitogen_linear" && { ANSIBLE_STRATEGY: strategy, ANSIBLE_STRATEGY_PLUGINS: MITOGEN };
    const env = { ...this.#ansibleEnvironment(folder), ...plugins };
    const cost = await this.#measured(argv, { env, leftovers: "end" });
    rmSync(folder, { recursive: true });
    return cost;
  }

  /** A playbook, with a connection to each worker that is kept until the end of the run. */
  async ansiblePlaybook(file: string, strategy: "linear" | "mitogen_linear"): Promise<Cost> {
    const folder = this.#path("ansible-play");
    const plugins = strategy === "mitogen_linear" && { ANSIBLE_STRATEGY_PLUGINS: MITOGEN };
    const env = { ...this.#ansibleEnvironment(folder), ANSIBLE_PIPELINING: "true", ...plugins };
    const argv = ["ansible-playbook", "-i", this.#path("inventory"), "-f", ANSIBLE_FORKS, file];
    const cost = await this.#measured(argv, { env, leftovers: "end" });
    rmSync(folder, { recursive: true });
    return cost;
  }

  /** The script of somebody who deploys without a tool: rsync, ssh and curl, with a connection to each worker. */
  async deployScript({ trees, port, batch }: { trees: string; port: number; batch: number }): Promise<Cost> {
    const folder = this.#path("script");
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const ssh = `ssh -F ${this.#path("cold.conf")} -o ControlMaster=auto -o ControlPath=${folder}/%C -o ControlPersist=60`;
    const script = path.join(folder, "deploy");
    writeFileSync(script, DEPLOY_SCRIPT);
    const argv = ["sh", script, ssh, trees, `${folder}/target`, String(port), String(batch), ...this.#reach.hosts];
    mkdirSync(`${folder}/target`, { recursive: true });
    return await this.#measured(argv, { leftovers: "end" });
  }

  /** `ansible -m synchronize`, over connections that are open when it ran before. */
  ansibleSynchronize(source: string, target: string): Promise<Cost> {
    const what = `src=${source}/ dest=${target}/ delete=yes use_ssh_args=yes`;
    return this.#ansible(this.#path("ansible-warm"), ["-m", "synchronize", "-a", what], "keep");
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

  #ansible(controlFolder: string, args: string[], leftovers: "end" | "keep"): Promise<Cost> {
    const argv = ["ansible", "all", "-i", this.#path("inventory"), "-f", ANSIBLE_FORKS, ...args];
    return this.#measured(argv, { env: this.#ansibleEnvironment(controlFolder), leftovers });
  }

  #ansibleEnvironment(controlFolder: string) {
    mkdirSync(controlFolder, { recursive: true, mode: 0o700 });
    return {
      ANSIBLE_SSH_ARGS: `-F ${this.#path("cold.conf")} -o ControlMaster=auto -o ControlPersist=600`,
      ANSIBLE_SSH_CONTROL_PATH: "%(directory)s/%%C",
      ANSIBLE_SSH_USETTY: "false",
      ANSIBLE_SSH_CONTROL_PATH_DIR: controlFolder,
      ANSIBLE_HOME: this.#path("ansible"),
      ANSIBLE_LOCAL_TEMP: this.#path("ansible/tmp"),
      ANSIBLE_PYTHON_INTERPRETER: "/usr/bin/python3",
      ANSIBLE_DEPRECATION_WARNINGS: "false",
    };
  }

  #loop(command: string[], leftovers: "end" | "keep" = "keep"): Promise<Measured> {
    return this.#measured(["xargs", "-a", this.#path("inventory"), "-P", WIDTH, "-I", "{}", ...command], { leftovers });
  }

  #measured(argv: readonly string[], how: Partial<Measuring>): Promise<Measured> {
    return measured(argv, this.#path("output"), how);
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

/** Its words: the ssh with its options, the trees, where they go, the port of the gate, the width of a batch, the workers. */
const DEPLOY_SCRIPT = `
ssh=$1 trees=$2 target=$3 port=$4 width=$5
shift 5
deploy() {
  rsync -a --delete -e "$ssh" "$trees/$1/" "$1:$target/$1/" || return 1
  $ssh "$1" "make -s -C $target/$1 restart" || return 1
  until curl -fs -o "$target/$1.answer" "http://$1:$port/"; do sleep 0.1; done
}
while [ $# -gt 0 ]; do
  jobs=
  number=0
  while [ $# -gt 0 ] && [ $number -lt $width ]; do
    deploy "$1" &
    jobs="$jobs $!" number=$((number + 1))
    shift
  done
  for job in $jobs; do wait "$job" || exit 1; done
done
`;

const REAPER = fileURLToPath(new URL("reaper.py", import.meta.url));

/**
 * Runs a command to its end and counts all that it started; processes that outlive the command are ended and counted
 * too, or with `keep` left alone and uncounted. Throws with what the command said where its exit code is not 0.
 */
export async function measured(argv: readonly string[], output: string, how: Partial<Measuring> = {}): Promise<Measured> {
  const { env = {}, leftovers = "end" } = how;
  const child = spawn("python3", [REAPER, output, leftovers, ...argv], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let told = "";
  child.stdout.on("data", (chunk: Buffer) => {
    told += chunk;
  });
  const [code] = (await once(child, "close")) as [number | null];
  const [seconds = 0, cpuSeconds = 0, memoryKib = 0, descriptors = 0] = told.split(" ").map(Number);
  if (code === 0) return { ms: seconds * 1000, cpuMs: cpuSeconds * 1000, memoryMb: memoryKib / 1024, descriptors };
  const said = readFileSync(output, "utf8").trim().split("\n").slice(-5).join("\n");
  throw new Error(`${argv[0]} ended with exit code ${code}: ${said}`);
}

/** How a command is measured. */
interface Measuring {
  env: Record<string, string>;
  leftovers: "end" | "keep";
}
