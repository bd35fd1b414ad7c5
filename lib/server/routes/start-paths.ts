import type { RunKind } from "../../run/protocol.ts";
import type { Needs } from "../people/permission.ts";

/**
 * Where a start of each kind is asked for over HTTP, behind the id of the bucket. A name in braces is a parameter of the run
 * that stands in the path: its jobs, with commas between them, or the name of its snapshot.
 */
export const START_PATHS: Readonly<Record<RunKind, string>> = {
  push: "/push",
  rollback: "/source/rollback",
  build: "/build",
  deploy: "/deploy",
  hooks: "/hooks",
  health_check: "/health_check",
  drift: "/drift",
  job_start: "/jobs/{job}/start",
  job_stop: "/jobs/{job}/stop",
  job_restart: "/jobs/{job}/restart",
  job_reload: "/jobs/{job}/reload",
  job_status: "/jobs/{job}/status",
  job_run: "/jobs/{job}/run",
  gc: "/gc",
  snapshot_create: "/snapshots",
  snapshot_restore: "/snapshots/{name}/restore",
  kv_rekey: "/kv/rekey",
  ca_rotate: "/ca/rotate",
  ssh_key_rotate: "/secrets/ssh_key/rotate",
  run_command: "/run_command",
  worker_trust: "/workers/trust",
  worker_facts: "/workers/facts",
  worker_uptime: "/workers/uptime",
  worker_sysstat: "/workers/sysstat",
};

/** A change of a key is for administrators; what it would do may be asked by who may look at workers. */
const CHANGE_OF_KEY: Needs<{ body: unknown }, unknown> = {
  role: "admin",
  or: { role: "operate", says: "for a dry run", when: isPlainDryRun },
};

/** Which role a start of each kind needs. A dry run that runs nothing of the bucket's is a reading. */
export const START_ROLES: Readonly<Record<RunKind, Needs<{ body: unknown }, unknown>>> = {
  push: "deploy",
  rollback: "deploy",
  build: "deploy",
  deploy: { role: "deploy", or: { role: "operate", says: "for a dry run without build and with_hooks", when: isPlainDryRun } },
  hooks: "deploy",
  health_check: "operate",
  drift: "operate",
  job_start: "operate",
  job_stop: "operate",
  job_restart: "operate",
  job_reload: "operate",
  job_status: "operate",
  job_run: "operate",
  gc: "admin",
  snapshot_create: "admin",
  snapshot_restore: "admin",
  kv_rekey: CHANGE_OF_KEY,
  ca_rotate: CHANGE_OF_KEY,
  ssh_key_rotate: CHANGE_OF_KEY,
  run_command: "deploy",
  worker_trust: "admin",
  worker_facts: "operate",
  worker_uptime: "operate",
  worker_sysstat: "operate",
};

/** A build changes the catalog, and a hook may do anything. */
function isPlainDryRun({ body }: { body: unknown }): boolean {
  const { dry_run, build, with_hooks } = body as Partial<Record<"dry_run" | "build" | "with_hooks", boolean>>;
  return dry_run === true && build !== true && with_hooks !== true;
}
