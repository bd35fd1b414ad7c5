import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import path from "node:path";
import type { TestContext } from "node:test";
import { runLayout } from "../../lib/bucket/base/layout.ts";
import { catalogAllocations } from "../../lib/bucket/catalog/catalog.ts";
import { type Promotion, promotionsOf } from "../../lib/bucket/catalog/promotions.ts";
import { loadOpsConf } from "../../lib/bucket/workspace/settings.ts";
import { sshKeyFile } from "../../lib/bucket/workspace/ssh-key.ts";
import { Failure } from "../../lib/core/errors.ts";
import { build } from "../../lib/operation/build/build.ts";
import { deploy } from "../../lib/operation/deploy/deploy.ts";
import { NO_DEPLOY, type Progress } from "../../lib/run/progress.ts";
import { makeKey } from "../../scripts/private-sshd.ts";
import { temporaryFolder } from "./temporary.ts";
import { makeBucket, makeWorkspace, type TestBucket } from "./workspace.ts";

/** Addresses of this machine that act as three workers, each with a root of its own. */
export const HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.3"] as const;

/** How a deploy went for one job, for assertions. */
export interface JobOutcome {
  job: string;
  outcome: string;
  reason: string;
  stopped_in?: { batch: number; batches: number };
  allocations: { worker: string; action: string | null; outcome: string; error: string | null }[];
}

/** How a deploy ended; without an error it succeeded. */
export interface Deployed {
  error: Failure | undefined;
  jobs: JobOutcome[];
  reconciled: { job: string; worker: string; action: string; outcome: string; error: string | null }[];
  updateSeq: number;
  /** The whole result. */
  result: unknown;
  /** The folder of the run. */
  folder: string;
  /** What it said in Activity. */
  text: string;
}

/** A workspace in short: jobs by name, with more manifest fields and more files in their folders. */
export interface JobsSpec {
  [job: string]: { manifest?: Record<string, unknown>; files?: Record<string, string>; demands?: string };
}

/** Each target notes itself in data/history; with a file `fail-<job>-<target>` beside jobs/ it then fails. */
const MAKEFILE = `start stop restart reload:
	@mkdir -p data; echo "$@ $$NEW_VERSION" >> data/history
	@if [ -f ../../fail-$(notdir $(CURDIR))-$@ ]; then echo "$@ was told to fail" >&2; exit 3; fi
`;

/** How workers are reached, as workers.json says it. */
type Reach = (host: string) => Record<string, unknown>;

/** A bucket with workers, local ones unless it is told otherwise, that is built and deployed in this process. */
export class Deploys {
  readonly bucket: TestBucket;
  readonly workers: string;
  readonly #reach: Reach;
  /** Hears at every change how far the deploy is. */
  onProgress: (progress: Pick<Progress, keyof typeof NO_DEPLOY>) => void = () => {};

  private constructor(bucket: TestBucket, workers: string, reach: Reach) {
    this.bucket = bucket;
    this.workers = workers;
    this.#reach = reach;
  }

  static async make(t: Pick<TestContext, "after">, reach: Reach = () => ({ connection: "local" })): Promise<Deploys> {
    return new Deploys(await makeBucket(t), temporaryFolder(t), reach);
  }

