import path from "node:path";
import { parseYaml, type YamlValue } from "../../codec/config/yaml.ts";
import { decodeUtf8, textProblem } from "../../core/plain-text.ts";
import { anything, check, type Infer, isObject, list, object, optional, type Shape, string } from "../../core/shape.ts";
import { bytesOf } from "../base/contents.ts";
import type { CatalogFile } from "../base/model.ts";
import type { Problems } from "../base/problems.ts";
import type { JobSource } from "./jobs.ts";

/** One entry of `scrape_configs`. */
export type ScrapeConfig = { [key: string]: YamlValue };

/** The folder of a job's files for Prometheus. */
export const PROMETHEUS_FOLDER = "_prometheus/";
/** The scrape configuration of a job, below the folder. */
export const SCRAPE = "scrape.yaml";
/** The same as a template. */
export const SCRAPE_TEMPLATE = `${SCRAPE}.tpl`;
const IMPLICIT = "_implicit";
/** The rules that ops writes for a Prometheus, below its folder of rules. */
export const OPS_RULES = "ops/certs.yaml";
/** Where the job of a Prometheus gets folders. */
const FOLDERS_MADE = /^(rules(\/ops)?|consoles(\/runbooks|\/dashboards)?)(\.tpl)?$/;
/** A target that stands for the addresses of a port of the job: `ops:port/<name>[/<worker>]`. */
export const PORT = /^ops:port\/([^/]+)(?:\/(.+))?$/;

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

/** Says what is wrong with a file below `_prometheus/`, and at which line and column where the reader knows that. */
export type Report = (file: string, message: string, place?: string) => void;

/**
 * Checks what jobs have below `_prometheus/`; problems are `ErrInvalidJob`. A `scrape.yaml.tpl` is checked when it is
 * rendered, by `scrapeConfigs`.
 */
export function checkPrometheus(jobs: readonly JobSource[], problems: Problems): void {
  const names = new Map<string, string>();
  const alerts = new Map<string, string>();
  for (const { name: job, file: manifestFile, manifest, files: all } of jobs) {
    const files = filesForPrometheus(all);
    const ports = [...manifest.ports.keys()];
    const folder = path.dirname(manifestFile);
    const report: Report = (file, message, place = "") =>
      problems.error("ErrInvalidJob", `${folder}/${PROMETHEUS_FOLDER}${file}`, place, message);
    const scrape = files.get(SCRAPE);
    if (scrape && files.has(SCRAPE_TEMPLATE)) report(SCRAPE, `there is ${SCRAPE_TEMPLATE} too: keep one of them`);
    const text = scrape && decodedText(scrape, SCRAPE, report);
    if (text !== undefined) readScrape(text, { job, ports, file: SCRAPE, names, report });
    for (const [file, rule] of rulesOf(files, report)) checkRule(file, rule, { job, files, alerts, report });
    if (files.has("alerts/certs.yaml") && `${job}/certs.yaml` === OPS_RULES)
      report("alerts/certs.yaml", "ops writes rules of this name for a job ops: give the file another name");
    if (!isPrometheus(all)) continue;
    const unknown = "alerts get no runbook_url, since no port of the job is known as that of Prometheus";
    if (webPort(job, ports) === undefined) problems.warn(folder, "prometheus.yml", unknown);
    for (const { path: file } of all.filter((one) => FOLDERS_MADE.test(one.path)))
      problems.error("ErrInvalidJob", folder, file, "ops makes a folder of this name for a Prometheus: use another name");
  }
}

/** True for the files of a job that runs a Prometheus. */
export function isPrometheus(files: readonly Pick<CatalogFile, "path">[]): boolean {
  return files.some(({ path }) => path === "prometheus.yml" || path === "prometheus.yml.tpl");
}

/** The port on which the Prometheus of a job shows its pages. */
export function webPort(job: string, ports: readonly string[]): string | undefined {
  // Port names have no dashes.
  const own = job.replaceAll("-", "_");
  const usual = [`${own}_port_http`, `${own}_http`, "prometheus_port_http"].find((port) => ports.includes(port));
  return usual ?? (ports.length === 1 ? ports[0] : undefined);
}

