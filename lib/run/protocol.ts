import { Failure } from "../core/errors.ts";
import type { GroupIdentity } from "../core/process.ts";
import {
  boolean,
  check,
  described,
  type Infer,
  integer,
  list,
  object,
  oneOf,
  optional,
  type Shape,
  secret,
  string,
  withDefault,
  withExample,
} from "../core/shape.ts";
import type { OtherUser } from "../core/spawn.ts";
import type { Progress } from "./progress.ts";

const NAMES = list(string({ min: 1, max: 253 }), { min: 1, max: 1_000 });
const ALLOCATIONS = list(string({ min: 1, max: 400 }), { min: 1, max: 10_000 });
const JOBS = optional(described(NAMES, "Only these jobs"));
const flag = (description: string) => withDefault(described(boolean(), description), false);
/** A whole number; `otherwise` where it is left out. */
const whole = (otherwise: number, description: string, { min = 1, max }: { min?: number; max: number }) =>
  withDefault(described(integer({ min, max }), description), otherwise);
const count = (description: string) => optional(described(integer({ min: 1, max: 1_024 }), description));

/** Which workers a run is about: the given ones, or those with one of the labels. */
const WORKERS = {
  workers: optional(described(NAMES, "Only these workers")),
  labels: optional(described(NAMES, "Only workers with one of these labels")),
};
const WORKERS_OR_LABELS = { exclusive: [["workers", "labels"]] } as const;

/** What is read from workers. */
const ASKED = { ...WORKERS, concurrency: count("How many are asked at a time (default: ssh_concurrency of ops.conf)") };
const READING = object(ASKED, WORKERS_OR_LABELS);

const CONTROL = {
  allocations: optional(described(ALLOCATIONS, "Only the allocations on these workers; JOB@WORKER is one of them")),
  health_check: flag("Check the job's health after each batch, and go on only if the job is healthy"),
};
const TARGET = described(
  string({ pattern: /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/, means: "the name of a target", max: 100 }),
  "A target of the job's Makefile; start, stop, restart, reload and status in any case",
);

/** What the requests of job control say beside the job. */
export const JOB_CONTROL = {
  job_start: CONTROL,
  job_stop: { ...CONTROL, forget: flag("Let the next deploy start the stopped allocations like new ones") },
  job_restart: CONTROL,
  job_reload: CONTROL,
  job_status: CONTROL,
  job_run: { target: TARGET, ...CONTROL },
};
/** One of {@link JOB_CONTROL}. */
export type ControlKind = keyof typeof JOB_CONTROL;

/** A run of job control: it is about at least one job. */
function control<F extends typeof CONTROL>(summary: string, fields: F = CONTROL as F) {
  const jobs = described(NAMES, "The job, or several with commas between them");
  return { summary, parameters: object({ jobs, ...fields }) };
}

/** What a snapshot is made with. */
export const SNAPSHOT_WISH = {
  note: optional(described(string({ max: 500 }), "Why it is made; shown in lists")),
  recipient: optional(
    withExample(
      described(
        string({ pattern: /^x25519:[A-Za-z0-9_-]{48}$/, means: "a public key as `ops snapshot keygen` prints it" }),
        "Seal it for the owner of this public key (default: snapshot_recipient of ops.conf)",
      ),
      "x25519:R8r6pKc0E2jz1k3t8hJvH1o0mYy8tK5m0bqZ3y7Xw2Ej0rQf",
    ),
  ),
};

/** Whom the reader of a snapshot believes besides the key of the place itself. */
export const SNAPSHOT_TRUST = {
  signer: optional(
    withExample(
      described(
        string({ pattern: /^SHA256:[A-Za-z0-9+/]{43}$/, means: "a fingerprint, SHA256:…" }),
        "Take a snapshot that the key with this fingerprint has signed",
      ),
      "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU",
    ),
  ),
  unsigned: flag("Take a snapshot without a signature, as an older ops made it"),
};

const PASSPHRASE = withExample(
  described(secret(string({ min: 12, max: 1_024 })), "The passphrase of a sealed snapshot; never stored"),
  "correct horse battery staple",
);
/** What opens a sealed snapshot. */
export const SNAPSHOT_KEYS = {
  passphrase: optional(PASSPHRASE),
  key: optional(
    described(secret(string({ pattern: /^[A-Za-z0-9+/]{43}=$/, means: "32 bytes in base64" })), "The key of this one snapshot"),
  ),
};

/** What runs get besides their parameters, by kind: handed to the process of the run, and stored, logged and shown nowhere. */
const SECRETS: { [kind in RunKind]?: Record<string, Shape<string | undefined>> } = {
  snapshot_create: { passphrase: optional(PASSPHRASE) },
  snapshot_restore: SNAPSHOT_KEYS,
};
/** The secrets of a run by name; see {@link secretsApart}. */
export type RunSecrets = Readonly<Record<string, string>>;

