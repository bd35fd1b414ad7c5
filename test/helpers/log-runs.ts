import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { uuidV7 } from "../../lib/codec/uuid.ts";

/**
 * Records a run that has ended, with a log of any kind, in a bucket of a stopped or running server; answers its id.
 * `times` are byte offsets and when what begins there was written, in milliseconds since the run began. Lines like
 * `job@worker | text` get the record of that place, all others are of ops.
 */
export function recordRun(root: string, bucket: string, log: string | Uint8Array, times: [number, number][] = []): string {
  const id = uuidV7();
  const folder = path.join(root, bucket, "logs", "runs", id);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeFileSync(path.join(folder, "activity.log"), log, { mode: 0o600 });
  const at = new Date().toISOString();
  const written = times.map(([offset, ms]) => `${offset} ${Date.parse(at) + ms}\n`);
  writeFileSync(path.join(folder, "activity.times"), written.join(""), { mode: 0o600 });
  writeFileSync(path.join(folder, "activity.places"), placesOf(log), { mode: 0o600 });
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

const PLACE = /^(?:([^@\s]+)@)?(\S+) ([|!]) /;
/** How a line of ops about a job begins. */
const OF_JOB = /^([^\s@:]+): /;

/** The record of the places of a log's lines, as a run writes it beside the log. */
function placesOf(log: string | Uint8Array): string {
  const text = Buffer.from(log as string).toString("latin1");
  const numbers = new Map<string, number>();
  const entries: string[] = [];
  let [offset, last] = [0, ""];
  for (const line of text.split("\n")) {
    const beginning = line.slice(0, 300);
    const [, job = "-", worker = "-", sign = ""] = PLACE.exec(beginning) ?? OF_JOB.exec(beginning) ?? [];
    const place = `${{ "|": "stdout", "!": "stderr" }[sign] ?? "ops"} ${job} ${worker}`;
    const number = numbers.get(place) ?? numbers.size;
    if (place !== last) entries.push(`${offset} ${number}${numbers.has(place) ? "" : ` ${place}`}\n`);
    numbers.set(place, number);
    last = place;
    offset += line.length + 1;
  }
  return entries.join("");
}
