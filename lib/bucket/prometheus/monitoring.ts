import { hash } from "node:crypto";
import { readFileSync } from "node:fs";
import { parseYaml, readableYaml, toYaml, type YamlPlaces } from "../../codec/config/yaml.ts";
import { escapeHtml, firstHeading, markdownToHtml } from "../../codec/markdown.ts";
import { PROGRAM_ROOT } from "../../core/self.ts";
import { isObject } from "../../core/shape.ts";
import { bytesOf } from "../base/contents.ts";
import type { Database } from "../base/database.ts";
import type { CatalogFile, CatalogJob } from "../base/model.ts";
import { catalogAllocations, catalogFiles, catalogJobs } from "../catalog/catalog.ts";
import type { Monitoring, StagedFile } from "../catalog/staging.ts";
import type { KvStore } from "../kv/kv.ts";
import { filesForPrometheus, isPrometheus, OPS_RULES, PROMETHEUS_FOLDER, runbookSlug, webPort } from "../workspace/prometheus.ts";
import { dashboardsOf, inAddress, scrapeConfigs } from "./scrape.ts";

type Files = ReadonlyMap<string, CatalogFile>;
/** A page that an index leads to; the place is relative to the index. */
type Listed = readonly [job: string, place: string, title: string];

/**
 * What a job with these files gets of all jobs where it runs a Prometheus (docs/workspace.md, Prometheus); undefined for
 * any other job. Computed from the catalog and the KV store alone.
 */
export function monitoringFor(db: Database, kv: KvStore, job: CatalogJob, files: readonly CatalogFile[]): Monitoring | undefined {
  if (!isPrometheus(files)) return undefined;
  const jobs = catalogJobs(db).map(({ name }): [string, Files] => {
    return [name, filesForPrometheus(catalogFiles(db, name, PROMETHEUS_FOLDER))];
  });
  const pages = pagesOf(db, job);
  const rules = [
    made(`rules/${OPS_RULES}`, ownFile("certs.yaml")),
    ...jobs.flatMap(([name, own]) => rulesOfJob(name, own, pages)),
  ];
  let scraped: ReturnType<Monitoring["scrapeConfigs"]> | undefined;
  return {
    files: [...rules, ...runbooks(jobs), ...dashboards(jobs)],
    ruleFiles: toYaml({ rule_files: rules.map(({ path }) => path) }).trimEnd(),
    scrapeConfigs() {
      scraped ??= scrapeText(db, kv);
      return scraped;
    },
  };
}

function scrapeText(db: Database, kv: KvStore): ReturnType<Monitoring["scrapeConfigs"]> {
  const secrets = new Set<string>();
  const configs = scrapeConfigs(db, kv, { reveal: true, secrets });
  const lines = configs.length === 0 ? [] : toYaml(sorted(configs)).trimEnd().split("\n");
  return { text: lines.map((line) => `\n  ${line}`).join(""), secrets };
}

/** The same value with the keys of each object in order. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, entry]) => [key, sorted(entry)]));
}

/** Where the first active Prometheus of a job shows its pages; undefined where no port is known. */
function pagesOf(db: Database, { name, ports }: CatalogJob): string | undefined {
  const port = ports[webPort(name, Object.keys(ports)) ?? ""];
  const own = catalogAllocations(db).filter((one) => one.job === name && !one.removed);
  const { worker } = own.find(({ disabled }) => !disabled) ?? own[0] ?? {};
  return port === undefined || worker === undefined ? undefined : `http://${inAddress(worker)}:${port}/consoles`;
}

function rulesOfJob(job: string, files: Files, pages: string | undefined): StagedFile[] {
  return below(files, "alerts", /\.ya?ml$/).map(([path, file]) => {
    const text = withRunbookUrls(bytesOf(file.content).toString(), (runbook) => {
      return pages && `${pages}/runbooks/${job}/${inUrl(runbookSlug(runbook))}.html`;
    });
    return made(`rules/${job}/${path}`, text ?? file);
  });
}

/**
 * A file of rules in which each `runbook` has become a `runbook_url`; all else stays as it is written. A `runbook` stays
 * where the rule has a `runbook_url` of its own or none is known. Answers undefined where no rule changes.
 */
