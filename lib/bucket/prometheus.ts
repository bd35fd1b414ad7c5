import path from "node:path";
import { matchGlob } from "../codec/glob.ts";
import { parseYaml, type YamlValue } from "../codec/yaml-read.ts";
import { Failure, messageOf } from "../core/errors.ts";
import { anything, check, type Infer, isObject, list, object, optional, string } from "../core/shape.ts";
import { type CatalogFile, type CatalogJob, catalogAllocations, catalogFiles, catalogJobs } from "./catalog.ts";
import type { Database } from "./database.ts";
import type { JobSource } from "./jobs.ts";
import type { KvStore } from "./kv.ts";
import type { Problems } from "./problems.ts";
import { renderForJob } from "./staging.ts";

/** What a job has for Prometheus; `alerts` counts alerting rules, the other two files. */
interface PrometheusRow extends Record<string, string | number | null> {
  job: string;
  scrape: "yes" | null;
  alerts: number;
  runbooks: number;
  dashboards: number;
}

/** One entry of `scrape_configs`. */
export type ScrapeConfig = { [key: string]: YamlValue };

const FOLDER = "_prometheus/";
const SCRAPE = "scrape.yaml";
const SCRAPE_TEMPLATE = `${SCRAPE}.tpl`;
const IGNORE = "dashboards/.dashboardignore";
const IMPLICIT = "_implicit";
const PORT = /^ops:port\/([^/]+)(?:\/(.+))?$/;
const UTF8 = new TextDecoder("utf-8", { fatal: true });

const more = { unknown: "warn" } as const;
const STATIC = object({ targets: list(string()), labels: optional(anything()) }, more);
const CONFIG = object({ job_name: string({ min: 1 }), static_configs: optional(list(STATIC)) }, more);
const SCRAPES = list(CONFIG, { min: 1 });
const ANNOTATIONS = object({ runbook: optional(string()) }, more);
const RULE = object(
  { alert: optional(string()), record: optional(string()), expr: anything(), annotations: optional(ANNOTATIONS) },
  { ...more, exclusive: [["alert", "record"]] },
);
const GROUP = object({ name: string({ min: 1 }), rules: list(RULE) }, more);
const ALERTS = object({ groups: list(GROUP) }, more);
type Rule = Infer<typeof RULE>;

/** Says what is wrong with a file below `_prometheus/`. */
type Report = (file: string, message: string) => void;

/**
 * Checks what jobs have below `_prometheus/`; problems are `ErrInvalidJob`. A `scrape.yaml.tpl` is checked when it is
 * rendered, by {@link scrapeConfigs}.
 */
export function checkPrometheus(jobs: readonly JobSource[], problems: Problems): void {
  const names = new Map<string, string>();
  const alerts = new Map<string, string>();
  for (const {
    name,
    file: manifest,
    manifest: { ports },
    files: all,
  } of jobs) {
    const files = ownFiles(all);
    const report: Report = (file, message) =>
      problems.error("ErrInvalidJob", path.dirname(manifest), FOLDER + file, message);
    if (files.has(SCRAPE) && files.has(SCRAPE_TEMPLATE))
      report(SCRAPE, `there is ${SCRAPE_TEMPLATE} too: keep one of them`);
    const scrape = files.get(SCRAPE);
    const text = scrape && textOf(scrape, SCRAPE, report);
    if (text !== undefined) readScrape(name, text, [...ports.keys()], SCRAPE, names, report);
    for (const [file, rule] of rulesOf(files, report)) checkRule(name, file, rule, files, alerts, report);
  }
}

/** What each job of the catalog has for Prometheus, by name; jobs that have nothing are left out. */
export function prometheusRows(db: Database): PrometheusRow[] {
  return catalogJobs(db).flatMap(({ name: job }): PrometheusRow[] => {
    const files = ownFiles(catalogFiles(db, job));
    if (files.size === 0) return [];
    const scrape = files.has(SCRAPE) || files.has(SCRAPE_TEMPLATE) ? "yes" : null;
    const alerts = rulesOf(files, () => {}).filter(([, rule]) => rule.alert !== undefined).length;
    const runbooks = [...files.keys()].filter((file) => file.startsWith("runbooks/")).length;
    return [{ job, scrape, alerts, runbooks, dashboards: dashboardsOf(files).length }];
  });
}

/**
 * What Prometheus has to scrape: the lists of all jobs in one, `ops:port/…` and `ops:job` replaced by what they stand
 * for (docs/workspace.md, Prometheus). A job with such a target and no active allocation is left out. Throws
 * `ErrInvalidJob` for a template that renders to something else, `ErrKeyMissing` and `failed` where it cannot be
 * rendered.
 */
export function scrapeConfigs(
  db: Database,
  kv: KvStore,
  options: { jobs?: readonly string[] | undefined; reveal: boolean },
): ScrapeConfig[] {
  const active = Map.groupBy(
    catalogAllocations(db).filter(({ disabled, removed }) => !disabled && !removed),
    ({ job }) => job,
  );
  const names = new Map<string, string>();
  const wanted = options.jobs?.map((name) => name.toLowerCase());
  return catalogJobs(db)
    .filter(({ name }) => wanted?.includes(name) ?? true)
    .flatMap((job) => {
      const hosts = (active.get(job.name) ?? []).map(({ worker }) => worker);
      return configsOf(db, kv, job, options.reveal, names).flatMap((config) => expanded(config, job, hosts));
    });
}

