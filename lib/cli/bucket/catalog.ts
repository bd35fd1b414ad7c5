import { bytesOf } from "../../bucket/base/contents.ts";
import { type Layout, layoutOf } from "../../bucket/base/layout.ts";
import type { CatalogJob } from "../../bucket/base/model.ts";
import { catalogFile, catalogJobs } from "../../bucket/catalog/catalog.ts";
import { jobsNamed } from "../../bucket/catalog/choices.ts";
import { bucketInfo } from "../../bucket/catalog/info.ts";
import { changeJobSecret, type JobSecret, SECRET_KEY } from "../../bucket/catalog/job-secret.ts";
import { catalogView, type ViewName } from "../../bucket/catalog/views.ts";
import { KvStore } from "../../bucket/kv/kv.ts";
import { fingerprintsOf, isPrivateKey, isSealed, loadKvKey } from "../../bucket/kv/kv-access.ts";
import { prometheusRows, scrapeConfigs } from "../../bucket/prometheus/scrape.ts";
import { toYaml } from "../../codec/config/yaml.ts";
import { uuidV7 } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { decodeUtf8 } from "../../core/plain-text.ts";
import { quote } from "../../core/shape.ts";
import { takeBucket } from "../../run/recovery.ts";
import { openBucket } from "../../server/reading.ts";
import { secretTyped, stdinBytes } from "../base/ask.ts";
import { bucketDir, EXIT, flagList, flagNumber, type Parsed, wantsJson } from "../base/flags.ts";
import { type Cell, printJson, printTable, toStderr, toStdout } from "../base/terminal.ts";

const ALL_ROWS = 10_000_000;
/** Columns with long text, and how many characters of it a table shows. */
const LONG: readonly string[] = ["namespace", "key", "value", "last_reason"];
const VALUE_LENGTH = 50;
/** Columns that a table does without; `--json` has them. */
const LEFT_OUT: Partial<Record<ViewName, readonly string[]>> = {
  jobs: ["deployment_seq", "after", "cpu_source", "memory_source"],
  deployments: ["allocation_id", "current_hash", "previous_hash", "disabled", "removed", "last_run"],
};
/** Short heads for long names. */
const HEADS: Readonly<Record<string, string>> = {
  worker_ip: "worker",
  current_version: "version",
  last_action: "last",
  last_reason: "reason",
};
const SECRET_BYTES = 1024 * 1024;

/** `ops info`. */
export async function infoCommand(input: Parsed): Promise<number> {
  using db = await openBucket(layoutOf(bucketDir(input)));
  return showInfo({ ...bucketInfo(db) }, input);
}

/** Shows what a bucket is and how much is in it. */
export function showInfo(info: Record<string, Cell>, input: Parsed): number {
  const rows = Object.entries(info).map(([name, value]) => [name.replaceAll("_", " "), value] as const);
  if (wantsJson(input)) printJson(info);
  else printTable(["bucket", "value"], rows);
  return EXIT.done;
}

/** The hooks of all jobs of the bucket in a folder, a row for each event. */
export async function catalogHooks(dir: string) {
  using db = await openBucket(layoutOf(dir));
  return catalogView(db, "hooks", {}, { limit: ALL_ROWS }).items;
}

/** `ops cat <resource>`. Throws `ErrNotFound` when there is nothing to show. */
export async function catCommand(name: ViewName, input: Parsed): Promise<number> {
  const layout = layoutOf(bucketDir(input));
  using db = await openBucket(layout);
  const fingerprintOf = name === "kv" ? await fingerprintsOf(layout) : undefined;
  return showView(name, catalogView(db, name, viewQuery(input), { limit: ALL_ROWS, fingerprintOf }), input);
}

/** What the flags of `ops cat` ask for. */
export function viewQuery(input: Parsed) {
  return {
    jobs: flagList(input, "jobs"),
    workers: flagList(input, "workers"),
    active: input.switches.has("active"),
    state: flagList(input, "state"),
    outcome: flagList(input, "outcome"),
    deleted: input.switches.has("deleted"),
  };
}

/** Rows of the catalog, and the names of their columns in order. */
interface Rows {
  columns: readonly string[];
  items: readonly Record<string, Cell>[];
}

