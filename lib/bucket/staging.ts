import { createHash } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { renderTemplate } from "../codec/template/exec.ts";
import { type TemplateFunction, typed } from "../codec/template/funcs.ts";
import { Failure, messageOf } from "../core/errors.ts";
import { PRIVATE_FOLDER, remove } from "../core/files.ts";
import type { CatalogFile } from "./catalog.ts";
import type { KvStore } from "./kv.ts";
import { fullNamespace, isSecretNamespace, readableNamespaces } from "./kv-access.ts";
import type { Layout } from "./layout.ts";

/** The fields of a template's dot, in full (docs/workspace.md, Templates). */
export interface TemplateFields {
  AllocationID: string;
  Job: string;
  CurrentVersion: string;
  NewVersion: string;
  BucketID: string;
  WorkerID: string;
  WorkerIP: string;
  Labels: string[];
  UpdateSeq: number;
  BucketPath: string;
  JobPath: string;
}

/** One file as it goes to a worker; `path` is relative to the job's folder there. */
export interface StagedFile {
  path: string;
  mode: number;
  sha256: string;
  content: Buffer;
}

/** All files of one allocation, with the hash that tells whether anything about them changed. */
export interface StagedTree {
  hash: string;
  files: StagedFile[];
  /** Path to a digest of mode and content. */
  digests: Record<string, string>;
}

/** Refuses what is not UTF-8, instead of changing it. */
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const TEMPLATE_SUFFIX = ".tpl";
const NOT_SENT = ["_hooks/", "_prometheus/"];

/**
 * The files of an allocation: static ones as they are, templates rendered under their name without `.tpl`. Computed
 * from the catalog alone. A file that read a secret is 0600, or 0700 when it is executable. Throws
 * `failed`, naming job, worker, file, line and column, for a template that cannot be rendered.
 */
export function stageAllocation(
  files: readonly CatalogFile[],
  fields: TemplateFields,
  upstream: readonly string[],
  kv: KvStore,
): StagedTree {
  const sent = files.filter((file) => !NOT_SENT.some((folder) => file.path.startsWith(folder)));
  const staged = new Map<string, StagedFile>();
  for (const file of sent) if (!file.path.endsWith(TEMPLATE_SUFFIX)) staged.set(file.path, { ...file });
  for (const file of sent) {
    if (!file.path.endsWith(TEMPLATE_SUFFIX)) continue;
    const rendered = render(file, fields, upstream, kv);
    staged.set(rendered.path, rendered);
  }
  return treeOf([...staged.values()]);
}

function treeOf(files: StagedFile[]): StagedTree {
  files.sort((a, b) => (a.path < b.path ? -1 : 1));
  const digests = Object.fromEntries(
    files.map((file) => [file.path, `${file.mode.toString(8)}:${file.sha256}`]),
  );
  return { hash: sha256(JSON.stringify(Object.entries(digests))), files, digests };
}

function render(
  file: CatalogFile,
  fields: TemplateFields,
  upstream: readonly string[],
  kv: KvStore,
): StagedFile {
  const access = new TemplateAccess(kv, fields.Job, fields.WorkerIP, upstream);
  try {
    const text = renderTemplate(
      file.path,
      UTF8.decode(file.content),
      { ...fields, UpdateSeq: BigInt(fields.UpdateSeq) },
      access.functions(),
    );
    const content = Buffer.from(text);
    const mode = access.readSecret ? file.mode & 0o700 : file.mode;
    return { path: file.path.slice(0, -TEMPLATE_SUFFIX.length), mode, sha256: sha256(content), content };
  } catch (error) {
    const where = `job ${fields.Job} on ${fields.WorkerIP}`;
    throw new Failure("failed", `Cannot render a template of ${where}: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

function sha256(content: string | Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}

/** What templates can ask the KV store, and whether they asked for a secret. */
class TemplateAccess {
  readSecret = false;
  readonly #kv: KvStore;
  readonly #job: string;
  readonly #worker: string;
  readonly #readable: Set<string>;

  constructor(kv: KvStore, job: string, worker: string, upstream: readonly string[]) {
    this.#kv = kv;
    this.#job = job;
    this.#worker = worker;
    this.#readable = readableNamespaces({ job, worker, upstream });
  }

  functions(): Record<string, TemplateFunction> {
    return {
      get: typed(["string", "string"], (namespace, key) => this.#get(namespace, key)),
      getOptional: typed(["string", "string"], (namespace, key) => this.#find(namespace, key) ?? ""),
      getSecret: typed(["string"], (key) => this.#get(`secrets/job/${this.#job}`, key)),
      keys: typed(["string"], (namespace) => this.#kv.keys(this.#allowed(namespace)).sort()),
    };
  }

  #get(namespace: string, key: string): string {
    const value = this.#find(namespace, key);
    if (value === undefined)
      throw new Error(`key ${JSON.stringify(key)} is missing in namespace ${namespace}`);
    return value;
  }

  #find(namespace: string, key: string): string | undefined {
    const full = this.#allowed(namespace);
    if (isSecretNamespace(full)) this.readSecret = true;
    return this.#kv.get(full, key);
  }

  #allowed(namespace: string): string {
    const full = fullNamespace(namespace, this.#worker);
    if (!this.#readable.has(full))
      throw new Error(`namespace ${JSON.stringify(namespace)} may not be read by this job`);
    return full;
  }
}

/** The folder of an allocation's staged files: `tmp/workers/<worker>/jobs/<job>/`. */
export function stagingFolder(layout: Layout, worker: string, job: string): string {
  return path.join(layout.stagedWorkers, worker.replaceAll(":", "_"), "jobs", job);
}

/** Writes the files of an allocation to its staging folder, which then holds nothing else. */
export async function writeStaging(folder: string, files: readonly StagedFile[]): Promise<void> {
  await remove(folder);
  await mkdir(folder, { recursive: true, mode: PRIVATE_FOLDER });
  for (const file of files) {
    const target = path.join(folder, file.path);
    await mkdir(path.dirname(target), { recursive: true, mode: PRIVATE_FOLDER });
    await writeFile(target, file.content, { mode: file.mode, flag: "wx" });
  }
}
