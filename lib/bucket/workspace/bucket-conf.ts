import path from "node:path";
import { isTable, type TomlTable, type TomlValue } from "../../codec/config/toml.ts";
import { TomlFloat } from "../../codec/config/toml-lex.ts";
import { Failure, type FailureCode } from "../../core/errors.ts";
import { join, show, typeName } from "../../core/shape.ts";
import { jobResourcesFile, type Layout } from "../base/layout.ts";
import { Problems, sentenceOf, unknownName } from "../base/problems.ts";
import { parseSourceToml, readSource, relative } from "../source/source-file.ts";
import { openSourceFile } from "../source/source-view.ts";
import { checkOpsConf } from "./settings.ts";

/** The bucket.conf that init writes. */
export const DEFAULT_BUCKET_CONF = `# Ports that ops hands out to jobs lie in this range. Every key here is also readable in templates and hooks,
# in the namespace vars/bucket.
port_min = 30000
port_max = 39999
`;

/** What `workspace/bucket.conf` says. */
export interface BucketConf {
  /** Every key, as text: the KV namespace `vars/bucket`. */
  values: Map<string, string>;
  ports: PortPool;
}

/** The numbers that jobs get ports from, both bounds included. */
export interface PortPool {
  min: number;
  max: number;
}

const CODE = "ErrInvalidBucketConf";

/** Reads `workspace/bucket.conf`: `ErrInvalidBucketConf`, `ErrInvalidPortRange`. */
export async function readBucketConf(layout: Layout, problems: Problems): Promise<BucketConf> {
  const table = await readSource(parseSourceToml, layout, layout.bucketConf, CODE, problems);
  return checkBucketConf(table ?? {}, relative(layout, layout.bucketConf), problems);
}

/** What bucket.conf, read already, says; `file` is only named. */
export function checkBucketConf(table: TomlTable, file: string, problems: Problems): BucketConf {
  const values = valuesOf(table, CODE, file, "", problems);
  return { values, ports: poolOf(values, file, problems) };
}

const DEFAULT_PORTS: PortPool = { min: 30_000, max: 39_999 };

function poolOf(values: ReadonlyMap<string, string>, file: string, problems: Problems): PortPool {
  const min = values.get("port_min")?.trim() ?? String(DEFAULT_PORTS.min);
  const max = values.get("port_max")?.trim() ?? String(DEFAULT_PORTS.max);
  const pool = { min: Number(min), max: Number(max) };
  const areWhole = [min, max].every((text) => /^\d{1,5}$/.test(text));
  if (areWhole && pool.min >= 1 && pool.min <= pool.max && pool.max <= 65_535) return pool;
  const rule = "whole numbers with 1 <= port_min <= port_max <= 65535";
  const message = `port_min and port_max must be ${rule}, found ${show(min)} and ${show(max)}`;
  problems.error("ErrInvalidPortRange", file, "", message);
  return DEFAULT_PORTS;
}

/** The settings of the jobs from `workspace/bucket.jobs[.<selector>].conf`, by job, and the name of that file. */
export interface JobSettings {
  file: string;
  jobs: Map<string, Map<string, string>>;
}

/** Reads the settings of the jobs: only the selected file, no other instead of it (`ErrInvalidBucketConf`). */
export async function readJobSettings(layout: Layout, selector: string, problems: Problems): Promise<JobSettings> {
  const file = relative(layout, jobResourcesFile(layout, selector));
  const table = await readSource(parseSourceToml, layout, jobResourcesFile(layout, selector), CODE, problems);
  if (!table && selector !== "") problems.warn("ops.conf", "job_config_selector", `there is no ${file}`);
  return checkJobSettings(table ?? {}, file, problems);
}

/** The settings of the jobs in a table that was read already; `file` is only named. */
export function checkJobSettings(table: TomlTable, file: string, problems: Problems): JobSettings {
  const jobs = new Map<string, Map<string, string>>();
  for (const [name, settings] of Object.entries(table)) {
    if (jobs.has(name.toLowerCase())) problems.error(CODE, file, name, "is there twice, in other capitals");
    if (isTable(settings)) jobs.set(name.toLowerCase(), valuesOf(settings, CODE, file, name, problems));
    else problems.error(CODE, file, name, "expected a table with the settings of a job");
  }
  return { file, jobs };
}

