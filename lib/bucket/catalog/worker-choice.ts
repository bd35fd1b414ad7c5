import { Failure } from "../../core/errors.ts";
import type { CatalogWorker } from "../base/model.ts";
import { requireKnown } from "../base/problems.ts";

/**
 * The workers that `workers` names, or that carry one of `labels`, in the order of the catalog; without either, all
 * workers that are still in workers.json. Throws `usage` where both are given, `unknown_name` for an unknown name.
 */
export function selectWorkers(
  all: readonly CatalogWorker[],
  wanted: { workers?: readonly string[] | undefined; labels?: readonly string[] | undefined },
): CatalogWorker[] {
  const { workers, labels } = wanted;
  if (workers && labels) throw new Failure("usage", "give workers or labels, not both");
  const present = all.filter((worker) => !worker.removed);
  const hostsOf = ({ host }: CatalogWorker) => [host.toLowerCase()];
  if (workers) return chosen(all, { kind: "worker", path: "workers", names: workers }, hostsOf);
  if (labels) return chosen(present, { kind: "label", path: "labels", names: labels }, (worker) => worker.labels);
  return present;
}

function chosen(
  all: readonly CatalogWorker[],
  wanted: { kind: string; path: string; names: readonly string[] },
  namesOf: (worker: CatalogWorker) => string[],
): CatalogWorker[] {
  const names = requireKnown("in the catalog", wanted, new Set(all.flatMap(namesOf)));
  return all.filter((worker) => namesOf(worker).some((name) => names.has(name)));
}