function withRunbookUrls(given: string, urlOf: (runbook: string) => string | undefined): string | undefined {
  const text = readableYaml(given);
  const places: YamlPlaces = new Map();
  const value = parseYaml(text, places) as { groups: { rules: { annotations?: Record<string, string> }[] }[] };
  let made = "";
  let end = 0;
  for (const { annotations } of value.groups.flatMap(({ rules }) => rules)) {
    const url = annotations?.runbook === undefined ? undefined : urlOf(annotations.runbook);
    const place = annotations && places.get(annotations)?.get("runbook");
    if (!url || !place || annotations.runbook_url !== undefined) continue;
    made += `${text.slice(end, place[0])}runbook_url: ${JSON.stringify(url)}`;
    // The place of plain text takes in the blanks behind it.
    end = place[0] + text.slice(...place).trimEnd().length;
  }
  return end === 0 ? undefined : made + text.slice(end);
}

function runbooks(jobs: readonly [string, Files][]): StagedFile[] {
  const listed: Listed[] = [];
  const pages = jobs.flatMap(([job, files]) =>
    below(files, "runbooks", /\.md$/).map(([path, file]) => {
      const body = markdownToHtml(bytesOf(file.content).toString());
      const place = `${job}/${runbookSlug(path)}.html`;
      const title = firstHeading(body) ?? escapeHtml(runbookSlug(path));
      listed.push([job, place, title]);
      return made(`consoles/runbooks/${place}`, page(title, body));
    }),
  );
  return [...index("runbooks", "Runbooks", listed), ...pages];
}

function dashboards(jobs: readonly [string, Files][]): StagedFile[] {
  const listed: Listed[] = [];
  const copies = jobs.flatMap(([job, files]) => {
    listed.push(...dashboardsOf(files).map((path): Listed => [job, `${job}/${path}`, titleOf(files, path)]));
    const shown = below(files, "dashboards", /^(?!.*(?:^|\/)\.)/);
    return shown.map(([path, file]) => made(`consoles/dashboards/${job}/${path}`, file));
  });
  return [...index("dashboards", "Dashboards", listed), ...copies];
}

/** The title of a dashboard, as HTML: what its `<title>` says, else its path. */
function titleOf(files: Files, path: string): string {
  const text = files.get(`dashboards/${path}`);
  const [, title] =
    (/\.html?$/.test(path) && text && /<title>([^<]{1,999})<\/title>/i.exec(bytesOf(text.content).toString())) || [];
  // In the title entities are entities.
  return title === undefined ? escapeHtml(path) : escapeHtml(title.trim()).replace(/&amp;(?=#?\w+;)/g, "&");
}

function index(folder: string, title: string, listed: readonly Listed[]): StagedFile[] {
  if (listed.length === 0) return [];
  const ofJob = ([job, own]: [string, Listed[]]) => {
    const items = own.map(([, place, name]) => `<li><a href="${escapeHtml(inUrl(place))}">${name}</a></li>`);
    return `<h2>${escapeHtml(job)}</h2>\n<ul>\n${items.join("\n")}\n</ul>`;
  };
  const jobs = [...Map.groupBy(listed, ([job]) => job)].map(ofJob);
  return [made(`consoles/${folder}/index.html`, page(title, `<h1>${title}</h1>\n${jobs.join("\n")}`))];
}

/** A path as a part of an address. */
function inUrl(place: string): string {
  return place.split("/").map(encodeURIComponent).join("/");
}

/** The files below a folder whose path there is of this form. */
function below(files: Files, folder: string, form: RegExp): [path: string, file: CatalogFile][] {
  return [...files].flatMap(([path, file]): [string, CatalogFile][] => {
    const own = path.slice(folder.length + 1);
    return path.startsWith(`${folder}/`) && form.test(own) ? [[own, file]] : [];
  });
}

function made(path: string, from: string | CatalogFile): StagedFile {
  const content = typeof from === "string" ? Buffer.from(from) : from.content;
  const sha256 = typeof from === "string" ? hash("sha256", from) : from.sha256;
  return { path, mode: 0o644, sha256, content, isSecret: false };
}

function page(title: string, body: string): string {
  return ownFile("page.html").replace(/@title@|@body@/g, (mark) => (mark === "@title@" ? title : body));
}

/** A file of ops. In the page there are no two braces in a row, which Prometheus would take for the marks of a template. */
function ownFile(name: string): string {
  return readFileSync(`${PROGRAM_ROOT}lib/bucket/prometheus/files/${name}`, "utf8");
}
