import type { CatalogJob } from "../../bucket/base/model.ts";
import { mapAll } from "../../core/async.ts";
import { type ProbeResult, probe } from "../../transport/ask/probes.ts";
import type { OperationContext } from "../base/context.ts";
import { collectEvidence } from "../base/evidence.ts";
import type { Fleet } from "../base/fleet.ts";
import type { HookPass, HookSession } from "../hooks/hooks.ts";

/** What a health check does outside the bucket's database; as the effects of a deploy, each throws where it did not succeed. */
export type GateEffects = ReturnType<typeof gateEffects>;

/** The effects of a real health check. Each of their waits shows in the run's progress. */
export function gateEffects(context: OperationContext, fleet: Fleet, hooks: HookSession) {
  return {
    /** Carries out the checks of a job's health check on a worker, once. */
    probe: (job: CatalogJob, worker: string) => probeOnce(context, fleet, job, worker),
    /** Looks at a job on a worker after its health check failed; see {@link collectEvidence}. */
    evidence: (job: CatalogJob, worker: string) => collectEvidence(context, fleet, job.name, worker),
    /** Runs scripts on the control host. Throws `ErrHookFailed` when one fails. */
    hooks: (pass: HookPass) => hooks.run(pass),
  };
}

async function probeOnce(context: OperationContext, fleet: Fleet, job: CatalogJob, host: string): Promise<ProbeResult[]> {
  const { kv, run, signal, progress } = context;
  const checks = job.healthCheck?.checks ?? [];
  // A health check has asked whether the worker answers and asks little else: more questions, and a session for each
  // probe, would be most of its work.
  const isCheck = run.kind === "health_check";
  return await mapAll(checks, checks.length, async (check) => {
    const timeoutMs = check.timeoutSeconds * 1000;
    const carryOut = async (onBegin: () => void) => {
      if (check.type === "ssh") {
        const transport = await (isCheck ? fleet.open(host) : fleet.reach(host));
        return await probe({ ...check, transport, timeoutMs, onBegin, ...(isCheck && { isShort: "where_free" }) }, signal);
      }
      const port = job.ports[check.port] as number;
      const ca = kv.get("ops/worker", "certs/ca.crt");
      const trust = check.type === "http" && ca !== undefined ? { ca } : {};
      onBegin();
      return await probe({ ...check, ...trust, host, port, timeoutMs }, signal);
    };
    const wait = { reason: "gate", job: job.name, worker: host, detail: `${check.type} probe` } as const;
    return await progress.during(wait, timeoutMs, carryOut);
  });
}