/** Shows rows of the catalog. Throws `ErrNotFound` where there are none. */
export function showView(name: ViewName, { columns, items }: Rows, input: Parsed): number {
  const query = viewQuery(input);
  const missing = query.state ? " in that state" : ": has the bucket been built?";
  const why = query.outcome ? " with that outcome" : missing;
  if (wantsJson(input)) printJson(items);
  else if (items.length === 0) throw new Failure("ErrNotFound", `there are no ${name} to show${why}`);
  else {
    const rows = name === "deployments" ? items.map(inShort) : items;
    // A column that says nothing in any row is left out.
    const isTold = (column: string) => rows.some((row) => ![0, "", false, null, undefined].includes(row[column]));
    const shown = columns.filter((column) => !LEFT_OUT[name]?.includes(column) && isTold(column));
    const heads = shown.map((column) => HEADS[column] ?? column);
    printTable(
      heads,
      rows.map((row) => shown.map((column) => shortened(column, row[column] ?? null))),
    );
  }
  return EXIT.done;
}

/**
 * `ops cat kv get <namespace> <key>`; the value of a secret only with `--reveal`, that of a private key never. Throws
 * `ErrNotFound`.
 */
export async function kvGetCommand(input: Parsed): Promise<number> {
  const [namespace = "", key = ""] = input.operands;
  const layout = layoutOf(bucketDir(input));
  using db = await openBucket(layout);
  const kv = new KvStore(db, await loadKvKey(layout));
  const entry = kv.entry(namespace, key);
  if (!entry) throw noKey(namespace, key);
  const isHidden = isPrivateKey(namespace, key) || (isSealed(namespace, key) && !input.switches.has("reveal"));
  const value = isHidden ? "[encrypted]" : (kv.get(namespace, key) ?? "");
  const { version, ttl, createdMs } = entry;
  return showKey({ namespace, key, value, version, ttl, created_date: new Date(createdMs).toISOString() }, input);
}

/** Shows one key with its value. */
export function showKey(shown: Record<string, Cell>, input: Parsed): number {
  if (wantsJson(input)) printJson(shown);
  else for (const [name, text] of Object.entries(shown)) toStdout(`${name.replaceAll("_", " ")}: ${text}\n`);
  return EXIT.done;
}

/** The failure of asking for a key that is not there. */
export function noKey(namespace: string, key: string): Failure {
  return new Failure("ErrNotFound", `there is no key ${quote(key)} in namespace ${quote(namespace)}`);
}

/** `ops cat prometheus`: what each job has below `_prometheus/`. Throws `ErrNotFound` when no job has anything. */
export async function prometheusCommand(input: Parsed): Promise<number> {
  const jobs = flagList(input, "jobs");
  using db = await openBucket(layoutOf(bucketDir(input)));
  return showPrometheus(prometheusRows(db, jobs), input);
}

/** Shows what each job has for Prometheus. Throws `ErrNotFound` without rows. */
export function showPrometheus(rows: readonly Record<string, Cell>[], input: Parsed): number {
  const columns = Object.keys(rows[0] ?? {});
  if (wantsJson(input)) printJson(rows);
  else if (rows.length === 0) throw new Failure("ErrNotFound", "no job has anything below _prometheus/");
  else
    printTable(
      columns,
      rows.map((row) => columns.map((column) => row[column] ?? null)),
    );
  return EXIT.done;
}

/**
 * `ops cat prometheus get <job> <path>`: a file as it was built. Throws `ErrNotFound`.
 */
export async function prometheusGetCommand(input: Parsed): Promise<number> {
  const [job = "", file = ""] = input.operands;
  using db = await openBucket(layoutOf(bucketDir(input)));
  const [{ name }] = jobsNamed(catalogJobs(db), [job]) as [CatalogJob];
  const found = catalogFile(db, name, `_prometheus/${file}`);
  if (!found) throw noPrometheusFile(job, file);
  return showPrometheusFile(bytesOf(found.content));
}

/** The failure of asking for a file that the job does not have for Prometheus. */
export function noPrometheusFile(job: string, file: string): Failure {
  return new Failure("ErrNotFound", `job ${job} has no file ${quote(file)} below _prometheus/`);
}

/** Prints a file that a job has for Prometheus. */
export function showPrometheusFile(content: Buffer): number {
  printText(content);
  return EXIT.done;
}

/** `ops cat prometheus scrape`: the scrape configurations of the jobs in one YAML list. */
export async function prometheusScrapeCommand(input: Parsed): Promise<number> {
  const jobs = flagList(input, "jobs");
  const layout = layoutOf(bucketDir(input));
  using db = await openBucket(layout);
  const kv = new KvStore(db, await loadKvKey(layout));
  return showScrape(scrapeConfigs(db, kv, { jobs, reveal: input.switches.has("reveal") }), input);
}