/** Says which tables belong to no job. */
export function warnAboutStrangers(settings: JobSettings, jobs: ReadonlySet<string>, problems: Problems): void {
  for (const name of settings.jobs.keys())
    if (!jobs.has(name)) problems.warn(settings.file, name, unknownName("job", name, jobs));
}

/** The values of a flat TOML file of texts and numbers, each as its text; none where there is no file. */
export function valuesIn(
  bytes: Uint8Array | undefined,
  file: string,
  code: FailureCode,
  problems: Problems,
): Map<string, string> {
  const table = bytes && parseSourceToml(bytes, file, code, problems);
  return valuesOf(table ?? {}, code, file, "", problems);
}

function valuesOf(
  table: TomlTable,
  code: FailureCode,
  file: string,
  path: string,
  problems: Problems,
): Map<string, string> {
  const values = new Map<string, string>();
  for (const [key, value] of Object.entries(table)) {
    const text = textOf(value);
    if (text !== undefined) values.set(key, text);
    else
      problems.error(code, file, join(path, key), `expected text, a number, true or false, found ${typeName(value)}`);
  }
  return values;
}

/** The text that a value is stored as: a float as it was written, an integer in plain decimals. */
function textOf(value: TomlValue): string | undefined {
  return typeof value !== "object" || value instanceof TomlFloat ? String(value) : undefined;
}

/** A settings file of the source. */
interface SettingsView {
  /** Below the bucket. */
  path: string;
  /** Its text; empty where there is no such file. */
  content: string;
  /** What it says, as JSON; null where something is wrong with it. */
  values: Json | null;
  /** The first thing that a build would refuse, as a sentence. */
  problem: string | null;
}

type Json = { [key: string]: unknown };
type Check = (table: TomlTable, file: string, problems: Problems) => unknown;

const MOST_BYTES = 1024 * 1024;

/** ops.conf. */
export function opsConfView(layout: Layout): Promise<SettingsView> {
  return viewOf(layout, layout.opsConf, true, (table, _, problems) => checkOpsConf(table, problems));
}

/** workspace/bucket.conf. */
export function bucketConfView(layout: Layout): Promise<SettingsView> {
  return viewOf(layout, layout.bucketConf, true, checkBucketConf);
}

/** The settings of the jobs of one selector, `default` for that without one; throws `file_not_found` for any other. */
export function jobResourcesView(layout: Layout, selector: string): Promise<SettingsView> {
  const isDefault = selector === "default";
  const file = jobResourcesFile(layout, isDefault ? "" : selector);
  return viewOf(layout, file, isDefault, checkJobSettings);
}

async function viewOf(layout: Layout, file: string, mayMiss: boolean, check: Check): Promise<SettingsView> {
  const below = path.relative(layout.root, file);
  const bytes = await bytesOf(layout, below, mayMiss);
  if (!bytes) return { path: below, content: "", values: {}, problem: null };
  const problems = new Problems();
  const table = parseSourceToml(bytes, below, "invalid_source", problems);
  if (table) check(table, below, problems);
  const [first] = problems.errors;
  return {
    path: below,
    content: bytes.toString(),
    values: first || !table ? null : jsonOf(table),
    // Without the code, which is for builds.
    problem: first ? sentenceOf({ file: first.file, path: first.path, message: first.message }) : null,
  };
}

async function bytesOf(layout: Layout, below: string, mayMiss: boolean): Promise<Buffer | undefined> {
  await using handle = await openSourceFile(layout, below).catch((error: unknown) => {
    if (mayMiss && error instanceof Failure && error.code === "file_not_found") return undefined;
    throw error;
  });
  if (!handle) return undefined;
  // One byte more than is allowed tells that there are too many.
  const { bytesRead, buffer } = await handle.read(Buffer.alloc(MOST_BYTES + 1), 0, MOST_BYTES + 1, 0);
  return buffer.subarray(0, bytesRead);
}

function jsonOf(table: TomlTable): Json {
  return Object.fromEntries(Object.entries(table).map(([key, value]) => [key, jsonValueOf(value)]));
}

/** What JSON has no form for is its own text. */
function jsonValueOf(value: TomlValue): unknown {
  if (Array.isArray(value)) return value.map(jsonValueOf);
  if (isTable(value)) return jsonOf(value);
  if (value instanceof TomlFloat) return Number.isFinite(value.value) ? value.value : value.text;
  return typeof value === "object" || typeof value === "bigint" ? String(value) : value;
}
