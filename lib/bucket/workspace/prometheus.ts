import path from "node:path";
import { parseYaml, type YamlValue } from "../../codec/config/yaml.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { anything, check, type Infer, list, object, optional, string } from "../../core/shape.ts";
import type { CatalogFile } from "../base/model.ts";
import type { Problems } from "../base/problems.ts";
import type { JobSource } from "./jobs.ts";

/** One entry of `scrape_configs`. */
export type ScrapeConfig = { [key: string]: YamlValue };

/** The folder of a job's files for Prometheus. */
export const FOLDER = "_prometheus/";
/** The scrape configuration of a job, below the folder. */
export const SCRAPE = "scrape.yaml";
/** The same as a template. */
export const SCRAPE_TEMPLATE = `${SCRAPE}.tpl`;
const IMPLICIT = "_implicit";
/** A target that stands for the addresses of a port of the job: `ops:port/<name>[/<worker>]`. */
export const PORT = /^ops:port\/([^/]+)(?:\/(.+))?$/;
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
export type Report = (file: string, message: string) => void;

/**
 * Checks what jobs have below `_prometheus/`; problems are `ErrInvalidJob`. A `scrape.yaml.tpl` is checked when it is
 * rendered, by `scrapeConfigs`.
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

/** The entries of a scrape file; what is wrong is reported, `names` are those of all jobs so far. */
export function readScrape(
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
export function portNamed(name: string, ports: readonly string[], job: string): string | undefined {
  if (name !== IMPLICIT) return ports.find((port) => port === name);
  const likely = ports.filter((port) => port.endsWith("_metrics_port"));
  return (
    // Port names have no dashes.
    [`${job.replaceAll("-", "_")}_metrics_port`, "metrics_port"].find((port) => ports.includes(port)) ??
    (likely.length === 1 ? likely[0] : undefined)
  );
}

/** Replaces `ops:job` by the job's name. */
export function withJob(text: string, job: string): string {
  return text.replaceAll("ops:job", job);
}

/** Every rule of the alert files, with its file. */
export function rulesOf(files: ReadonlyMap<string, CatalogFile>, report: Report): [file: string, rule: Rule][] {
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

/** The files below the folder, by path within it. */
export function ownFiles(files: readonly CatalogFile[]): Map<string, CatalogFile> {
  const own = files.filter((file) => file.path.startsWith(FOLDER));
  return new Map(own.map((file) => [file.path.slice(FOLDER.length), file]));
}

/** The text of a file; what is not UTF-8 is reported. */
export function textOf(file: CatalogFile, at: string, report: Report): string | undefined {
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
