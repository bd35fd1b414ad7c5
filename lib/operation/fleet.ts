import type { CatalogWorker } from "../bucket/catalog.ts";
import { Failure } from "../core/errors.ts";
import { openTransport } from "../transport/open.ts";
import type { Transport } from "../transport/transport.ts";
import type { OperationContext } from "./context.ts";

const TOOLS = ["make", "tar", "find", "sha256sum"];
const CHECK_LIMIT_MS = 60_000;
const CHECK_TOOLS = `for tool in "$@"; do command -v "$tool" >/dev/null 2>&1 || printf '%s ' "$tool"; done`;

/** The workers of a run, each reached once and kept open until the run ends. */
export class Fleet {
  readonly #context: OperationContext;
  readonly #workers: Map<string, CatalogWorker>;
  readonly #reached = new Map<string, Promise<Transport>>();

  constructor(context: OperationContext, workers: readonly CatalogWorker[]) {
    this.#context = context;
    this.#workers = new Map(workers.map((worker) => [worker.host, worker]));
  }

  /** What the catalog says about a worker. */
  worker(host: string): CatalogWorker {
    const worker = this.#workers.get(host);
    if (!worker)
      throw new Failure("failed", `Cannot find worker ${host} in the catalog: build the bucket again`);
    return worker;
  }

  /**
   * The way to a worker; the first call checks that it has the tools that deploys need there.
   * Throws `failed` or `ErrWorkerPrerequisites`, naming the worker and what to do.
   */
  reach(host: string): Promise<Transport> {
    let reached = this.#reached.get(host);
    if (!reached) {
      reached = this.#open(host);
      reached.catch(() => {});
      this.#reached.set(host, reached);
    }
    return reached;
  }

  /** Closes every connection. */
  async close(): Promise<void> {
    for (const reached of this.#reached.values())
      await reached.then((transport) => transport.close()).catch(() => {});
  }

  async #open(host: string): Promise<Transport> {
    const { run, launcher, signal } = this.#context;
    const transport = await openTransport(this.worker(host), run.bucketId, launcher);
    const outcome = await transport.script(CHECK_TOOLS, { args: TOOLS, signal, timeoutMs: CHECK_LIMIT_MS });
    const missing = outcome.stdout.trim();
    if (outcome.exitCode !== 0)
      throw new Failure(
        "failed",
        `Cannot run a script on worker ${host}: ${outcome.stderr.trim() || outcome.reason}`,
      );
    if (missing !== "")
      throw new Failure("ErrWorkerPrerequisites", `worker ${host} lacks ${missing}: install it there`);
    return transport;
  }
}
