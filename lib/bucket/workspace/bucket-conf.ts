import { isTable, type TomlTable, type TomlValue } from "../../codec/config/toml.ts";
import { TomlFloat } from "../../codec/config/toml-lex.ts";
import { Failure } from "../../core/errors.ts";
import { check, join, quote, show, typeName } from "../../core/shape.ts";
import { jobResourcesFile, type Layout } from "../base/layout.ts";
import { fileName } from "../base/names.ts";
import { type FileProblems, Problems, unknownName } from "../base/problems.ts";
import { parseSourceToml, readSource, relative, SOURCE_FILE_BYTES, writeSourceFile } from "../source/source-file.ts";
import { openIfThere, openSourceFile } from "../source/source-view.ts";
import { checkOpsConf } from "./settings.ts";

/** The bucket.conf that init writes. */
export const DEFAULT_BUCKET_CONF = `# Ports that ops hands out to jobs lie in this range. Every key here is also readable in templates and hooks,
# in the namespace vars/bucket.
port_min = 30000
port_max = 39999
`;

/** The numbers that jobs get ports from, both bounds included. */
export type PortPool = Record<"min" | "max", number>;

const CODE = "ErrInvalidBucketConf";
const DEFAULT_PORTS: PortPool = { min: 30_000, max: 39_999 };

/** Reads `workspace/bucket.conf`: `ErrInvalidBucketConf`, `ErrInvalidPortRange`. */
export async function readBucketConf(layout: Layout, problems: Problems) {
  const found = problems.in(relative(layout, layout.bucketConf), CODE);
  return checkBucketConf((await readSource(parseSourceToml, layout, found)) ?? {}, found);
}

function checkBucketConf(table: TomlTable, found: FileProblems) {
  /** Every key, as text: the KV namespace `vars/bucket`. */
  const values = valuesOf(table, "", found);
  return { values, ports: poolOf(values, found) };
}

function poolOf(values: ReadonlyMap<string, string>, found: FileProblems): PortPool {
  const min = values.get("port_min")?.trim() ?? String(DEFAULT_PORTS.min);
  const max = values.get("port_max")?.trim() ?? String(DEFAULT_PORTS.max);
  const pool = { min: Number(min), max: Number(max) };
  const areWhole = [min, max].every((text) => /^\d{1,5}$/.test(text));
  if (areWhole && pool.min >= 1 && pool.min <= pool.max && pool.max <= 65_535) return pool;
  const rule = "whole numbers with 1 <= port_min <= port_max <= 65535";
  const message = `port_min and port_max must be ${rule}, found ${show(min)} and ${show(max)}`;
  found.error("", message, "ErrInvalidPortRange");
  return DEFAULT_PORTS;
}

/** The settings of the jobs from `workspace/bucket.jobs[.<selector>].conf`, by job, and the name of that file. */
export type JobSettings = ReturnType<typeof checkJobSettings>;

/** Reads the settings of the jobs: only the selected file, no other instead of it (`ErrInvalidBucketConf`). */
export async function readJobSettings(layout: Layout, selector: string, problems: Problems): Promise<JobSettings> {
  const found = problems.in(relative(layout, jobResourcesFile(layout, selector)), CODE);
  const table = await readSource(parseSourceToml, layout, found);
  if (!table && selector !== "") problems.warn("ops.conf", "job_config_selector", `there is no ${found.file}`);
  return checkJobSettings(table ?? {}, found);
}

function checkJobSettings(table: TomlTable, found: FileProblems) {
  const jobs = new Map<string, Map<string, string>>();
  for (const [name, settings] of Object.entries(table)) {
    if (jobs.has(name.toLowerCase())) found.error(name, "is there twice, in other capitals");
    if (isTable(settings)) jobs.set(name.toLowerCase(), valuesOf(settings, name, found));
    else found.error(name, "expected a table with the settings of a job");
  }
  return { file: found.file, jobs };
}

/** Says which tables belong to no job. */
export function warnAboutStrangers(settings: JobSettings, jobs: ReadonlySet<string>, problems: Problems): void {
  for (const name of settings.jobs.keys())
    if (!jobs.has(name)) problems.warn(settings.file, name, unknownName("job", name, jobs));
}

