import type { RunKind } from "../../run/protocol.ts";
import type { Needs } from "../people/permission.ts";

type StartRole = Needs<{ body: unknown }, unknown>;

/** A change of a key is for administrators. Whoever may look at workers may ask for its dry run. */
const CHANGE_OF_KEY: StartRole = { role: "admin", or: { role: "operate", says: "for a dry run", when: isPlainDryRun } };

/** A deploy. A dry run that runs nothing of the bucket's only reads. */
const DEPLOY_OR_PLAN: StartRole = {
  role: "deploy",
  or: { role: "operate", says: "for a dry run without build and with_hooks", when: isPlainDryRun },
};

/**
 * Where a start of each kind is asked for over HTTP, behind the id of the bucket, and which role it needs. A name in braces is
 * a parameter of the run that stands in the path: its jobs, with commas between them, or the name of its snapshot.
 */
export const START_ROUTES: Readonly<Record<RunKind, { path: `/${string}`; role: StartRole }>> = {
  push: { path: "/push", role: "deploy" },
  rollback: { path: "/source/rollback", role: "deploy" },
  build: { path: "/build", role: "deploy" },
  deploy: { path: "/deploy", role: DEPLOY_OR_PLAN },
  hooks: { path: "/hooks", role: "deploy" },
  health_check: { path: "/health_check", role: "operate" },
  drift: { path: "/drift", role: "operate" },
  job_start: { path: "/jobs/{job}/start", role: "operate" },
  job_stop: { path: "/jobs/{job}/stop", role: "operate" },
  job_restart: { path: "/jobs/{job}/restart", role: "operate" },
  job_reload: { path: "/jobs/{job}/reload", role: "operate" },
  job_status: { path: "/jobs/{job}/status", role: "operate" },
  job_run: { path: "/jobs/{job}/run", role: "operate" },
  gc: { path: "/gc", role: "admin" },
  snapshot_create: { path: "/snapshots", role: "admin" },
  snapshot_restore: { path: "/snapshots/{name}/restore", role: "admin" },
  kv_rekey: { path: "/kv/rekey", role: CHANGE_OF_KEY },
  ca_rotate: { path: "/ca/rotate", role: CHANGE_OF_KEY },
  ssh_key_rotate: { path: "/secrets/ssh_key/rotate", role: CHANGE_OF_KEY },
  run_command: { path: "/run_command", role: "deploy" },
  worker_trust: { path: "/workers/trust", role: "admin" },
  worker_facts: { path: "/workers/facts", role: "operate" },
  worker_uptime: { path: "/workers/uptime", role: "operate" },
  worker_sysstat: { path: "/workers/sysstat", role: "operate" },
};

/** A build changes the catalog, and a hook may do anything. */
function isPlainDryRun({ body }: { body: unknown }): boolean {
  const { dry_run, build, with_hooks } = body as Partial<Record<"dry_run" | "build" | "with_hooks", boolean>>;
  return dry_run === true && build !== true && with_hooks !== true;
}
