import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { uuidV7 } from "../../lib/codec/uuid.ts";

/**
 * Records a run that has ended, with a log of any kind, in a bucket of a stopped or running server; answers its id.
 * `times` are byte offsets and when what begins there was written, in milliseconds since the run began.
 */
export function recordRun(root: string, bucket: string, log: string | Uint8Array, times: [number, number][] = []): string {
  const id = uuidV7();
  const folder = path.join(root, bucket, "logs", "runs", id);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeFileSync(path.join(folder, "activity.log"), log, { mode: 0o600 });
  const at = new Date().toISOString();
  const written = times.map(([offset, ms]) => `${offset} ${Date.parse(at) + ms}\n`);
  writeFileSync(path.join(folder, "activity.times"), written.join(""), { mode: 0o600 });
  const record = {
    id,
    bucket_id: bucket,
    origin: "server",
    kind: "build",
    params: {},
    status: "succeeded",
    created_at: at,
    started_at: at,
    finished_at: at,
    exit_code: 0,
    signal: null,
    error: null,
    result: null,
    audit: [{ at, action: "start", actor: { address: "127.0.0.1", via: "bearer" }, request_id: null }],
  };
  writeFileSync(path.join(folder, "server-run.json"), JSON.stringify(record), { mode: 0o600 });
  return id;
}