/** The values of a flat TOML file of texts and numbers, each as its text; none where there is no file. */
export function valuesIn(bytes: Uint8Array | undefined, found: FileProblems): Map<string, string> {
  return valuesOf((bytes && parseSourceToml(bytes, found)) ?? {}, "", found);
}

function valuesOf(table: TomlTable, at: string, found: FileProblems): Map<string, string> {
  const values = new Map<string, string>();
  for (const [key, value] of Object.entries(table)) {
    const isValue = typeof value !== "object" || value instanceof TomlFloat;
    // The text of a float is as it was written, that of an integer in plain decimals.
    if (isValue) values.set(key, String(value));
    else found.error(join(at, key), `expected text, a number, true or false, found ${typeName(value)}`);
  }
  return values;
}

/** A settings file of the source. */
type SettingsView = ReturnType<typeof viewOf>;

type Json = { [key: string]: unknown };

/** A settings file of the source: its place, what a build checks in it, and whether it may be missing. */
export interface SettingsFile {
  place(layout: Layout): string;
  check(table: TomlTable, found: FileProblems): unknown;
  mayMiss: boolean;
}

/** ops.conf. */
export const OPS_CONF_FILE: SettingsFile = { place: ({ opsConf }) => opsConf, check: checkOpsConf, mayMiss: true };

/** workspace/bucket.conf. */
export const BUCKET_CONF_FILE: SettingsFile = { place: ({ bucketConf }) => bucketConf, check: checkBucketConf, mayMiss: true };

/** The settings of the jobs of one selector; `default` is the file without one. Throws `file_not_found` for no file name. */
export function jobResources(selector: string): SettingsFile {
  const isDefault = selector === "default";
  if (!check(fileName, selector).ok) throw new Failure("file_not_found", `${quote(selector)} cannot be a selector`);
  return { place: (layout) => jobResourcesFile(layout, isDefault ? "" : selector), check: checkJobSettings, mayMiss: isDefault };
}

/** A settings file, as people are shown it. Throws `file_not_found` for one that must be there. */
export async function settingsView(layout: Layout, kind: SettingsFile): Promise<SettingsView> {
  const below = relative(layout, kind.place(layout));
  const bytes = await settingsBytes(layout, below, kind.mayMiss);
  return bytes ? viewOf(below, bytes, kind) : { path: below, content: "", values: {}, problem: null };
}

/**
 * Replaces a settings file; answers it as people are shown it. Only for the holder of the bucket's lock. Throws
 * `invalid_source` for what a build would refuse.
 */
export async function writeSettings(layout: Layout, kind: SettingsFile, content: string): Promise<SettingsView> {
  const file = kind.place(layout);
  const view = viewOf(relative(layout, file), Buffer.from(content), kind);
  if (view.problem !== null) throw new Failure("invalid_source", view.problem);
  await writeSourceFile(file, content);
  return view;
}

function viewOf(below: string, bytes: Buffer, kind: SettingsFile) {
  const problems = new Problems();
  const found = problems.in(below, "invalid_source");
  const table = parseSourceToml(bytes, found);
  if (table) kind.check(table, found);
  const problem = problems.sentence();
  return {
    /** Below the bucket. */
    path: below,
    /** Its text; empty where there is no such file. */
    content: bytes.toString(),
    /** What it says, as JSON; null where something is wrong with it. */
    values: problem !== null || !table ? null : jsonOf(table),
    /** The first thing that a build would refuse, as a sentence. */
    problem,
  };
}

async function settingsBytes(layout: Layout, below: string, mayMiss: boolean): Promise<Buffer | undefined> {
  await using handle = await (mayMiss ? openIfThere : openSourceFile)(layout, below);
  // One byte more than is allowed tells that there are too many.
  const read = await handle?.read(Buffer.alloc(SOURCE_FILE_BYTES + 1), 0, SOURCE_FILE_BYTES + 1, 0);
  return read?.buffer.subarray(0, read.bytesRead);
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
