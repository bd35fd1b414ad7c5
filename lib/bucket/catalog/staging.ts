import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { renderTemplate } from "../../codec/template/exec.ts";
import { type TemplateFunction, type TemplateStruct, typed } from "../../codec/template/funcs.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { makePrivateFolder, PRIVATE_FILE, PRIVATE_FOLDER, remove } from "../../core/files.ts";
import type { Layout } from "../base/layout.ts";
import type { CatalogFile, CatalogJob } from "../base/model.ts";
import type { KvStore } from "../kv/kv.ts";
import {
  allocationNamespace,
  fullNamespace,
  isPrivateKey,
  isSecretNamespace,
  type KV_FUNCTIONS,
  readableNamespaces,
} from "../kv/kv-access.ts";

/** The fields of a template's dot, in full (docs/workspace.md, Templates). */
interface TemplateFields {
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
  /** It was rendered with a secret, or is a private key. */
  isSecret: boolean;
  /** The secrets that it was rendered with. */
  secrets?: readonly string[];
}

/** All files of one allocation, with the hash that tells whether anything about them changed. */
export interface StagedTree {
  hash: string;
  files: StagedFile[];
  /** Path to a digest of mode and content. */
  digests: Record<string, string>;
}

/** Refuses bytes that are not UTF-8, instead of changing them. */
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const TEMPLATE_SUFFIX = ".tpl";
const CERTS = "certs/";
const CA_CERTIFICATE = "certs/ca.crt";
const NOT_SENT = ["_hooks/", "_prometheus/"];

/**
 * The files of an allocation: static ones as they are, templates rendered under their name without `.tpl`, and its
 * certificates. Computed from the catalog and the KV store alone. A rendered file that read a secret gets `secretMode`,
 * with the rights to execute where its template has them. For a template that cannot be rendered this throws, naming job,
 * worker, file, line and column: `ErrKeyMissing` where a key that it asks for is not there, else `failed`.
 */
export function stageAllocation(
  files: readonly CatalogFile[],
  fields: TemplateFields,
  upstream: readonly string[],
  kv: KvStore,
  secretMode: number,
): StagedTree {
  const sent = files.filter((file) => !NOT_SENT.some((folder) => file.path.startsWith(folder)));
  const own = stageFiles(sent, (template) => render(template, fields, upstream, kv, secretMode));
  return treeOf([...own, ...stagedCertificates(kv, fields.Job, fields.WorkerIP)]);
}

/**
 * The certificates of an allocation: `certs/ca.crt`, and `certs/<name>.crt` and `certs/<name>.key`, of which only the
 * owner may read the keys.
 */
function stagedCertificates(kv: KvStore, job: string, worker: string): StagedFile[] {
  const own = allocationNamespace(job, worker);
  const places = kv.keys(own).map((key): [string, string] => [own, key]);
  places.push(["ops/worker", CA_CERTIFICATE]);
  return places.flatMap(([namespace, key]) => {
    const text = key.startsWith(CERTS) ? kv.get(namespace, key) : undefined;
    if (text === undefined) return [];
    const content = Buffer.from(text);
    const isSecret = isPrivateKey(namespace, key);
    return [{ path: key, mode: isSecret ? 0o600 : 0o644, sha256: sha256(content), content, isSecret }];
  });
}

/**
 * The same with `_hooks/` and the certificates once more in `_hooks/certs/`, for a hook's script on the control host. A
 * template that cannot be rendered is left out, since this very script may write the missing key. Where the template is
 * the script itself, this throws as above.
 */
export function stageForScript(
  files: readonly CatalogFile[],
  fields: TemplateFields,
  upstream: readonly string[],
  kv: KvStore,
  hook: string,
): StagedFile[] {
  const isScript = new RegExp(`^_hooks/${hook}\\.(py|ts|js)\\.tpl$`);
  const wanted = files.filter((file) => !file.path.startsWith("_prometheus/"));
  const own = stageFiles(wanted, (template) => {
    try {
      return render(template, fields, upstream, kv, PRIVATE_FILE);
    } catch (error) {
      if (isScript.test(template.path)) throw error;
      return undefined;
    }
  });
  const certificates = stagedCertificates(kv, fields.Job, fields.WorkerIP);
  return [...own, ...certificates, ...certificates.map((file) => ({ ...file, path: `_hooks/${file.path}` }))];
}

function stageFiles(
  files: readonly CatalogFile[],
  rendered: (template: CatalogFile) => StagedFile | undefined,
): StagedFile[] {
  const staged = new Map<string, StagedFile>();
  for (const file of files)
    if (!file.path.endsWith(TEMPLATE_SUFFIX)) staged.set(file.path, { ...file, isSecret: false });
  for (const file of files) {
    const made = file.path.endsWith(TEMPLATE_SUFFIX) ? rendered(file) : undefined;
    if (made) staged.set(made.path, made);
  }
  return [...staged.values()];
}

