import { catalogAllocations } from "../../lib/bucket/catalog/catalog.ts";
import { startAnew } from "../../lib/bucket/catalog/promotions.ts";
import { build } from "../../lib/operation/build/build.ts";
import { makeBucket, makeWorkspace, type TestBucket } from "./workspace.ts";

/** The workers of {@link simulatedBucket}, none of which exists. */
export const SIMULATED = ["a", "b", "c", "d", "e"];
const CHECK = { health_check: { checks: [{ type: "ssh", command: "true" }], wait: { attempts: 1, interval_seconds: 1 } } };
const demands = (job: string) => ({ executed_on: ["cli"], demands: { job, hook: "up" } });
const up = { executed_on: ["cli"] };
const tolerate = (share: string) => ({ tolerate: { unreachable: share } });
const EVENTS = ["pre_deploy", "after_allocation_started", "health_check", "post_deploy", "after_allocation_stopped"];

/** Jobs of every kind: with and without gate, hooks, demands, order and tolerance, wide and narrow, restored or left. */
const JOBS: Record<string, Record<string, unknown>> = {
  base: { ...CHECK, ...tolerate("20%"), max_concurrent_starts: 2, max_concurrent_upgrades: 2, hooks: { up } },
  plain: { ...tolerate("40%"), max_concurrent_starts: 0, max_concurrent_upgrades: 3 },
  quiet: { restart_policy: "never", after: ["plain"] },
  store: {
    ...CHECK,
    on_failure: "restore",
    restart_policy: "reload",
    restart_globs: ["extra"],
    max_concurrent_starts: 1,
    max_concurrent_upgrades: 2,
    hooks: { need: demands("base"), up },
  },
  hooked: {
    on_failure: "restore",
    max_concurrent_starts: 3,
    max_concurrent_upgrades: 2,
    hooks: { need: demands("base"), go: { executed_on: EVENTS } },
  },
  controlled: {
    ...CHECK,
    ...tolerate("40%"),
    on_failure: "restore",
    max_concurrent_upgrades: 2,
    hooks: { act: { executed_on: ["job_control"] } },
  },
  last: { restart_policy: "reload", max_concurrent_starts: 2, hooks: { need: demands("store") } },
};
/** Its files show the update sequence. */
export const SHOWS_SEQUENCE = "last";
const SEQUENCE = "workspace/jobs/last/sequence.tpl";

/** A built bucket that any number of simulations use one after the other. */
export async function simulatedBucket(t: Parameters<typeof makeBucket>[0]): Promise<TestBucket> {
  const bucket = await makeBucket(t);
  const names = Object.keys(JOBS);
  makeWorkspace(bucket.dir, {
    jobs: Object.fromEntries(names.map((name) => [name, { version: "1.0.0", selectors: ["worker"], ...JOBS[name] }])),
    workers: SIMULATED.map((host) => ({ host, connection: "local", root: `/srv/${host}` })),
    files: {
      ...Object.fromEntries(names.map((name) => [`workspace/jobs/${name}/conf`, "0"])),
      [SEQUENCE]: "{{ .UpdateSeq }} on {{ .WorkerIP }}\n",
    },
  });
  await build(bucket.context("build"), {});
  // Nobody pulls the plug of a simulation.
  bucket.db.script("PRAGMA synchronous = OFF");
  return bucket;
}

/** Brings the bucket back to where every simulation begins: nothing was ever deployed. */
export function startOver({ db }: TestBucket): void {
  db.script(
    `DELETE FROM hash; DELETE FROM job_files WHERE path = 'extra'; UPDATE bucket SET update_seq = 0;
     UPDATE allocations SET disabled = 0, removed = 0, new_version = '1.0.0'`,
  );
}

/**
 * What a build could have changed: other files, more or fewer of them and another version of some jobs, an allocation
 * that is disabled or removed, or is back. `text` is what nothing contained before.
 */
export function changeBucket({ db }: TestBucket, random: () => number, text: string): void {
  const chance = (share: number) => random() < share;
  const insert =
    "INSERT OR REPLACE INTO job_files (job, path, mode, sha256, size_bytes, content) VALUES (?1, ?2, ?3, ?4, length(?5), ?5)";
  for (const job of Object.keys(JOBS)) {
    const write = (path: string) => db.run(insert, job, path, chance(0.3) ? 0o755 : 0o644, text, Buffer.from(text));
    if (chance(0.4)) write("conf");
    if (chance(0.2)) db.run("DELETE FROM job_files WHERE job = ? AND path = 'extra'", job);
    if (chance(0.2)) write("extra");
    if (chance(0.15)) db.run("UPDATE allocations SET new_version = ? WHERE job = ?", `1.0.${text}`, job);
  }
  for (const what of ["disabled", "removed"] as const) {
    const all = catalogAllocations(db);
    const one = all[Math.floor(random() * all.length)];
    if (!one || !chance(0.4)) continue;
    db.run(`UPDATE allocations SET ${what} = ? WHERE alloc_id = ?`, one[what] ? 0 : 1, one.id);
    // As a build does it.
    if (what === "disabled" && one.disabled) startAnew(db, [one]);
  }
}
