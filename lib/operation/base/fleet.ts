import type { Layout } from "../../bucket/base/layout.ts";
import type { CatalogWorker } from "../../bucket/base/model.ts";
import { loadOpsConf, type OpsConf } from "../../bucket/workspace/settings.ts";
import { oldKeyOf, sshKeyFile } from "../../bucket/workspace/ssh-key.ts";
import { Failure } from "../../core/errors.ts";
import { exists } from "../../core/files.ts";
import { counted } from "../../core/plain-text.ts";
import type { Redactor } from "../../core/redact.ts";
import { localTransport } from "../../transport/base/local.ts";
import {
  describeReceipt,
  type LeftListener,
  type Receipt,
  type Transport,
  WorkerFailure,
} from "../../transport/base/transport.ts";
import type { SshSetup } from "../../transport/ssh/folder.ts";
import type { SshSettings } from "../../transport/ssh/openssh.ts";
import { SshConnections } from "../../transport/ssh/ssh.ts";
import type { OperationContext } from "./context.ts";

/** How many jobs of a run are worked on at a time. */
export const JOBS_AT_ONCE = 16;
/** How many workers are asked at a time where no setting says how many. */
export const WORKERS_AT_ONCE = 32;
/** What a worker needs for deploys. */
export const TOOLS = ["make", "tar", "find", "sha256sum"];
/** The packages of Debian that have another name than their tool. */
const PACKAGES: Readonly<Record<string, string>> = { find: "findutils", sha256sum: "coreutils" };
const CHECK_LIMIT_MS = 60_000;
/** The longest time for login, with its repetitions, and check, counted from the worker's turn. */
const REACH_LIMIT_MS = 120_000;
const CHECK_TOOLS = `for tool in "$@"; do command -v "$tool" >/dev/null 2>&1 || printf '%s ' "$tool"; done`;

/** From the best to the worst. The worst receipt of a worker's commands is the worker's. */
const RECEIPTS: readonly Receipt[] = ["gone", "stopped", "killed", "remaining", "unreachable"];
const CONFIRMED: ReadonlySet<Receipt> = new Set(["gone", "stopped", "killed"]);
/** What is told of a service that may be stopped, by the target that was to start the service. */
const LEFT_DOWN = { restart: "may be stopped, not started again: `make restart` did not succeed", start: "not started again" };

/** What became of the commands that were running on the workers when a run was cancelled. */
export type CancelReceipts = ReturnType<Fleet["cancelReceipts"]>;

/** What a fleet needs of the context of an operation. */
type FleetContext = Pick<OperationContext, "layout" | "launcher" | "signal" | "progress" | "hookUser"> & {
  /** With `output`, what runs that are over have left on the workers is ended and told: only for who has the lock. */
  log: Pick<OperationContext["log"], "info" | "redactor"> & Partial<Pick<OperationContext["log"], "output">>;
  run: Pick<OperationContext["run"], "bucketId">;
  /** Connections outlive only the work of who holds the bucket's lock. */
  server?: OperationContext["server"];
};

/** The workers of a run, each reached once and kept open until the run ends. */
export class Fleet {
  /** By `<job>@<worker>`: the target that was to start the service and did not. */
  readonly down = new Map<string, keyof typeof LEFT_DOWN>();
  readonly #context: FleetContext;
  readonly #workers: Map<string, CatalogWorker>;
  readonly #opened = new Map<string, Promise<Transport>>();
  readonly #reached = new Map<string, Promise<Transport>>();
  readonly #receipts = new Map<string, Receipt>();
  #ssh: Promise<SshConnections> | undefined;

  constructor(context: FleetContext, workers: readonly CatalogWorker[]) {
    this.#context = context;
    this.#workers = new Map(workers.map((worker) => [worker.host, worker]));
  }