function treeOf(files: StagedFile[]): StagedTree {
  files.sort((a, b) => (a.path < b.path ? -1 : 1));
  const digests = Object.fromEntries(files.map((file) => [file.path, `${file.mode.toString(8)}:${file.sha256}`]));
  return { hash: sha256(JSON.stringify(Object.entries(digests))), files, digests };
}

function render(
  file: CatalogFile,
  fields: TemplateFields,
  upstream: readonly string[],
  kv: KvStore,
  secretMode: number,
): StagedFile {
  const access = new TemplateAccess(kv, fields.Job, fields.WorkerIP, upstream);
  const dot = { ...fields, UpdateSeq: BigInt(fields.UpdateSeq) };
  const content = Buffer.from(renderText(file, dot, access, `job ${fields.Job} on ${fields.WorkerIP}`));
  const isSecret = access.readSecret;
  const mode = isSecret ? secretRights(secretMode, file.mode) : file.mode;
  const path = file.path.slice(0, -TEMPLATE_SUFFIX.length);
  const secrets = isSecret ? { secrets: [...access.secrets] } : {};
  return { path, mode, sha256: sha256(content), content, isSecret, ...secrets };
}

/**
 * The text of a template that belongs to a job and to none of its allocations: its dot has `Job`, `CurrentVersion` and
 * `NewVersion`, both the target. Secrets stand in it as `<secret>` unless they are to be revealed. Errors as above.
 */
export function renderForJob(file: CatalogFile, job: CatalogJob, kv: KvStore, reveal: boolean): string {
  const version = kv.get(`ops/job/${job.name}`, "version") ?? job.version;
  const upstream = job.hooks.map(({ demandJob }) => demandJob).filter((name) => name !== "");
  const access = new TemplateAccess(kv, job.name, "", upstream, reveal);
  const dot = { Job: job.name, CurrentVersion: version, NewVersion: version };
  return renderText(file, dot, access, `job ${job.name}`);
}

function renderText(file: CatalogFile, dot: TemplateStruct, access: TemplateAccess, where: string): string {
  try {
    return renderTemplate(file.path, UTF8.decode(file.content), dot, access.functions());
  } catch (error) {
    throw new Failure(
      access.missesKey ? "ErrKeyMissing" : "failed",
      `Cannot render a template of ${where}: ${messageOf(error)}`,
      { cause: error },
    );
  }
}

/** Whoever may read a file may execute it too if its owner may. */
function secretRights(secretMode: number, mode: number): number {
  return (mode & 0o100) === 0 ? secretMode : secretMode | ((secretMode & 0o444) >> 2);
}

function sha256(content: string | Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}

/** What templates can ask the KV store, and whether they asked for a secret. */
class TemplateAccess {
  readSecret = false;
  /** The values of those that it was told. */
  readonly secrets = new Set<string>();
  /** It ended because a key is not there. */
  missesKey = false;
  readonly #kv: KvStore;
  readonly #job: string;
  readonly #worker: string;
  readonly #readable: Set<string>;
  readonly #reveal: boolean;

  constructor(kv: KvStore, job: string, worker: string, upstream: readonly string[], reveal = true) {
    this.#reveal = reveal;
    this.#kv = kv;
    this.#job = job;
    this.#worker = worker;
    this.#readable = readableNamespaces({ job, worker, upstream });
  }

  functions(): Record<(typeof KV_FUNCTIONS)[number], TemplateFunction> {
    return {
      get: typed(["string", "string"], (namespace, key) => this.#get(namespace, key)),
      getOptional: typed(["string", "string"], (namespace, key) => this.#find(namespace, key) ?? ""),
      getSecret: typed(["string"], (key) => this.#get(`secrets/job/${this.#job}`, key)),
      keys: typed(["string"], (namespace) => this.#kv.keys(this.#allowed(namespace)).sort()),
    };
  }

  #get(namespace: string, key: string): string {
    const value = this.#find(namespace, key);
    if (value !== undefined) return value;
    this.missesKey = true;
    throw new Error(`key ${JSON.stringify(key)} is missing in namespace ${namespace}`);
  }

  #find(namespace: string, key: string): string | undefined {
    const full = this.#allowed(namespace);
    if (isPrivateKey(full, key)) throw new Error(`a private key is no value: use the file ${key}`);
    const value = this.#kv.get(full, key);
    if (!isSecretNamespace(full)) return value;
    this.readSecret = true;
    if (value !== undefined && value !== "") this.secrets.add(value);
    return this.#reveal ? value : value && "<secret>";
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

/**
 * Writes the files of an allocation to its staging folder, which then holds nothing else; only their owner may read
 * them there, whatever rights they get on the worker.
 */
export async function writeStaging(folder: string, files: readonly StagedFile[]): Promise<void> {
  await remove(folder);
  const placed = files.map((file) => ({ ...file, target: path.join(folder, file.path) }));
  for (const one of new Set([folder, ...placed.map(({ target }) => path.dirname(target))]))
    await makePrivateFolder(one);
  for (const { target, ...file } of placed) {
    await writeFile(target, file.content, { mode: file.mode & PRIVATE_FOLDER, flag: "wx" });
  }
}
