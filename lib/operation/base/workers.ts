import type { CatalogWorker } from "../../bucket/base/model.ts";
import { catalogWorkers } from "../../bucket/catalog/catalog.ts";
import { selectWorkers } from "../../bucket/catalog/choices.ts";
import { bucketInfo } from "../../bucket/catalog/info.ts";
import { loadOpsConf } from "../../bucket/workspace/settings.ts";
import type { KeyFingerprint } from "../../codec/crypto/ssh-key.ts";
import { Failure } from "../../core/errors.ts";
import { countOf } from "../../core/plain-text.ts";
import { parametersOf } from "../../run/protocol.ts";
import { type HostTrust, NOT_TRUSTED, type TrustResult, trustWorkers } from "../../transport/trust/trust.ts";
import type { Operation, OperationContext } from "./context.ts";
import { sshSettingsOf } from "./fleet.ts";
import { concluded } from "./outcome.ts";

/**
 * Records the host keys of workers, and of the jump hosts before them, in `.ssh/known_hosts`. Without `workers` and
 * `labels` these are all workers of the catalog that are reached over ssh. Throws `failed`, with the whole result in the
 * details, when all have been asked and one gave no answer or, without `force`, has another key than the known one;
 * `failed` at once without any worker in the catalog.
 */
export const trust: Operation = async (context, params) => {
  const { concurrency, force, ...selection } = parametersOf("worker_trust", params);
  const selected = chooseWorkers(context, selection);
  const isAnySaid = selection.workers !== undefined || selection.labels !== undefined;
  const workers = isAnySaid ? selected : selected.filter(({ connection }) => connection === "ssh");
  const { settings } = await loadOpsConf(context.layout);
  const ssh = await sshSettingsOf(context.layout, settings, Boolean(context.server));
  const countOne = context.progress.counting("trust", workers.length);
  const result = await trustWorkers(workers, {
    ...ssh,
    launcher: context.launcher,
    signal: context.signal,
    force,
    concurrency: concurrency ?? ssh.concurrency,
    onResult(name, found) {
      tellTrust(context, name, found);
      if (name.startsWith("worker")) countOne();
    },
  });
  return concludeTrust(context, result);
};

/**
 * The workers that {@link selectWorkers} answers. Throws `failed`, with what to do first, where the catalog has no
 * worker.
 */
export function chooseWorkers({ db }: OperationContext, wanted: Parameters<typeof selectWorkers>[1]): CatalogWorker[] {
  if (bucketInfo(db).built_at === null)
    throw new Failure("failed", "the bucket has not been built yet: build it, then its workers are known");
  const selected = selectWorkers(catalogWorkers(db), wanted);
  if (selected.length > 0) return selected;
  throw new Failure("failed", "the catalog has no workers: list them in workspace/workers.json and build");
}

function tellTrust({ log }: OperationContext, name: string, found: HostTrust): void {
  const { outcome, error } = found;
  const now = fingerprintList(found.fingerprints);
  const before = fingerprintList(found.previous);
  if (outcome === "not_needed") log.info(`${name}: is this machine and needs no trust`);
  else if (outcome === "replaced") log.warn(`${name}: replaced ${before} by ${now}`);
  else if (outcome === "changed")
    log.error(`${name}: ${error}: known is ${before}, it shows ${now}; if that is right, trust it with force`);
  else if (NOT_TRUSTED.has(outcome)) log.error(`${name}: not trusted: ${error}`);
  else log.info(`${name}: ${outcome}, ${now}`);
}

function fingerprintList(fingerprints: readonly KeyFingerprint[]): string {
  return fingerprints.map(({ type, fingerprint }) => `${type} ${fingerprint}`).join(", ");
}

function concludeTrust({ log }: OperationContext, result: TrustResult): TrustResult {
  const { workers } = result;
  const bad = workers.filter(({ outcome }) => NOT_TRUSTED.has(outcome));
  if (workers.length === 0) log.info("no worker is reached over ssh: there is nothing to trust");
  else log.info(`${countOf(workers.length - bad.length, workers.length, "worker")} trusted`);
  const names = bad.map(({ worker, outcome }) => `${worker} (${outcome})`).join(", ");
  return concluded(result, `${countOf(bad.length, workers.length, "worker")} not trusted`, bad.length > 0 ? [names] : []);
}