/** Shows what Prometheus has to scrape. */
export function showScrape(configs: Parameters<typeof toYaml>[0], input: Parsed): number {
  if (wantsJson(input)) printJson(configs);
  else printText(toYaml(configs));
  return EXIT.done;
}

/** `ops kv set-secret <job> <key>`: stores what stdin holds, sealed, under the bucket's lock. */
export async function setSecretCommand(input: Parsed): Promise<number> {
  const layout = layoutOf(bucketDir(input));
  (await openBucket(layout)).close();
  return await storeSecret(input, changeSecretIn(layout, "kv set-secret"));
}

/** `ops kv delete-secret <job> <key>`, under the bucket's lock. */
export async function deleteSecretCommand(input: Parsed): Promise<number> {
  const layout = layoutOf(bucketDir(input));
  (await openBucket(layout)).close();
  return await removeSecret(input, changeSecretIn(layout, "kv delete-secret"));
}

/** Stores a secret, or removes one without a value. */
type ChangeSecret = (secret: JobSecret) => Promise<unknown>;

function changeSecretIn(layout: Layout, command: string): ChangeSecret {
  return async (secret) => {
    await using _ = await takeBucket(layout, uuidV7(), command);
    await changeJobSecret(layout, secret);
  };
}

/** Reads a secret from stdin and stores it. */
export async function storeSecret(input: Parsed, change: ChangeSecret): Promise<number> {
  const secret = { ...secretOf(input), ttlSeconds: flagNumber(input, "ttl") };
  await change({ ...secret, value: await readSecret() });
  if (wantsJson(input)) printJson({ job: secret.job, key: secret.key });
  toStderr(`secret ${secret.key} of job ${secret.job} is stored\n`);
  return EXIT.done;
}

/** Removes a secret. */
export async function removeSecret(input: Parsed, change: ChangeSecret): Promise<number> {
  const secret = secretOf(input);
  await change(secret);
  if (wantsJson(input)) printJson({ job: secret.job, key: secret.key });
  toStderr(`secret ${secret.key} of job ${secret.job} is deleted\n`);
  return EXIT.done;
}

function secretOf({ operands: [job = "", key = ""] }: Parsed): JobSecret {
  if (SECRET_KEY.test(key)) return { job: job.toLowerCase(), key };
  throw new Failure("usage", `key: expected one line of text, found ${quote(key)}`);
}

async function readSecret(): Promise<string> {
  const question = "Type the value, then Enter and Ctrl-D; it is not shown:\n";
  const bytes = process.stdin.isTTY ? Buffer.from(await secretTyped(question)) : await stdinBytes(SECRET_BYTES);
  if (bytes.length > SECRET_BYTES) throw new Failure("usage", "the value on stdin is larger than 1 MiB");
  const text = decodeUtf8(bytes);
  if (text === undefined) throw new Failure("usage", "the value on stdin is not UTF-8 text: encode it, for example with base64");
  if (text === "") throw new Failure("usage", "the value on stdin is empty");
  if (text.endsWith("\n")) toStderr("note: the value ends with a newline, which is kept; printf leaves it out\n");
  return text;
}

/** The version with the one that is to come, and the last action with its outcome, in one cell each. */
function inShort(row: Record<string, Cell>): Record<string, Cell> {
  const { current_version: now, new_version: next, last_action: action, last_outcome: outcome } = row;
  const current_version = now === next ? now : `${now} → ${next}`;
  return {
    ...row,
    current_version: current_version as Cell,
    new_version: "",
    last_action: `${action} ${outcome}`.trim(),
    last_outcome: "",
  };
}

/** The cell of a column; long text is cut to the beginning of its first line. */
function shortened(column: string, value: Cell): Cell {
  if (!LONG.includes(column) || typeof value !== "string") return value;
  const [line = ""] = value.split("\n");
  const cut = line.length > VALUE_LENGTH ? line.slice(0, VALUE_LENGTH) : line;
  return cut === value ? value : `${cut}…`;
}

/** Prints text to a pipe byte for byte; on a terminal control characters are escaped. */
function printText(text: string | Buffer): void {
  if (process.stdout.isTTY) toStdout(String(text));
  else process.stdout.write(text);
}
