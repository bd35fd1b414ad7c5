import path from "node:path";

/** Every path of a bucket, named once (control-plane.md, Server root layout). All are absolute. */
export type Layout = ReturnType<typeof layoutOf>;

/** The three paths that a push replaces (control-plane.md, Source push 1). */
export const SOURCE_PATHS = ["ops.conf", "workspace", "templates"] as const;

/** Folders that are never part of a source: skipped when a build indexes files and when a push packs them. */
export const SKIPPED_FOLDERS: ReadonlySet<string> = new Set([".venv", "venv", "node_modules", "__pycache__"]);

/** The file of project and name that makes a folder below a server root a bucket, or an environment of the earlier variant. */
export type LabelFile = "bucket.json" | "env.json";

/** The paths of the bucket in `root`, which must be absolute. */
export function layoutOf(root: string, labels: LabelFile = "bucket.json") {
  const at = (...parts: string[]) => path.join(root, ...parts);
  return {
    root,
    /** `project` and `name`; only below a server root. */
    bucketJson: at(labels),
    opsConf: at("ops.conf"),
    workspace: at("workspace"),
    templates: at("templates"),
    workersJson: at("workspace", "workers.json"),
    disabledJson: at("workspace", "disabled.json"),
    /** What the server starts by itself, and when nothing is deployed. */
    schedulesJson: at("workspace", "schedules.json"),
    /** Where messages go. */
    notifyJson: at("workspace", "notify.json"),
    /** What `ops run_command` runs where nothing is typed. */
    commandFile: at("workspace", "command.sh"),
    bucketConf: at("workspace", "bucket.conf"),
    jobs: at("workspace", "jobs"),
    data: at("data"),
    database: at("data", "ops.db"),
    lock: at("data", "ops.lock"),
    takeover: at("data", "takeover.db"),
    logs: at("logs"),
    runs: at("logs", "runs"),
    ...secretsOf(at),
    ssh: at(".ssh"),
    knownHosts: at(".ssh", "known_hosts"),
    tmp: at("tmp"),
    /** Staged files: `tmp/workers/<worker>/jobs/<job>/` (hook-runtime.md, Execution model 6). */
    stagedWorkers: at("tmp", "workers"),
    /** Tells hooks how each worker is reached. */
    hookWorkers: at("tmp", "workers.json"),
    ...internalOf(at),
  };
}

/** What only ops itself reads and writes. */
function internalOf(at: (...parts: string[]) => string) {
  return {
    internal: at(".ops"),
    uploads: at(".ops", "uploads"),
    revisions: at(".ops", "revisions"),
    /** JSON Schemas for editors. */
    schemas: at(".ops", "schemas"),
    /** What is proposed, to be approved by others; part of no snapshot. */
    proposals: at(".ops", "proposals"),
    revisionsFile: at(".ops", "revisions.json"),
    journal: at(".ops", "journal.json"),
    /** Records, as below `runs`, of removed runs whose keys are still remembered. */
    startKeys: at(".ops", "start-keys"),
    /** What a server keeps of the schedules. */
    scheduleStates: at(".ops", "schedules.json"),
    /** What a server keeps of incidents, and of the messages about them. */
    messages: at(".ops", "messages"),
    snapshots: at(".ops", "snapshots"),
    /** Signs the snapshots of a bucket that stands alone; in none of them. */
    signingKey: at(".ops", "signing.key"),
    /** What was unpacked for a restore. */
    restores: at(".ops", "restores"),
  };
}

/** The keys of a bucket. */
function secretsOf(at: (...parts: string[]) => string) {
  return {
    secrets: at("secrets"),
    kvKey: at("secrets", "kv.key"),
    /** While the key is changed: the next one until it seals, then the one before until nothing is sealed with it. */
    kvKeyNew: at("secrets", "kv.key.new"),
    kvKeyOld: at("secrets", "kv.key.old"),
    caCertificate: at("secrets", "ca.crt"),
    caKey: at("secrets", "ca.key"),
    /** Both of them together, until each has its file. */
    caPending: at("secrets", "ca.new"),
    /** What the two become, and how far a rotation of the CA is. */
    caChange: at("secrets", "ca.change"),
  };
}

/** The settings of one job-resource selector: `bucket.jobs.conf` or `bucket.jobs.<selector>.conf`. */
export function jobResourcesFile(layout: Layout, selector: string): string {
  return path.join(layout.workspace, selector === "" ? "bucket.jobs.conf" : `bucket.jobs.${selector}.conf`);
}

/** The files of the run `id`, which must already be known to be a UUID. */
export function runLayout(layout: Layout, id: string) {
  // Put together plainly, because requests by the thousand ask for it: `join` would cost more than all they do else.
  const folder = `${layout.runs}/${id}`;
  return {
    folder,
    record: `${folder}/server-run.json`,
    activity: `${folder}/activity.log`,
    /** When its bytes were written. */
    activityTimes: `${folder}/activity.times`,
    /** Of which place its lines are. */
    activityPlaces: `${folder}/activity.places`,
    /** The durable record of a push and the run's copy of logs/ops.log. */
    opsLog: `${folder}/ops.log`,
    /** What a dry run of a deploy has planned. */
    plan: `${folder}/plan.json`,
    /** How a run ended whose server was gone by then; until that settles it. */
    outcome: `${folder}/outcome.json`,
  };
}