function configsOf(
  db: Database,
  kv: KvStore,
  job: CatalogJob,
  reveal: boolean,
  names: Map<string, string>,
): ScrapeConfig[] {
  const files = ownFiles(catalogFiles(db, job.name));
  const template = files.get(SCRAPE_TEMPLATE);
  const file = template ? SCRAPE_TEMPLATE : SCRAPE;
  const report: Report = (at, message) => {
    throw new Failure("ErrInvalidJob", `job ${job.name}: ${FOLDER}${at}: ${message}`);
  };
  const plain = files.get(SCRAPE);
  const text = template ? renderForJob(template, job, kv, reveal) : plain && textOf(plain, SCRAPE, report);
  if (text === undefined) return [];
  return readScrape(job.name, text, Object.keys(job.ports), file, names, report);
}

/** The entries of a scrape file; what is wrong is reported, `names` are those of all jobs so far. */
function readScrape(
  job: string,
  text: string,
  ports: readonly string[],
  file: string,
  names: Map<string, string>,
  report: Report,
): ScrapeConfig[] {
  const value = parsed(text, file, SCRAPES, report);
  if (value === undefined) return [];
  for (const { job_name: given, static_configs: groups = [] } of value) {
    const name = withJob(given, job);
    if (names.has(name)) report(file, `job_name ${name} is that of job ${names.get(name)} too`);
    names.set(name, job);
    for (const target of groups.flatMap(({ targets }) => targets)) {
      const [, port] = PORT.exec(target) ?? [];
      if (port !== undefined && portNamed(port, ports, job) === undefined)
        report(file, `${target}: the manifest declares no such port`);
    }
  }
  const configs = value as ScrapeConfig[];
  for (const key of configs.flatMap((config) => Object.keys(config)))
    if (key.endsWith("_sd_configs")) report(file, `${key}: targets are known here: use static_configs`);
  return configs;
}

/** `_implicit` is the port that a job most likely tells its numbers on. */
function portNamed(name: string, ports: readonly string[], job: string): string | undefined {
  if (name !== IMPLICIT) return ports.find((port) => port === name);
  const likely = ports.filter((port) => port.endsWith("_metrics_port"));
  return (
    // Port names have no dashes.
    [`${job.replaceAll("-", "_")}_metrics_port`, "metrics_port"].find((port) => ports.includes(port)) ??
    (likely.length === 1 ? likely[0] : undefined)
  );
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
  return hosts
    .filter((host) => only === undefined || host === only)
    .map((host) => `${host.includes(":") ? `[${host}]` : host}:${port}`);
}

function withJob(text: string, job: string): string {
  return text.replaceAll("ops:job", job);
}

/** Every rule of the alert files, with its file. */
function rulesOf(files: ReadonlyMap<string, CatalogFile>, report: Report): [file: string, rule: Rule][] {
  return [...files].flatMap(([file, entry]): [string, Rule][] => {
    if (!/^alerts\/.*\.ya?ml$/.test(file)) return [];
    const text = textOf(entry, file, report);
    const value = text === undefined ? undefined : parsed(text, file, ALERTS, report);
    return (value?.groups ?? []).flatMap(({ rules }) => rules).map((rule) => [file, rule]);
  });
}

function checkRule(
  job: string,
  file: string,
  { alert, record, annotations }: Rule,
  files: ReadonlyMap<string, CatalogFile>,
  alerts: Map<string, string>,
  report: Report,
): void {
  if (alert === undefined && record === undefined) report(file, "a rule has neither alert nor record");
  if (alert !== undefined && alerts.has(alert)) report(file, `alert ${alert} is one of job ${alerts.get(alert)} too`);
  if (alert !== undefined) alerts.set(alert, job);
  if (annotations?.runbook === undefined) return;
  const runbook = `runbooks/${annotations.runbook.replace(/\.md$/, "")}.md`;
  if (!files.has(runbook)) report(file, `alert ${alert}: there is no ${runbook}`);
}

function dashboardsOf(files: ReadonlyMap<string, CatalogFile>): string[] {
  const ignored = (files.get(IGNORE)?.content.toString() ?? "").split("\n").map((line) => line.trim());
  return [...files.keys()]
    .filter((file) => file.startsWith("dashboards/"))
    .map((file) => file.slice("dashboards/".length))
    .filter((file) => !file.split("/").some((part) => part.startsWith(".")))
    .filter((file) => !ignored.some((glob) => glob !== "" && matchGlob(glob, file)));
}

function ownFiles(files: readonly CatalogFile[]): Map<string, CatalogFile> {
  const own = files.filter((file) => file.path.startsWith(FOLDER));
  return new Map(own.map((file) => [file.path.slice(FOLDER.length), file]));
}

function textOf(file: CatalogFile, at: string, report: Report): string | undefined {
  try {
    return UTF8.decode(file.content);
  } catch {
    report(at, "is not UTF-8 text");
    return undefined;
  }
}

function parsed<T>(text: string, file: string, shape: Parameters<typeof check<T>>[0], report: Report): T | undefined {
  try {
    const value = parseYaml(text);
    const checked = check(shape, value);
    if (checked.ok) return value as T;
    for (const { path: at, message } of checked.problems) report(file, at === "" ? message : `${at}: ${message}`);
  } catch (error) {
    if (error instanceof Failure && error.code === "ErrInvalidJob") throw error;
    report(file, messageOf(error));
  }
  return undefined;
}
