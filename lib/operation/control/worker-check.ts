import type { CatalogWorker } from "../../bucket/base/model.ts";
import { Failure } from "../../core/errors.ts";
import { anything, check, object } from "../../core/shape.ts";
import { readWorkerJson } from "../../transport/ask/inspect.ts";
import type { OperationContext } from "../base/context.ts";
import type { Fleet } from "../base/fleet.ts";

const WORKER_JSON = object(
  { bucket_id: anything(), worker_id: anything(), update_seq: anything() },
  { unknown: "warn" },
);

/**
 * The worker sync check of job control: what worker.json on a worker says must be what the database remembers of the
 * last sync there. Throws `failed` with the reason and what to do, `unreachable` or `cancelled`.
 */
export async function checkWorker(context: OperationContext, fleet: Fleet, host: string): Promise<void> {
  const worker = fleet.worker(host);
  if (worker.syncedSeq === 0) throw refused(host, "nothing was deployed to it yet", "run `ops deploy`");
  const text = await readWorkerJson(await fleet.reach(host), context.signal);
  const wrong = text === "" ? "worker.json is missing there" : differenceOf(text, worker, context.run.bucketId);
  if (wrong !== undefined)
    throw refused(host, wrong, "its files may be others than the bucket knows: run `ops deploy --force`");
}

function differenceOf(text: string, { id, syncedSeq }: CatalogWorker, bucketId: string): string | undefined {
  const found = check(WORKER_JSON, parse(text));
  if (!found.ok) return "worker.json there cannot be read";
  const { bucket_id, worker_id, update_seq } = found.value;
  if (bucket_id !== bucketId) return "worker.json there is that of another bucket";
  if (worker_id !== id) return "worker.json there is that of another worker";
  if (update_seq === syncedSeq) return undefined;
  const seq = Number.isSafeInteger(update_seq) ? String(update_seq) : "no";
  return `worker.json there has update sequence ${seq}, ${syncedSeq} was synced last`;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function refused(host: string, why: string, advice: string): Failure {
  return new Failure("failed", `worker ${host} is not in sync: ${why}; ${advice}`);
}