  /** Writes the workspace anew and builds it; jobs run on all `hosts`. */
  async build(
    jobs: JobsSpec,
    options: { hosts?: readonly string[]; disabled?: Record<string, string[]>; conf?: string } = {},
  ): Promise<void> {
    const { hosts = HOSTS, disabled = {}, conf } = options;
    const files: Record<string, string> = {
      ...(conf !== undefined && { "ops.conf": conf }),
      "workspace/disabled.json": JSON.stringify({
        jobs: Object.fromEntries(Object.entries(disabled).map(([job, allocations]) => [job, { allocations }])),
      }),
    };
    const manifests: Record<string, Record<string, unknown>> = {};
    for (const [job, spec] of Object.entries(jobs)) {
      const demands = spec.demands === undefined ? {} : { demands: { job: spec.demands, hook: "check" } };
      const hooks = { check: { executed_on: ["cli"], ...demands } };
      manifests[job] = { version: "1.0.0", selectors: ["worker"], hooks, ...spec.manifest };
      files[`workspace/jobs/${job}/Makefile`] = MAKEFILE;
      for (const [name, text] of Object.entries(spec.files ?? {})) files[`workspace/jobs/${job}/${name}`] = text;
    }
    makeWorkspace(this.bucket.dir, {
      jobs: manifests,
      workers: hosts.map((host) => ({ host, root: path.join(this.workers, host), ...this.#reach(host) })),
      files,
    });
    await build(this.bucket.context("build"), {});
  }

  async deploy(params: Record<string, unknown> = {}, signal = new AbortController().signal): Promise<Deployed> {
    const said = this.bucket.activity.length;
    const context = this.bucket.context("deploy", signal);
    context.progress.report = ({ deploy = () => NO_DEPLOY }) => this.onProgress(deploy());
    let result: unknown;
    let error: Failure | undefined;
    try {
      result = await deploy(context, params);
    } catch (thrown) {
      if (!(thrown instanceof Failure)) throw thrown;
      error = thrown;
      result = thrown.details;
    } finally {
      // What a dry run has dropped must not wait for a later flush.
      if (params.dry_run) context.kv.flush();
      context.log.close();
    }
    const { jobs = [], reconciled = [], update_seq = -1 } = (result ?? {}) as Record<string, never[]>;
    const text = this.bucket.activity.slice(said).join("");
    const { folder } = runLayout(this.bucket.layout, context.run.id);
    return { error, jobs, reconciled, updateSeq: Number(update_seq), result, folder, text };
  }

  /** The bucket's folder on a worker. */
  folder(host: string): string {
    return path.join(this.workers, host, this.bucket.bucketId);
  }

  /** The targets that ran for a job on a worker, oldest first, without their versions. */
  targets(job: string, host: string): string[] {
    return this.history(job, host).map((line) => line.split(" ")[0] as string);
  }

  /** The same with the versions. */
  history(job: string, host: string): string[] {
    const file = path.join(this.folder(host), "jobs", job, "data", "history");
    return existsSync(file) ? readFileSync(file, "utf8").trim().split("\n") : [];
  }

  /** From now on a target fails on a worker, until what this answers is called. */
  fail(job: string, target: string, host: string): () => void {
    mkdirSync(this.folder(host), { recursive: true });
    const file = path.join(this.folder(host), `fail-${job}-${target}`);
    writeFileSync(file, "");
    return () => rmSync(file);
  }

  /** Makes a worker unreachable: nobody can sign in on its ssh port. Answers what makes it reachable again. */
  async cutOff(host: string): Promise<() => void> {
    const { db, layout } = this.bucket;
    const { settings } = await loadOpsConf(layout);
    const key = sshKeyFile(layout, settings);
    if (!existsSync(key)) {
      mkdirSync(path.dirname(key), { recursive: true, mode: 0o700 });
      makeKey(path.dirname(key), path.basename(key), "-t", "ed25519");
    }
    const server = createServer((socket) => socket.end("SSH-1.5-none\r\n").on("error", () => {}));
    server.listen(0, host).unref();
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const kept = db.get<object>("SELECT connection, ssh_port FROM worker WHERE worker_ip = ?", host);
    const reach = (connection: string, port: number | null) =>
      db.run("UPDATE worker SET connection = ?, ssh_port = ? WHERE worker_ip = ?", connection, port, host);
    reach("ssh", port);
    return () => {
      server.close();
      const { connection, ssh_port } = kept as { connection: string; ssh_port: number | null };
      reach(connection, ssh_port);
    };
  }

  promotion(job: string, host: string): Promotion {
    const all = catalogAllocations(this.bucket.db);
    const id = all.find((one) => one.job === job && one.worker === host)?.id ?? "";
    return promotionsOf(this.bucket.db, job)(id);
  }
}

/** What became of each job, for comparing at a glance. */
export function outcomes({ jobs }: Deployed): Record<string, string> {
  return Object.fromEntries(jobs.map((job) => [job.job, job.outcome]));
}
