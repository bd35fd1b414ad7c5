// Buckets for benchmarks, and the commands on them as an operator types them.
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { initBucket } from "../lib/bucket/workspace/init.ts";
import { COMMAND } from "../scripts/local-server.ts";
import { type Measured, measured, type Reach } from "./contenders.ts";

/** A bucket in a folder, with the workers of a fleet over ssh, each with a root of its own below `roots`. */
export class BenchBucket {
  readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  static async make(folder: string, reach: Reach, roots: string): Promise<BenchBucket> {
    const bucket = new BenchBucket(folder);
    await initBucket(folder, { source: true });
    const { hosts, user, port, keyFile, knownHostsFile, options } = reach;
    const workers = hosts.map((host) => ({ host, root: path.join(roots, host), labels: ["web"] }));
    bucket.write("workspace/workers.json", JSON.stringify(workers));
    const table = Object.entries(options).map(([name, value]) => `${name} = "${value}"\n`);
    bucket.write("ops.conf", `ssh_user = "${user}"\nssh_port = ${port}\n[ssh_options]\n${table.join("")}`);
    mkdirSync(path.join(folder, ".ssh"), { recursive: true, mode: 0o700 });
    copyFileSync(keyFile, path.join(folder, "secrets/worker.key"));
    copyFileSync(knownHostsFile, path.join(folder, ".ssh/known_hosts"));
    return bucket;
  }

  /** A bucket whose workers are folders of this machine. */
  static async local(folder: string, count: number): Promise<BenchBucket> {
    const bucket = new BenchBucket(folder);
    await initBucket(folder, { source: true });
    const workers = Array.from({ length: count }, (_, index) => {
      return {
        host: `10.0.${Math.floor(index / 250)}.${1 + (index % 250)}`,
        connection: "local",
        root: path.join(folder, `w${index}`),
      };
    });
    bucket.write("workspace/workers.json", JSON.stringify(workers));
    return bucket;
  }

  /** Writes a file of the bucket's source. */
  write(file: string, text: string | Uint8Array): void {
    const target = path.join(this.folder, file);
    mkdirSync(path.dirname(target), { recursive: true });
    writeFileSync(target, text);
  }

  /** Runs a command to its end, unmeasured. */
  run(...args: string[]): void {
    const [program, ...rest] = this.#argv(args) as [string, ...string[]];
    const { status, stderr } = spawnSync(program, rest, { encoding: "utf8", maxBuffer: 1024 ** 3 });
    if (status !== 0) throw new Error(`ops ${args.join(" ")}: ${stderr.slice(-2_000)}`);
  }

  /** What a command takes, with every process that it starts, also those that outlive it: they are ended. */
  measured(...args: string[]): Promise<Measured> {
    return measured(this.#argv(args), `${this.folder}.output`);
  }

  /** What a command takes over the connections of the same command right before. The CPU leaves those connections out. */
  async warm(...args: string[]): Promise<Measured> {
    const again = () => measured(this.#argv(args), `${this.folder}.output`, { leftovers: "keep" });
    await again();
    return await again();
  }

  #argv(args: readonly string[]): string[] {
    return [...COMMAND, ...args, "--bucket-dir", this.folder];
  }
}
