import { hash } from "node:crypto";
import path from "node:path";
import { renderTemplate } from "../../codec/template/exec.ts";
import { type TemplateFunction, type TemplateStruct, typed } from "../../codec/template/funcs.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { makePrivateFolder, PRIVATE_FILE, PRIVATE_FOLDER, remove } from "../../core/files.ts";
import { bytesOf, createFile } from "../base/contents.ts";
import type { Layout } from "../base/layout.ts";
import type { CatalogFile, CatalogJob } from "../base/model.ts";
import type { KvStore } from "../kv/kv.ts";
import {
  allocationNamespace,
  type BUCKET_FUNCTIONS,
  fullNamespace,
  isPrivateKey,
  isSecretNamespace,
  PROMETHEUS_NAMESPACE,
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

/** What a job's templates and certificates are made from. */
interface Staging {
  fields: TemplateFields;
  /** The jobs that the manifest's demands name. */
  upstream: readonly string[];
  kv: KvStore;
  /** Only for the job of a Prometheus. */
  monitoring?: Monitoring | undefined;
}

/** What the job of a Prometheus gets of all jobs. */
export interface Monitoring {
  /** Rules, runbooks and dashboards. A file of the job's own in one of these places goes before. */
  files: readonly StagedFile[];
  /** The `rule_files` of prometheus.yml. */
  ruleFiles: string;
  /** The list for `scrape_configs`, and the secrets in it. Throws like {@link renderForJob}. */
  scrapeConfigs(): { text: string; secrets: ReadonlySet<string> };
}

/** One file as it goes to a worker; `path` is relative to the job's folder there. */
export interface StagedFile extends CatalogFile {
  /** It was rendered with a secret, or is a private key. */
  isSecret: boolean;
  /** The secrets that it was rendered with. */
  secrets?: readonly string[];
  /** The ids and numbers in it that only this bucket has: fields of the dot and keys; see {@link OWN_FIELDS}. */
  own?: readonly string[];
}

/** All files of one allocation, with the hash that tells whether anything about them changed. */
export type StagedTree = ReturnType<typeof stageAllocation>;

/** The fields of the dot, and the keys, that are other ones in another bucket, also where all else is the same. */
const OWN_FIELDS = ["AllocationID", "WorkerID", "UpdateSeq"] as const;
const OWN_KEY = /^(worker_id|job_id|.+_label_id)$/;

/** Refuses text that is not UTF-8, instead of changing it. */
const STRICT_UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const TEMPLATE_SUFFIX = ".tpl";
const CERTS = "certs/";
const CA_CERTIFICATE = "certs/ca.crt";
const NOT_SENT = /^_(hooks|prometheus)\//;

/**
 * The files of an allocation: static files as they are, templates rendered under their name without `.tpl`, and its
 * certificates. Computed from the catalog and the KV store alone. A rendered file that read a secret gets `secretMode`,
 * with the rights to execute where its template has them. Throws for a template that cannot be rendered, naming job,
 * worker, file, line and column: `ErrKeyMissing` where a key that the template asks for is missing, else `failed`.
 */
export function stageAllocation(files: readonly CatalogFile[], staging: Staging, secretMode: number) {
  const sent = files.filter((file) => !NOT_SENT.test(file.path));
  const own = stageFiles(sent, staging, (template) => render(template, staging, secretMode));
  const staged = [...own, ...stagedCertificates(staging)].sort((a, b) => (a.path < b.path ? -1 : 1));
  /** Path to a digest of mode and content. */
  const digests = Object.fromEntries(staged.map((file) => [file.path, `${file.mode.toString(8)}:${file.sha256}`]));
  return { hash: hash("sha256", JSON.stringify(Object.entries(digests))), files: staged, digests };
}

/**
 * The certificates of an allocation: `certs/ca.crt`, and `certs/<name>.crt` and `certs/<name>.key`, of which only the
 * owner may read the keys.
 */
function stagedCertificates({ fields, kv }: Staging): StagedFile[] {
  const own = allocationNamespace(fields.Job, fields.WorkerIP);
  const places = kv.keys(own).map((key): [string, string] => [own, key]);
  places.push(["ops/worker", CA_CERTIFICATE]);
  return places.flatMap(([namespace, key]) => {
    const text = key.startsWith(CERTS) ? kv.get(namespace, key) : undefined;
    if (text === undefined) return [];
    const content = Buffer.from(text);
    const isSecret = isPrivateKey(namespace, key);
    return [{ path: key, mode: isSecret ? 0o600 : 0o644, sha256: hash("sha256", content), content, isSecret }];
  });
}

/**
 * The files of an allocation for a hook's script on the control host: with `_hooks/`, and with the certificates once more
 * in `_hooks/certs/`. A template that cannot be rendered is left out, because the script may be the one that writes the
 * missing key. Where the template is the script itself, this throws like {@link stageAllocation}.
 */
export function stageForScript(files: readonly CatalogFile[], staging: Staging, hook: string): StagedFile[] {
  const isScript = new RegExp(`^_hooks/${hook}\\.(py|ts|js)\\.tpl$`);
  const wanted = files.filter((file) => !file.path.startsWith("_prometheus/"));
  const own = stageFiles(wanted, staging, (template) => {
    try {
      return render(template, staging, PRIVATE_FILE);
    } catch (error) {
      if (isScript.test(template.path)) throw error;
      return undefined;
    }
  });
  const certificates = stagedCertificates(staging);
  return [...own, ...certificates, ...certificates.map((file) => ({ ...file, path: `_hooks/${file.path}` }))];
}

/** A rendered template takes the place of a static file of the same name, and both that of a file that ops makes. */
function stageFiles(
  files: readonly CatalogFile[],
  { monitoring }: Staging,
  rendered: (template: CatalogFile) => StagedFile | undefined,
): StagedFile[] {
  const isTemplate = ({ path }: CatalogFile) => path.endsWith(TEMPLATE_SUFFIX);
  const staged = new Map((monitoring?.files ?? []).map((file) => [file.path, file]));
  for (const file of files) if (!isTemplate(file)) staged.set(file.path, { ...file, isSecret: false });
  for (const file of files.filter(isTemplate).flatMap((template) => rendered(template) ?? [])) staged.set(file.path, file);
  return [...staged.values()];
}

function render(file: CatalogFile, { fields, kv, ...rest }: Staging, secretMode: number): StagedFile {
  const access = templateAccess(kv, { job: fields.Job, worker: fields.WorkerIP, ...rest }, true);
  const dot = notingOwn({ ...fields, UpdateSeq: BigInt(fields.UpdateSeq) }, access.own);
  const content = Buffer.from(renderText(file, dot, access, `job ${fields.Job} on ${fields.WorkerIP}`));
  const path = file.path.slice(0, -TEMPLATE_SUFFIX.length);
  const own = access.own.size > 0 ? { own: [...access.own].sort() } : {};
  const staged = { path, mode: file.mode, sha256: hash("sha256", content), content, isSecret: access.readSecret, ...own };
  if (!access.readSecret) return staged;
  // Whoever may read the file may execute it too if its owner may.
  const executable = (file.mode & 0o100) === 0 ? 0 : (secretMode & 0o444) >> 2;
  return { ...staged, mode: secretMode | executable, secrets: [...access.secrets] };
}

/** The dot, which notes each of {@link OWN_FIELDS} that a template reads. */
function notingOwn(dot: TemplateStruct, noted: Set<string>): TemplateStruct {
  for (const name of OWN_FIELDS) {
    const value = dot[name] as TemplateStruct[string];
    const get = () => {
      noted.add(`.${name}`);
      return value;
    };
    Object.defineProperty(dot, name, { enumerable: true, get });
  }
  return dot;
}

/**
 * The text of a template that belongs to a job and to none of its allocations: its dot has `Job`, `CurrentVersion` and
 * `NewVersion`, both the target. Secrets stand in the text as `<secret>`, unless `reveal`; `secrets` gets them. Throws like
 * {@link stageAllocation}.
 */
export function renderForJob(
  file: CatalogFile,
  job: CatalogJob,
  kv: KvStore,
  { reveal, secrets }: { reveal: boolean; secrets?: Set<string> | undefined },
): string {
  const version = kv.get(`ops/job/${job.name}`, "version") ?? job.version;
  const upstream = job.hooks.map(({ demandJob }) => demandJob).filter((name) => name !== "");
  const access = templateAccess(kv, { job: job.name, worker: "", upstream }, reveal);
  const dot = { Job: job.name, CurrentVersion: version, NewVersion: version };
  const text = renderText(file, dot, access, `job ${job.name}`);
  for (const secret of access.secrets) secrets?.add(secret);
  return text;
}

function renderText(file: CatalogFile, dot: TemplateStruct, access: TemplateAccess, where: string): string {
  try {
    return renderTemplate(file.path, STRICT_UTF8.decode(bytesOf(file.content)), dot, access.functions);
  } catch (cause) {
    const code = access.missesKey ? "ErrKeyMissing" : "failed";
    throw new Failure(code, `Cannot render a template of ${where}: ${messageOf(cause)}`, { cause });
  }
}

/** What a template can ask the KV store and the catalog, and what it has asked. */
interface TemplateAccess {
  functions: Record<(typeof BUCKET_FUNCTIONS)[number], TemplateFunction>;
  readSecret: boolean;
  /** The values of the secrets that were told. */
  secrets: Set<string>;
  /** See {@link StagedFile}. */
  own: Set<string>;
  /** The template ended because a key is missing. */
  missesKey: boolean;
}

function templateAccess(
  kv: KvStore,
  { monitoring, ...reader }: { job: string; worker: string } & Pick<Staging, "upstream" | "monitoring">,
  reveal: boolean,
): TemplateAccess {
  const readable = readableNamespaces(reader).add(PROMETHEUS_NAMESPACE);
  const allowed = (namespace: string) => {
    const full = fullNamespace(namespace, reader.worker);
    if (readable.has(full)) return full;
    throw new Error(`namespace ${JSON.stringify(namespace)} may not be read by this job`);
  };
  const find = (namespace: string, key: string) => {
    const full = allowed(namespace);
    if (isPrivateKey(full, key)) throw new Error(`a private key is no value: use the file ${key}`);
    const value = kv.get(full, key);
    if (OWN_KEY.test(key) && full.startsWith("ops/")) access.own.add(key);
    if (!isSecretNamespace(full)) return value;
    access.readSecret = true;
    if (value) access.secrets.add(value);
    return reveal ? value : value && "<secret>";
  };
  const get = (namespace: string, key: string) => {
    const value = find(namespace, key);
    if (value !== undefined) return value;
    access.missesKey = true;
    throw new Error(`key ${JSON.stringify(key)} is missing in namespace ${namespace}`);
  };
  const monitored = () => {
    if (!monitoring) throw new Error("only the files of a job with prometheus.yml or prometheus.yml.tpl can call this");
    return monitoring;
  };
  const functions = {
    get: typed(["string", "string"], get),
    getOptional: typed(["string", "string"], (namespace, key) => find(namespace, key) ?? ""),
    getSecret: typed(["string"], (key) => get(`secrets/job/${reader.job}`, key)),
    keys: typed(["string"], (namespace) => kv.keys(allowed(namespace)).sort()),
    ruleFiles: typed([], () => monitored().ruleFiles),
    scrapeConfigs: typed([], () => {
      try {
        const { text, secrets } = monitored().scrapeConfigs();
        access.readSecret ||= secrets.size > 0;
        for (const secret of secrets) access.secrets.add(secret);
        return text;
      } catch (error) {
        access.missesKey = error instanceof Failure && error.code === "ErrKeyMissing";
        throw error;
      }
    }),
  };
  const access: TemplateAccess = { functions, readSecret: false, secrets: new Set(), own: new Set(), missesKey: false };
  return access;
}

/** The folder of an allocation's staged files: `tmp/workers/<worker>/jobs/<job>/`. */
export function stagingFolder(layout: Layout, worker: string, job: string): string {
  return path.join(layout.stagedWorkers, worker, "jobs", job);
}

/**
 * Writes the files of an allocation to its staging folder, which then holds nothing else; only their owner may read
 * them there, whatever rights they get on the worker.
 */
export async function writeStaging(folder: string, files: readonly StagedFile[]): Promise<void> {
  await remove(folder);
  const placed = files.map((file) => ({ ...file, target: path.join(folder, file.path) }));
  for (const one of new Set([folder, ...placed.map(({ target }) => path.dirname(target))])) await makePrivateFolder(one);
  for (const { target, content, mode } of placed) await createFile(target, content, mode & PRIVATE_FOLDER);
}
