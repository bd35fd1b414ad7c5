import type { YamlValue } from "../../codec/config/yaml.ts";
import { matchGlob } from "../../codec/glob.ts";
import { Failure } from "../../core/errors.ts";
import { isObject } from "../../core/shape.ts";
import { bytesOf } from "../base/contents.ts";
import type { Database } from "../base/database.ts";
import type { CatalogFile, CatalogJob } from "../base/model.ts";
import { catalogAllocations, catalogFiles, catalogJobs } from "../catalog/catalog.ts";
import { jobsNamed } from "../catalog/choices.ts";
import { renderForJob } from "../catalog/staging.ts";
import type { KvStore } from "../kv/kv.ts";
import {
  decodedText,
  filesForPrometheus,
  PORT,
  PROMETHEUS_FOLDER,
  portNamed,
  type Report,
  readScrape,
  rulesOf,
  SCRAPE,
  SCRAPE_TEMPLATE,
  type ScrapeConfig,
  withJob,
} from "../workspace/prometheus.ts";

const IGNORE = "dashboards/.dashboardignore";

/** What a job has for Prometheus; `alerts` counts alerting rules, the other two files. */
interface PrometheusRow extends Record<string, string | number | null> {
  job: string;
  scrape: "yes" | null;
  alerts: number;
  runbooks: number;
  dashboards: number;
}

/**
 * What each of these jobs, or each job of the catalog, has for Prometheus, by name; jobs that have nothing are left out.
 * Throws `unknown_name`.
 */
export function prometheusRows(db: Database, jobs?: readonly string[]): PrometheusRow[] {
  return jobsNamed(catalogJobs(db), jobs).flatMap(({ name: job }): PrometheusRow[] => {
    const files = filesForPrometheus(catalogFiles(db, job, PROMETHEUS_FOLDER));
    if (files.size === 0) return [];
    const scrape = files.has(SCRAPE) || files.has(SCRAPE_TEMPLATE) ? "yes" : null;
    const alerts = rulesOf(files, () => {}).filter(([, rule]) => rule.alert !== undefined).length;
    const runbooks = [...files.keys()].filter((file) => file.startsWith("runbooks/")).length;
    return [{ job, scrape, alerts, runbooks, dashboards: dashboardsOf(files).length }];
  });
}

/**
 * What Prometheus has to scrape: the lists of all jobs in one, `ops:port/…` and `ops:job` replaced by what they stand
 * for (docs/workspace.md, Prometheus). An entry with such a target is left out where its job has no active allocation.
 * `secrets` gets the secrets that templates read. Throws `ErrInvalidJob` for a template that renders to something else, `ErrKeyMissing` and `failed` where it cannot be
 * rendered, `unknown_name` for a job that is not in the catalog.
 */
export function scrapeConfigs(
  db: Database,
  kv: KvStore,
  options: { jobs?: readonly string[] | undefined; reveal: boolean; secrets?: Set<string> },
): ScrapeConfig[] {
  const active = catalogAllocations(db).filter(({ disabled, removed }) => !disabled && !removed);
  const activeByJob = Map.groupBy(active, ({ job }) => job);
  const names = new Map<string, string>();
  return jobsNamed(catalogJobs(db), options.jobs).flatMap((job) => {
    const hosts = (activeByJob.get(job.name) ?? []).map(({ worker }) => worker);
    const configs = configsOf(db, kv, job, { ...options, names }) ?? [];
    return configs.flatMap((config) => expanded(config, job, hosts));
  });
}

/**
 * The entries of {@link PROMETHEUS_NAMESPACE}: the scrape configurations as they are written, with `<secret>` for each
 * secret; and by job the first of its scrape names. A job whose template asks for a key that is missing is left out and
 * given to `onMissing`. Throws like {@link scrapeConfigs} else.
 */