/** The fields of a request that are secrets of the run. */
export function secretFields(kind: RunKind): Record<string, Shape<string | undefined>> {
  return SECRETS[kind] ?? {};
}

/** What was asked for, its secrets apart from the parameters. */
export function secretsApart(kind: RunKind, asked: RunParams): { params: RunParams; secrets: RunSecrets } {
  const isSecret = (name: string) => name in secretFields(kind);
  const given = Object.entries(asked).filter(([, value]) => value !== undefined);
  const parts = Object.groupBy(given, ([name]) => (isSecret(name) ? "secrets" : "params"));
  return {
    params: Object.fromEntries(parts.params ?? []),
    secrets: Object.fromEntries((parts.secrets ?? []).map(([name, value]) => [name, String(value)])),
  };
}

/**
 * What a run can be asked to do, and with which parameters: the one source of the routes that start runs, of the
 * commands that carry them out and of what the operations themselves accept.
 */
export const RUNS = {
  push: {
    summary: "Build what was pushed",
    parameters: object({ revision: string(), note: optional(string()), commit: optional(string()) }),
  },
  rollback: { summary: "Build the revision that was restored", parameters: object({ revision: string() }) },
  build: {
    summary: "Turn the source into the catalog that deploys work from",
    parameters: object({ purge_job_kv: flag("Also delete variables and secrets of jobs that no longer have an allocation") }),
  },
  deploy: {
    summary: "Bring the workers to the state of the catalog, in health-gated waves",
    parameters: object(
      {
        jobs: JOBS,
        build: flag("Build first"),
        dry_run: flag("Change nothing on any worker: show what a deploy would do, and why"),
        with_hooks: flag("In a dry run, run pre_deploy with DRY_RUN=1 and drop the values that it stores"),
        force: flag("Also roll out jobs whose deploy is complete"),
        force_only: optional(described(ALLOCATIONS, "Like force, but only on these workers; JOB@WORKER is one allocation")),
        sync_only: flag("Bring the files and promote them, but start, reload and restart nothing"),
        adopt: flag("Take over what lies on the workers already, where it equals the rendered files; nothing is run"),
        plan: optional(described(string({ min: 36, max: 36 }), "Carry out the plan of this dry run, or nothing; goes alone")),
      },
      {
        needs: [["with_hooks", "dry_run"]],
        exclusive: ["force", "force_only", "sync_only", "with_hooks"].map((other) => ["adopt", other] as const),
        alone: "plan",
      },
    ),
  },
  hooks: {
    summary: "Run a hook of a job here, once for each of its allocations",
    parameters: object({
      hook: described(string({ min: 1, max: 100 }), "The hook"),
      job: optional(described(string({ min: 1, max: 100 }), "Its job (default: the only one that has the hook)")),
      verbose: flag("Show how each script ended"),
    }),
  },
  health_check: {
    summary: "Check whether workers and jobs are healthy: an ssh round trip, probes, hooks",
    parameters: object({
      jobs: JOBS,
      wait: flag("Wait until they are healthy: workers 30 s, jobs as their manifests say"),
      verbose: flag("Show what each probe found, and how each script ended"),
    }),
  },
  drift: {
    summary: "Compare the files on the workers with the promoted ones",
    parameters: object({ jobs: JOBS, workers: WORKERS.workers }),
  },
  job_start: control("Start jobs on their workers"),
  job_stop: control("Stop jobs on their workers", JOB_CONTROL.job_stop),
  job_restart: control("Restart jobs on their workers"),
  job_reload: control("Let jobs on their workers read their configuration again"),
  job_status: control("Show the status of jobs on their workers"),
  job_run: control("Run a target of the Makefile of jobs on their workers", JOB_CONTROL.job_run),
  gc: {
    summary: "Remove the files of removed allocations from their workers, and deleted keys",
    parameters: object({
      retain_days: whole(0, "Keep deleted keys and old versions for that many days (default: 0)", { min: 0, max: 36_500 }),
    }),
  },
  snapshot_create: { summary: "Save the bucket's database, keys and source in one file", parameters: object(SNAPSHOT_WISH) },
  snapshot_restore: {
    summary: "Restore a snapshot",
    parameters: object({
      snapshot: described(string({ min: 1, max: 4_096 }), "Its name, or the path of its file"),
      with_source: flag("Also restore ops.conf, workspace/ and templates/"),
      ...SNAPSHOT_TRUST,
    }),
  },
  kv_rekey: {
    summary: "Change the key that secrets are sealed with, and seal all of them anew",
    parameters: object({ dry_run: flag("Change nothing: say what would be sealed anew") }),
  },
  ca_rotate: {
    summary: "Take the next step of a rotation of the CA: begin, issue, drop; a build and a deploy come after each",
    parameters: object({ dry_run: flag("Change nothing: show the steps, and what the next one waits for") }),
  },
  ssh_key_rotate: {
    summary: "Change the ssh key: install a new one on all workers and jump hosts, use it, and remove the one before",
    parameters: object({ concurrency: ASKED.concurrency, dry_run: flag("Change nothing: say what would be done, and where") }),
  },
  run_command: {
    summary: "Run a shell script on workers, batch after batch",
    parameters: object(
      {
        command: described(
          string({ min: 1, max: 256 * 1024, pattern: /^\s*\S[^\0]*$/, means: "a command without NUL characters" }),
          "The script, for sh, or for bash where its first line says so",
        ),
        ...WORKERS,
        concurrency: whole(1, "How many workers at a time; one after the other by default", { max: 1_024 }),
        health_check: flag("After each batch also wait until the jobs on its workers are healthy"),
        ignore_failure: flag("Go on, and succeed, even if workers fail"),
        timeout_seconds: whole(300, "How long the script may take on a worker (default 300)", { max: 86_400 }),
      },
      WORKERS_OR_LABELS,
    ),
  },
  worker_trust: {
    summary: "Record the host keys of workers, and of the jump hosts before them",
    parameters: object({ ...ASKED, force: flag("Replace known keys by those that the workers show now") }, WORKERS_OR_LABELS),
  },
  worker_facts: { summary: "Read facts of workers: system, processors, memory, disks, addresses, tools", parameters: READING },
  worker_uptime: { summary: "Read load and uptime of workers", parameters: READING },
  worker_sysstat: {
    summary: "Read the use of processors, memory, disks and network of workers over one second",
    parameters: READING,
  },
};

