import { LAST_OUTCOMES, STATES } from "../../bucket/catalog/states.ts";
import type { ViewName } from "../../bucket/catalog/views.ts";
import { BUCKET_DIR, type CommandRow, type Flag } from "../base/flags.ts";
import { inBucket } from "./in-bucket.ts";
import { olderSpelling } from "./older.ts";

const TABLE_AS_JSON: Flag = { name: "json", help: "Print JSON instead of a table" };
const ONLY_JOBS: Flag = { name: "jobs", value: "A,B", help: "Only entries of these jobs" };
const ONLY_WORKERS: Flag = { name: "workers", value: "A,B", help: "Only entries of these workers" };
const ACTIVE: Flag = { name: "active", help: "Leave out removed and disabled entries" };
const OUTCOME: Flag = {
  name: "outcome",
  value: "A,B",
  choices: LAST_OUTCOMES,
  help: `Only allocations whose last action had one of these outcomes: ${LAST_OUTCOMES.join(", ")}`,
};
const STATE: Flag = {
  name: "state",
  value: "A,B",
  choices: STATES,
  help: `Only allocations in one of these states: ${STATES.join(", ")}`,
};
const PASSPHRASE: Flag = {
  name: "passphrase-file",
  value: "FILE",
  help: "File of the passphrase that secrets are sealed with, of at least 12 characters",
};
const DELETED: Flag = { name: "deleted", help: "Show deleted and expired keys too" };

const VIEWS: Record<ViewName, { summary: string; flags: Flag[] }> = {
  workers: { summary: "Show the workers of the catalog", flags: [ONLY_WORKERS, ACTIVE] },
  jobs: { summary: "Show the jobs of the catalog", flags: [ONLY_JOBS, ACTIVE] },
  allocations: { summary: "Show which job is placed on which worker", flags: [ONLY_JOBS, ONLY_WORKERS, ACTIVE, STATE, OUTCOME] },
  deployments: {
    summary: "Show how far each allocation is deployed, and how the last action on it went",
    flags: [ONLY_JOBS, ONLY_WORKERS, ACTIVE, STATE, OUTCOME],
  },
  hooks: { summary: "Show the hooks of the jobs and what they demand", flags: [ONLY_JOBS] },
  ports: { summary: "Show the numbers of the jobs' ports", flags: [ONLY_JOBS] },
  kv: { summary: "Show the keys of the key-value store, secrets as fingerprints", flags: [ONLY_JOBS, ACTIVE, DELETED] },
  certs: { summary: "Show the certificates and when they end", flags: [ONLY_JOBS, ONLY_WORKERS] },
};

const CATS = Object.entries(VIEWS).map(([name, { summary, flags }]) =>
  inBucket({
    name: `cat ${name}`,
    summary,
    flags: [...flags, TABLE_AS_JSON],
    async work() {
      const { showView } = await import("../state/catalog.ts");
      return (bucket, input) => showView(name as ViewName, bucket, input);
    },
  }),
);