export function scrapeEntries(
  db: Database,
  kv: KvStore,
  onMissing: (failure: Failure) => void,
): { entries: Map<string, string>; scrapeNames: Map<string, string> } {
  const names = new Map<string, string>();
  const found = catalogJobs(db).flatMap((job): [string, ScrapeConfig[]][] => {
    try {
      const configs = configsOf(db, kv, job, { reveal: false, names });
      return configs ? [[job.name, configs]] : [];
    } catch (error) {
      if (!(error instanceof Failure && error.code === "ErrKeyMissing")) throw error;
      onMissing(error);
      return [];
    }
  });
  const entries = new Map([
    ["scrape_configs", JSON.stringify(found.flatMap(([, configs]) => configs))],
    ["scrape_jobs", found.map(([job]) => job).join(",")],
    ["scrape_jobs_length", String(found.length)],
    ...found.map(([job, configs]): [string, string] => [`scrape/${job}`, JSON.stringify(configs)]),
  ]);
  return { entries, scrapeNames: new Map([...names].map(([name, job]): [string, string] => [job, name]).reverse()) };
}

/** What may be told of the scrape configurations of several jobs. */
interface ScrapeReading {
  reveal: boolean;
  /** Gets the secrets that templates read. */
  secrets?: Set<string> | undefined;
  /** The names of scrape jobs so far, each with its job. */
  names: Map<string, string>;
}

/** The scrape configurations of a job as they are written; undefined where it has none. */
function configsOf(db: Database, kv: KvStore, job: CatalogJob, { names, ...how }: ScrapeReading): ScrapeConfig[] | undefined {
  const files = filesForPrometheus(catalogFiles(db, job.name, PROMETHEUS_FOLDER));
  const template = files.get(SCRAPE_TEMPLATE);
  const plain = files.get(SCRAPE);
  const report: Report = (at, message, place = "") => {
    const told = [PROMETHEUS_FOLDER + at, place, message].filter((part) => part !== "");
    throw new Failure("ErrInvalidJob", `job ${job.name}: ${told.join(": ")}`);
  };
  const rendered = template && renderForJob(template, job, kv, how);
  const text = rendered ?? (plain && decodedText(plain, SCRAPE, report));
  if (text === undefined) return undefined;
  const file = template ? SCRAPE_TEMPLATE : SCRAPE;
  return readScrape(text, { job: job.name, ports: Object.keys(job.ports), file, names, report });
}

function expanded(config: ScrapeConfig, job: CatalogJob, hosts: readonly string[]): ScrapeConfig[] {
  const groups = (config.static_configs ?? []) as { targets: string[]; labels?: YamlValue }[];
  if (hosts.length === 0 && groups.some(({ targets }) => targets.some((target) => PORT.test(target)))) return [];
  const job_name = withJob(String(config.job_name), job.name);
  if (config.static_configs === undefined) return [{ ...config, job_name }];
  const static_configs = groups.map(({ targets, labels, ...rest }) => ({
    ...rest,
    targets: targets.flatMap((target) => addresses(target, job, hosts)),
    ...(isObject(labels) && {
      labels: Object.fromEntries(Object.entries(labels).map(([key, text]) => [key, withJob(String(text), job.name)])),
    }),
  }));
  return [{ ...config, job_name, static_configs }];
}

function addresses(target: string, job: CatalogJob, hosts: readonly string[]): string[] {
  const [, name, only] = PORT.exec(target) ?? [];
  if (name === undefined) return [target];
  const port = job.ports[portNamed(name, Object.keys(job.ports), job.name) ?? ""];
  return hosts.filter((host) => only === undefined || host === only).map((host) => `${inAddress(host)}:${port}`);
}

/** A host in front of a port. */
export function inAddress(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}

/** The dashboards that are listed, by path below `dashboards/`: without hidden files and those to ignore. */
export function dashboardsOf(files: ReadonlyMap<string, CatalogFile>): string[] {
  const file = files.get(IGNORE);
  const ignored = (file ? bytesOf(file.content).toString() : "").split("\n").map((line) => line.trim());
  return [...files.keys()]
    .filter((path) => path.startsWith("dashboards/"))
    .map((path) => path.slice("dashboards/".length))
    .filter((path) => !path.split("/").some((part) => part.startsWith(".")))
    .filter((path) => !ignored.some((glob) => glob !== "" && matchGlob(glob, path)));
}