  /** All workers of the catalog. */
  get workers(): CatalogWorker[] {
    return [...this.#workers.values()];
  }

  /**
   * The ssh configuration of the run, made by the first call; undefined where no worker is reached over ssh. Throws
   * `failed` without a private key.
   */
  async sshConfigFile(): Promise<string | undefined> {
    if (!this.workers.some(({ connection }) => connection === "ssh")) return undefined;
    return (await this.#openSsh()).configFile;
  }

  /**
   * What connections beside those of the run are opened with; undefined where no worker is reached over ssh. The private
   * key need not be there.
   */
  async sshSetup(): Promise<SshSetup | undefined> {
    const workers = this.workers.filter(({ connection }) => connection === "ssh");
    if (workers.length === 0) return undefined;
    const { layout, server } = this.#context;
    const { settings } = await loadOpsConf(layout);
    return { workers, settings: await sshSettingsOf(layout, settings, Boolean(server)) };
  }

  /** What the catalog says about a worker. */
  worker(host: string): CatalogWorker {
    const worker = this.#workers.get(host);
    if (!worker) throw new Failure("failed", `Cannot find worker ${host} in the catalog: build the bucket again`);
    return worker;
  }

  /** The way to a worker. Throws `failed` without a private key for it. */
  open(host: string): Promise<Transport> {
    return kept(this.#opened, host, async () => this.#noting(await this.#open(host), this.#context.log.redactor));
  }

  /** Like `open`, for who keeps outputs from logs and errors: stderr is as the worker sends it, with its secrets. */
  async openUnmasked(host: string): Promise<Transport> {
    return this.#noting(await this.#open(host));
  }

  /**
   * The way to a worker; the first call checks that it has the tools that deploys need there.
   * Throws `failed`, `unreachable` or `ErrWorkerPrerequisites`, naming the worker and what to do.
   */
  reach(host: string): Promise<Transport> {
    const { progress } = this.#context;
    return kept(this.#reached, host, () =>
      progress.during({ reason: "connect", worker: host, detail: "connecting" }, REACH_LIMIT_MS, this.#reach(host)),
    );
  }

  /** Lets the next `reach` ask anew whether a worker can be reached. */
  forget(host: string): void {
    this.#reached.delete(host);
  }

  /** Tells and answers, for each worker of a cancelled run, what became of the commands there. Call it when they have ended. */
  cancelReceipts() {
    const workers = [...this.#receipts].map(([worker, receipt]) => ({ worker, receipt }));
    for (const { worker, receipt } of workers)
      this.#context.log.info(`${worker}: the command that was running there is ${describeReceipt(receipt)}`, { worker });
    const unconfirmed = workers.filter(({ receipt }) => !CONFIRMED.has(receipt)).length;
    if (workers.length > 0)
      this.#context.log.info(`cancelled on ${counted(workers.length, "worker")}, ${unconfirmed} of them unconfirmed`);
    // `unconfirmed`: on how many workers something may still run.
    return { workers, unconfirmed };
  }

  /**
   * A sentence for each service that the run leaves down, for the run's result. Nobody knows whether a restart that did
   * not succeed had already stopped its service.
   */
  leftDown(): { left_down?: string[] } {
    const sentences = [...this.down].sort().map(([place, target]) => `${place}: ${LEFT_DOWN[target]}`);
    return sentences.length === 0 ? {} : { left_down: sentences };
  }

  /** Closes every connection. */
  async [Symbol.asyncDispose](): Promise<void> {
    const opened = [...this.#opened.values()];
    await Promise.all(opened.map((one) => one.then((transport) => transport.close()).catch(() => {})));
    await this.#ssh?.then((ssh) => ssh.close()).catch(() => {});
  }

  async #open(host: string): Promise<Transport> {
    const { run, launcher, hookUser } = this.#context;
    const worker = this.worker(host);
    if (worker.connection === "local") return localTransport(worker, run.bucketId, launcher, hookUser);
    return (await this.#openSsh()).transport(worker, run.bucketId);
  }

  async #reach(host: string): Promise<Transport> {
    const transport = await this.open(host);
    const outcome = await transport.script(CHECK_TOOLS, {
      args: TOOLS,
      signal: this.#context.signal,
      timeoutMs: CHECK_LIMIT_MS,
      isShort: true,
    });
    const { stdout, stderr, reason, exitCode } = outcome;
    const failed = `Cannot run a script on {workers}: ${stderr.trim() || reason}`;
    if (exitCode !== 0) throw new WorkerFailure("failed", host, failed, { lasts: reason === "exit" });
    const missing = stdout.trim().split(" ").filter(Boolean);
    if (missing.length === 0) return transport;
    const install = `apt-get install ${missing.map((tool) => PACKAGES[tool] ?? tool).join(" ")}`;
    const lacking = `Cannot run jobs on {workers}: not installed there: ${missing.join(", ")}; on Debian: \`${install}\``;
    throw new WorkerFailure("ErrWorkerPrerequisites", host, lacking);
  }

  #openSsh(): Promise<SshConnections> {
    this.#ssh ??= this.#prepareSsh();
    return this.#ssh;
  }

  async #prepareSsh(): Promise<SshConnections> {
    const { layout, launcher, server } = this.#context;
    const { settings } = await loadOpsConf(layout);
    const workers = this.workers.filter(({ connection }) => connection === "ssh");
    return await SshConnections.open(await sshSettingsOf(layout, settings, Boolean(server)), workers, launcher, {
      keeping: server === undefined ? undefined : { seconds: settings.sshKeepSeconds, server },
      listener: this.#leftListener(),
    });
  }

  #leftListener(): LeftListener | undefined {
    const { log } = this.#context;
    if (!log.output) return undefined;
    return {
      onLine: (worker, line, stream) => log.output?.(undefined, worker, line, { stream, phase: "left" }),
      onSentence: (sentence) => log.info(sentence),
      secrets: log.redactor,
    };
  }

  /**
   * Keeps the receipts of all cancelled commands, and with a redactor masks the stderr of every command before an error
   * quotes a part of it.
   */
  #noting(transport: Transport, redactor?: Redactor): Transport {
    const { host } = transport.worker;
    return {
      ...transport,
      script: async (text, options) => {
        const outcome = await transport.script(text, { secrets: redactor, ...options });
        if (outcome.reason === "cancelled" && outcome.receipt && this.#context.signal.aborted) this.#note(host, outcome.receipt);
        return redactor ? { ...outcome, stderr: redactor.sentence(outcome.stderr) } : outcome;
      },
    };
  }

  #note(host: string, receipt: Receipt): void {
    if (!CONFIRMED.has(receipt)) this.#context.progress.unconfirmed();
    const before = this.#receipts.get(host) ?? receipt;
    const worst = Math.max(RECEIPTS.indexOf(before), RECEIPTS.indexOf(receipt));
    this.#receipts.set(host, RECEIPTS[worst] as Receipt);
  }
}

/** How a bucket's workers are reached over ssh. The key before is offered too, until a rotation has come to its end. */
export async function sshSettingsOf(layout: Layout, settings: OpsConf, isServed: boolean): Promise<SshSettings> {
  const keyFile = sshKeyFile(layout, settings);
  const oldKeyFile = oldKeyOf(keyFile);
  return {
    user: settings.sshUser,
    port: settings.sshPort,
    keyFile,
    ...((await exists(oldKeyFile)) && { oldKeyFile }),
    knownHostsFile: layout.knownHosts,
    options: settings.sshOptions,
    concurrency: settings.sshConcurrency,
    useSudo: settings.useSudo,
    reattachSeconds: settings.sshReattachSeconds,
    spoolBytes: settings.runOutputLimit,
    isServed,
  };
}

function kept<T>(known: Map<string, Promise<T>>, key: string, make: () => Promise<T>): Promise<T> {
  let made = known.get(key);
  if (!made) {
    made = make();
    made.catch(() => {});
    known.set(key, made);
  }
  return made;
}
