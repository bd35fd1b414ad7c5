import path from "node:path";
import { isTable, type TomlTable, type TomlValue } from "../../codec/config/toml.ts";
import { TomlFloat } from "../../codec/config/toml-lex.ts";
import { Failure } from "../../core/errors.ts";
import { jobResourcesFile, type Layout } from "../base/layout.ts";
import { Problems, sentenceOf } from "../base/problems.ts";
import { parseSourceToml } from "../source/source-file.ts";
import { openSourceFile } from "../source/source-view.ts";
import { checkBucketConf, checkJobSettings } from "./bucket-conf.ts";
import { checkOpsConf } from "./settings.ts";

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