/** One of {@link RUNS}. */
export type RunKind = keyof typeof RUNS;
/** The names of {@link RUNS}. */
export const RUN_KINDS = Object.keys(RUNS) as RunKind[];
const REPEATABLE = ["deploy", "health_check", "run_command", "kv_rekey", "ca_rotate", "ssh_key_rotate"] as const;
/** The kinds of runs that can be repeated where they failed (`run/request.ts`). */
export type RepeatableKind = ControlKind | Extract<RunKind, `worker_${string}`> | (typeof REPEATABLE)[number];
/** True for a {@link RepeatableKind}. */
export function isRepeatable(kind: RunKind): kind is RepeatableKind {
  return kind in JOB_CONTROL || kind.startsWith("worker_") || REPEATABLE.some((one) => one === kind);
}
/** The parameters of a run as JSON, before they are checked. */
export type RunParams = Record<string, unknown>;
/** The checked parameters of a run of this kind, with the defaults. */
export type RunParameters<K extends RunKind> = Infer<(typeof RUNS)[K]["parameters"]>;

/** Checks the parameters of a run and adds the defaults. Throws `invalid_request` that names each wrong one. */
export function parametersOf<K extends RunKind>(kind: K, given: RunParams): RunParameters<K> {
  const checked = check(RUNS[kind].parameters as Shape<RunParameters<K>>, given);
  if (checked.ok) return checked.value;
  const sentence = checked.problems.map(({ path, message }) => `${path} ${message}`.trim()).join("; ");
  throw new Failure("invalid_request", `Cannot start ${kind}: ${sentence}`, { details: checked.problems });
}

/** control-plane.md, States and transitions: the four values of a run's status. */
export const RUN_STATUS = oneOf("running", "succeeded", "failed", "cancelled");
/** One of {@link RUN_STATUS}. */
export type RunStatus = Infer<typeof RUN_STATUS>;

/** What the server was told that its processes have to heed. */
export interface ServerMeans {
  /** Whom hook scripts, and the commands of local workers, run as; without one as the server itself. */
  hookUser?: OtherUser | undefined;
}

/** The orders a run process gets, over IPC and never in its arguments. */
export interface Orders extends ServerMeans {
  type: "orders";
  runId: string;
  bucketDir: string;
  bucketId: string;
  kind: RunKind;
  params: RunParams;
  secrets?: RunSecrets;
  revision: string | null;
  /** Who asked for it, in words. */
  by: string;
  /** Why an admin goes past what holds the run back. */
  breakGlass?: string | null;
}

/** A task of the server that writes a database or takes long: a process of the same kind does it, without a run. */
export type Task = { type: "task"; name: TaskName; input: unknown } & Pick<Orders, "bucketDir" | "bucketId"> & ServerMeans;
type TaskName = "init" | "job_secret" | "verify_snapshot" | "run_logs" | "job_logs" | "doctor";

/** Server to run process. */
export type ToWorker = Orders | { type: "cancel" } | Task;

/** How the operation ended; the supervisor alone decides the run's status from it. */
export interface OutcomeMessage {
  type: "outcome";
  ok: boolean;
  error: { code: string; message: string } | null;
  result: unknown;
}

/** Run process to server. */
export type FromWorker =
  | { type: "group_open"; group: GroupIdentity }
  | { type: "group_close"; group: GroupIdentity }
  | { type: "progress"; progress: Progress }
  | OutcomeMessage;

/** Between the request to stop and the forced end of everything (decisions: Runs, Cancel). */
export const CANCEL_WAIT_MS = 10_000;