/** Commands that show the catalog, the key-value store and the logs. They take no lock, but for those that change secrets. */
export const READING_COMMANDS: readonly CommandRow[] = [
  inBucket({
    name: "info",
    summary: "Show a bucket: its id, its update sequence, how much it holds",
    flags: [TABLE_AS_JSON],
    work: async () => (await import("../state/catalog.ts")).showInfo,
  }),
  ...CATS,
  ...CATS.filter(({ name }) => name === "cat ports").map((ports) => olderSpelling("cat job_ports", ports)),
  inBucket({
    name: "cat kv get",
    summary: "Show one key of the key-value store",
    operands: [
      { name: "namespace", help: "For example vars/job/web" },
      { name: "key", help: "The key" },
    ],
    flags: [{ name: "reveal", help: "Show the value of a secret" }, TABLE_AS_JSON],
    work: async () => (await import("../state/catalog.ts")).showKey,
  }),
  {
    name: "cat prometheus",
    summary: "Show which jobs have scrape configurations, alerts, runbooks and dashboards for Prometheus",
    flags: [BUCKET_DIR, ONLY_JOBS, TABLE_AS_JSON],
    hereOnly: true,
    run: async (input) => (await import("../state/catalog.ts")).showPrometheus(input),
  },
  {
    name: "cat prometheus get",
    summary: "Print one file that a job has for Prometheus, as it was built",
    flags: [BUCKET_DIR],
    operands: [
      { name: "job", help: "The job" },
      { name: "path", help: "Below _prometheus/, for example alerts/disk.yaml" },
    ],
    noJson: true,
    hereOnly: true,
    run: async (input) => (await import("../state/catalog.ts")).printPrometheusFile(input),
  },
  {
    name: "cat prometheus scrape",
    summary: "Print what Prometheus has to scrape, as a YAML list for scrape_configs",
    flags: [
      BUCKET_DIR,
      ONLY_JOBS,
      { name: "reveal", help: "Show secrets that templates read instead of <secret>" },
      { name: "json", help: "Print JSON instead of YAML" },
    ],
    hereOnly: true,
    run: async (input) => (await import("../state/catalog.ts")).showScrape(input),
  },
  inBucket({
    name: "kv set-secret",
    changes: true,
    summary: "Store a secret of a job; its value is read from stdin, to the last byte, or typed unseen",
    operands: [
      { name: "job", help: "The job that may read it" },
      { name: "key", help: "The key, as templates and hooks ask for it" },
    ],
    flags: [{ name: "ttl", value: "SECONDS", help: "Delete the secret after that time (default: never)" }],
    work: async () => (await import("../state/catalog.ts")).storeSecret,
  }),
  inBucket({
    name: "kv delete-secret",
    changes: true,
    summary: "Delete a secret of a job",
    operands: [
      { name: "job", help: "Its job" },
      { name: "key", help: "The key" },
    ],
    work: async () => (await import("../state/catalog.ts")).removeSecret,
  }),
  {
    name: "kv export",
    summary: "Print the variables and secrets of jobs that no build writes, as JSON lines for ops kv import",
    flags: [BUCKET_DIR, ONLY_JOBS, PASSPHRASE, { name: "reveal", help: "Print secrets in clear" }],
    noJson: true,
    hereOnly: true,
    run: async (input) => (await import("../bucket/kv.ts")).exportKvCommand(input),
  },
  {
    name: "kv import",
    changes: true,
    summary: "Store variables and secrets of jobs from JSON lines on stdin, all or none",
    flags: [BUCKET_DIR, PASSPHRASE],
    hereOnly: true,
    run: async (input) => (await import("../bucket/kv.ts")).importKvCommand(input),
  },
  {
    name: "logs",
    summary: "Show the log lines of runs and of their commands on workers, or what a job logs there",
    operands: [{ name: "job", help: "Show the job's own logs on its workers", optional: true }],
    flags: [
      BUCKET_DIR,
      { name: "worker", value: "A,B", help: "Only these workers; without a job, - stands for lines about no worker" },
      { name: "follow", short: "f", help: "With a job: go on with new lines until Ctrl-C, an hour at most" },
      { name: "run", value: "ID", help: "Only lines of this run; the beginning or end of its id is enough" },
      { name: "job", value: "A,B", help: "Only lines about these jobs" },
      { name: "phase", value: "A,B", help: "Only lines of these phases, for example rollout" },
      { name: "event", value: "A,B", help: "Only these events, for example command_end" },
      { name: "tail", value: "N", help: "Only the last lines; with a job, those of each log (default: 100)" },
      { name: "run-dir", value: "DIR", help: "Read the logs in this folder instead" },
      {
        name: "format",
        value: "FORM",
        choices: ["human", "raw"],
        help: "Either human (default), or raw: the lines as they were written, with control characters escaped",
      },
      { name: "json", help: "Print one JSON object a line" },
    ],
    async run(input) {
      const logs = await import("../bucket/logs.ts");
      return input.operands.length > 0 ? logs.jobLogsCommand(input) : logs.logsCommand(input);
    },
    async remote(input, target) {
      const logs = await import("../remote/logs.ts");
      return input.operands.length > 0 ? logs.remoteJobLogs(input, target) : logs.remoteLogs(input, target);
    },
  },
];
