import type { RunKind } from "../../run/protocol.ts";

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
  run_command: "/run_command",
  worker_trust: "/workers/trust",
  worker_facts: "/workers/facts",
  worker_uptime: "/workers/uptime",
  worker_sysstat: "/workers/sysstat",
};
