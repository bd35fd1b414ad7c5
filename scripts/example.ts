// The examples as the demo and the tests deploy them: to this machine, with ports that are free here.

import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { Launcher } from "../lib/core/spawn.ts";
import { patience } from "./patience.ts";

const STOP_LIMIT_MS = 90_000;

/** What the demo and the tests need to know of a worker; workers.json may say more. */
export interface ExampleWorker {
  host: string;
  root: string;
}

/** A copy of an example with three workers on this machine. */
export class Example {
  /** The bucket to push. */
  readonly source: string;
  readonly workers: readonly ExampleWorker[];
  readonly #launcher = new Launcher(process.env);

  private constructor(source: string, workers: readonly ExampleWorker[]) {
    this.source = source;
    this.workers = workers;
  }

  /**
   * Copies an example to `<folder>/source`. Every worker gets a root of its own in `<folder>/workers`, and what
   * `changes` holds takes the place of what workers.json says of each. The `ports` ports that it needs are free ones.
   */
  static async copy(name: string, folder: string, ports: number, changes: object = {}): Promise<Example> {
    const source = path.join(folder, "source");
    cpSync(fileURLToPath(new URL(`../examples/${name}`, import.meta.url)), source, { recursive: true });
    const file = path.join(source, "workspace", "workers.json");
    const workers = (JSON.parse(readFileSync(file, "utf8")) as ExampleWorker[]).map((worker) => ({
      ...worker,
      ...changes,
      root: path.join(folder, "workers", worker.host),
    }));
    writeFileSync(file, `${JSON.stringify(workers, null, 2)}\n`);
    const hosts = workers.map((worker) => worker.host);
    const first = await freePorts(hosts, ports);
    const range = `port_min = "${first}"\nport_max = "${first + ports - 1}"\n`;
    writeFileSync(path.join(source, "workspace", "bucket.conf"), range);
    return new Example(source, workers);
  }

  /** Stops what was deployed of a bucket, through the runner on each worker; answers a sentence for each failure. */
  async stop(bucket: string): Promise<string[]> {
    const failures = await Promise.all(
      this.workers.flatMap((worker) => jobsOn(worker, bucket).map((job) => this.#stopJob(worker, bucket, job))),
    );
    return failures.filter((failure) => failure !== undefined);
  }

  async #stopJob(worker: ExampleWorker, bucket: string, job: string): Promise<string | undefined> {
    const runner = path.join(worker.root, bucket, "bin", "runner");
    const outcome = await this.#launcher.run(["sh", runner, job, "stop"], { timeoutMs: patience(STOP_LIMIT_MS) });
    if (outcome.exitCode === 0) return undefined;
    const why = outcome.stderr.trim() || outcome.stdout.trim() || outcome.reason;
    return `cannot stop ${job} on ${worker.host}: ${why}`;
  }
}

function jobsOn(worker: ExampleWorker, bucket: string): string[] {
  try {
    return readdirSync(path.join(worker.root, bucket, "jobs"));
  } catch {
    return [];
  }
}

/** The first of `count` consecutive ports that nothing listens on, on any of the hosts. */
export async function freePorts(hosts: readonly string[], count: number): Promise<number> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const first = 20_000 + Math.floor(Math.random() * 10_000);
    const wanted = Array.from({ length: count }, (_, index) => first + index);
    const free = await Promise.all(wanted.flatMap((port) => hosts.map((host) => isFree(host, port))));
    if (free.every(Boolean)) return first;
  }
  throw new Error("found no free ports on the loopback addresses");
}

function isFree(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once("error", () => resolve(false));
    probe.listen(port, host, () => probe.close(() => resolve(true)));
  });
}