/** A scrape file, for {@link readScrape}. */
interface ScrapeFile {
  job: string;
  /** The names of the job's ports. */
  ports: readonly string[];
  file: string;
  /** The names of scrape jobs so far, each with its job. */
  names: Map<string, string>;
  report: Report;
}

/** The slug of the runbook that a rule names, with or without `.md`. */
export function runbookSlug(name: string): string {
  return name.replace(/\.md$/, "");
}

/** The entries of a scrape file; what is wrong with them is reported. */
export function readScrape(text: string, { job, ports, file, names, report }: ScrapeFile): ScrapeConfig[] {
  const value = parsedYaml(text, { file, shape: SCRAPES, report });
  if (value === undefined) return [];
  for (const { labels } of value.flatMap(({ static_configs: groups = [] }) => groups))
    if (isObject(labels)) for (const [name, label] of Object.entries(labels)) labels[name] = String(label);
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
export function portNamed(name: string, ports: readonly string[], job: string): string | undefined {
  if (name !== IMPLICIT) return ports.find((port) => port === name);
  // Port names have no dashes.
  const usual = [`${job.replaceAll("-", "_")}_metrics_port`, "metrics_port"].find((port) => ports.includes(port));
  const likely = ports.filter((port) => port.endsWith("_metrics_port"));
  return usual ?? (likely.length === 1 ? likely[0] : undefined);
}

/** Replaces `ops:job` by the job's name. */
export function withJob(text: string, job: string): string {
  return text.replaceAll("ops:job", job);
}

/** Every rule of the alert files, with its file. */
export function rulesOf(files: Files, report: Report): [file: string, rule: Rule][] {
  return [...files].flatMap(([file, entry]): [string, Rule][] => {
    if (!/^alerts\/.*\.ya?ml$/.test(file)) return [];
    const text = decodedText(entry, file, report);
    const value = text === undefined ? undefined : parsedYaml(text, { file, shape: ALERTS, report });
    return (value?.groups ?? []).flatMap(({ rules }) => rules).map((rule) => [file, rule]);
  });
}

function checkRule(
  file: string,
  { alert, record, annotations }: Rule,
  { job, files, alerts, report }: Pick<ScrapeFile, "job" | "report"> & { files: Files; alerts: Map<string, string> },
): void {
  if (alert === undefined && record === undefined) report(file, "a rule has neither alert nor record");
  if (alert !== undefined && alerts.has(alert)) report(file, `alert ${alert} is one of job ${alerts.get(alert)} too`);
  if (alert !== undefined) alerts.set(alert, job);
  if (annotations?.runbook === undefined) return;
  const runbook = `runbooks/${runbookSlug(annotations.runbook)}.md`;
  if (!files.has(runbook)) report(file, `alert ${alert}: there is no ${runbook}`);
}

/** Files by path below `_prometheus/`. */
type Files = ReadonlyMap<string, CatalogFile>;

/** The files below the folder, by path within it. */
export function filesForPrometheus(files: readonly CatalogFile[]): Map<string, CatalogFile> {
  const own = files.filter((file) => file.path.startsWith(PROMETHEUS_FOLDER));
  return new Map(own.map((file) => [file.path.slice(PROMETHEUS_FOLDER.length), file]));
}

/** The text of a file; what is not UTF-8 is reported. */
export function decodedText(file: CatalogFile, at: string, report: Report): string | undefined {
  const text = decodeUtf8(bytesOf(file.content));
  if (text === undefined) report(at, "is not UTF-8 text");
  return text;
}

function parsedYaml<T>(text: string, { file, shape, report }: { file: string; shape: Shape<T>; report: Report }): T | undefined {
  let value: YamlValue;
  try {
    value = parseYaml(text);
  } catch (error) {
    const { place, what } = textProblem(error);
    return void report(file, what, place);
  }
  const checked = check(shape, value);
  if (checked.ok) return value as T;
  for (const { path: at, message } of checked.problems) report(file, at === "" ? message : `${at}: ${message}`);
  return undefined;
}
