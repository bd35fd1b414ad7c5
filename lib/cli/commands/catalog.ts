import { LAST_OUTCOMES } from "../../bucket/catalog/info.ts";
import { VIEW_NAMES, type ViewName } from "../../bucket/catalog/views.ts";
import { BUCKET_DIR, bucketDir, type Command, type Flag, listOf, numberOf } from "../base/flags.ts";

const JSON_FLAG: Flag = { name: "json", help: "Print JSON instead of a table" };
const JOBS: Flag = { name: "jobs", value: "A,B", help: "Only entries of these jobs" };
const WORKERS: Flag = { name: "workers", value: "A,B", help: "Only entries of these workers" };
const ACTIVE: Flag = { name: "active", help: "Leave out removed and disabled entries" };
const OUTCOME: Flag = {
  name: "outcome",
  value: "A,B",
  help: `Only allocations whose last action had one of these outcomes: ${LAST_OUTCOMES.join(", ")}`,
};
const DELETED: Flag = { name: "deleted", help: "Show deleted keys too" };

const VIEWS: Record<ViewName, { summary: string; flags: Flag[] }> = {
  workers: { summary: "Show the workers of the catalog", flags: [WORKERS, ACTIVE] },
  jobs: { summary: "Show the jobs of the catalog", flags: [JOBS, ACTIVE] },
  allocations: { summary: "Show which job is placed on which worker", flags: [JOBS, WORKERS, ACTIVE] },
  deployments: {
    summary: "Show how far each allocation is deployed, and how the last action on it went",
    flags: [JOBS, WORKERS, ACTIVE, OUTCOME],
  },
  hooks: { summary: "Show the hooks of the jobs and what they demand", flags: [JOBS] },
  ports: { summary: "Show the numbers of the jobs' ports", flags: [JOBS] },
  kv: { summary: "Show the keys of the key-value store, secrets as fingerprints", flags: [JOBS, ACTIVE, DELETED] },
  certs: { summary: "Show the certificates and when they end", flags: [JOBS, WORKERS] },
};

/** Commands that only read the catalog; they take no lock. */
export const CATALOG_COMMANDS: readonly Command[] = [
  {
    name: "info",
    summary: "Show a bucket: its id, its update sequence, how much it holds",
    flags: [BUCKET_DIR, JSON_FLAG],
    run: async (input) =>
      (await import("../bucket/catalog.ts")).infoCommand(bucketDir(input), input.switches.has("json")),
  },
  ...VIEW_NAMES.map(
    (name): Command => ({
      name: `cat ${name}`,
      summary: VIEWS[name].summary,
      flags: [BUCKET_DIR, ...VIEWS[name].flags, JSON_FLAG],
      async run(input) {
        const { catCommand } = await import("../bucket/catalog.ts");
        const query = {
          jobs: listOf(input, "jobs"),
          workers: listOf(input, "workers"),
          active: input.switches.has("active"),
          outcome: listOf(input, "outcome"),
          deleted: input.switches.has("deleted"),
        };
        return catCommand(bucketDir(input), name, query, input.switches.has("json"));
      },
    }),
  ),
  {
    name: "cat kv get",
    summary: "Show one key of the key-value store",
    operands: [
      { name: "namespace", help: "For example vars/job/web" },
      { name: "key", help: "The key" },
    ],
    flags: [BUCKET_DIR, { name: "reveal", help: "Show the value of a secret" }, JSON_FLAG],
    async run(input) {
      const { kvGetCommand } = await import("../bucket/catalog.ts");
      const [namespace = "", key = ""] = input.operands;
      const { switches } = input;
      return kvGetCommand(bucketDir(input), namespace, key, switches.has("reveal"), switches.has("json"));
    },
  },
  {
    name: "cat prometheus",
    summary: "Show which jobs have scrape configurations, alerts, runbooks and dashboards for Prometheus",
    flags: [BUCKET_DIR, JOBS, JSON_FLAG],
    async run(input) {
      const { prometheusCommand } = await import("../bucket/catalog.ts");
      return prometheusCommand(bucketDir(input), listOf(input, "jobs"), input.switches.has("json"));
    },
  },
  {
    name: "cat prometheus get",
    summary: "Print one file that a job has for Prometheus, as it was built",
    operands: [
      { name: "job", help: "The job" },
      { name: "path", help: "Below _prometheus/, for example alerts/disk.yaml" },
    ],
    flags: [BUCKET_DIR],
    async run(input) {
      const { prometheusGetCommand } = await import("../bucket/catalog.ts");
      const [job = "", path = ""] = input.operands;
      return prometheusGetCommand(bucketDir(input), job, path);
    },
  },
  {
    name: "cat prometheus scrape",
    summary: "Print what Prometheus has to scrape, as a YAML list for scrape_configs",
    flags: [
      BUCKET_DIR,
      JOBS,
      { name: "reveal", help: "Show secrets that templates read instead of <secret>" },
      { name: "json", help: "Print JSON instead of YAML" },
    ],
    async run(input) {
      const { prometheusScrapeCommand } = await import("../bucket/catalog.ts");
      const { switches } = input;
      return prometheusScrapeCommand(
        bucketDir(input),
        listOf(input, "jobs"),
        switches.has("reveal"),
        switches.has("json"),
      );
    },
  },
  {
    name: "kv set-secret",
    summary: "Store a secret of a job; its value is read from stdin, to the last byte",
    operands: [
      { name: "job", help: "The job that may read it" },
      { name: "key", help: "The key, as templates and hooks ask for it" },
    ],
    flags: [BUCKET_DIR, { name: "ttl", value: "SECONDS", help: "Delete the secret after that time (default: never)" }],
    async run(input) {
      const { setSecretCommand } = await import("../bucket/catalog.ts");
      const [job = "", key = ""] = input.operands;
      return setSecretCommand(bucketDir(input), job, key, numberOf(input, "ttl"));
    },
  },
];
