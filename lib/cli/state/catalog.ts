import { bytesOf } from "../../bucket/base/contents.ts";
import type { CatalogJob } from "../../bucket/base/model.ts";
import { catalogFile, catalogJobs } from "../../bucket/catalog/catalog.ts";
import { jobsNamed } from "../../bucket/catalog/choices.ts";
import { type JobSecret, SECRET_KEY } from "../../bucket/catalog/job-secret.ts";
import type { ViewName } from "../../bucket/catalog/views.ts";
import { KvStore } from "../../bucket/kv/kv.ts";
import { loadKvKey } from "../../bucket/kv/kv-access.ts";
import { toYaml } from "../../codec/config/yaml.ts";
import { Failure } from "../../core/errors.ts";
import { decodeUtf8 } from "../../core/plain-text.ts";
import { quote } from "../../core/shape.ts";
import { openBucket } from "../../server/reading.ts";
import { secretTyped, stdinBytes } from "../base/ask.ts";
import { bucketDir, EXIT, flagList, flagNumber, type Parsed, wantsJson } from "../base/flags.ts";
import { type Cell, printAnswer, printJson, tableOf, toStderr, toStdout } from "../base/terminal.ts";
import { initialisedBucket } from "../bucket/bucket.ts";
import type { BucketAccess, Cells } from "./access.ts";
import { shortReason } from "./status.ts";

/** Columns with long text, and how many characters of it a table shows. */
const LONG: readonly string[] = ["namespace", "key", "value", "last_reason"];
const VALUE_LENGTH = 50;
/** Columns that a table does without; `--json` has them. */
const LEFT_OUT: Partial<Record<ViewName, readonly string[]>> = {
  jobs: ["deployment_seq", "after", "cpu_source", "memory_source"],
  deployments: ["allocation_id", "deployment_seq", "current_hash", "previous_hash", "disabled", "removed", "last_run"],
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
export async function showInfo(bucket: BucketAccess, input: Parsed): Promise<number> {
  const info = await bucket.info();
  const columns = { bucket: ([name]: [string, Cell]) => name.replaceAll("_", " "), value: ([, value]: [string, Cell]) => value };
  return printAnswer(input, info, () => tableOf(Object.entries(info), columns));
}

/** `ops cat <resource>`. Throws `ErrNotFound` when there is nothing to show because the bucket was never built. */
export async function showView(name: ViewName, bucket: BucketAccess, input: Parsed): Promise<number> {
  const query = {
    jobs: flagList(input, "jobs"),
    workers: flagList(input, "workers"),
    active: input.switches.has("active"),
    state: flagList(input, "state"),
    outcome: flagList(input, "outcome"),
    deleted: input.switches.has("deleted"),
  };
  const { columns, items } = await bucket.view(name, query);
  const state = query.state ? " in that state" : "";
  const none = `there are no ${name}${query.outcome ? " with that outcome" : state}`;
  if (items.length === 0 && !wantsJson(input) && (await bucket.info()).built_at === null)
    throw new Failure("ErrNotFound", `${none}: the bucket was never built`);
  const rows = name === "deployments" ? items.map(inShort) : items;
  // A column that says nothing in any row is left out.
  const isTold = (column: string) => rows.some((row) => ![0, "", false, null, undefined].includes(row[column]));
  const shown = columns.filter((column) => !LEFT_OUT[name]?.includes(column) && isTold(column));
  return printAnswer(input, items, () => (items.length === 0 ? `${none}\n` : cellTable(rows, shown)));
}

/** `ops cat kv get <namespace> <key>`. */
export async function showKey(bucket: BucketAccess, input: Parsed): Promise<number> {
  const [namespace = "", key = ""] = input.operands;
  const shown = await bucket.key(namespace, key, input.switches.has("reveal"));
  if (!shown) throw new Failure("ErrNotFound", `there is no key ${quote(key)} in namespace ${quote(namespace)}`);
  const lines = Object.entries(shown).map(([name, text]) => `${name.replaceAll("_", " ")}: ${text}\n`);
  return printAnswer(input, shown, lines.join(""));
}

/** Loaded when it is asked for, so that the other commands start fast. */
const prometheus = () => import("../../bucket/prometheus/scrape.ts");

/**
 * `ops cat prometheus`: what each job has below `_prometheus/`. This resource is not available remotely (control-plane.md,
 * Ownership boundary 4).
 */
export async function showPrometheus(input: Parsed): Promise<number> {
  using db = await openBucket(await initialisedBucket(bucketDir(input)));
  const rows = (await prometheus()).prometheusRows(db, flagList(input, "jobs"));
  const [first] = rows;
  return printAnswer(input, rows, () =>
    first ? cellTable(rows, Object.keys(first)) : "no job has anything below _prometheus/\n",
  );
}

/** `ops cat prometheus get <job> <path>`: a file as it was built. Throws `ErrNotFound`. */
export async function printPrometheusFile(input: Parsed): Promise<number> {
  const [job = "", file = ""] = input.operands;
  using db = await openBucket(await initialisedBucket(bucketDir(input)));
  const [{ name }] = jobsNamed(catalogJobs(db), [job]) as [CatalogJob];
  const found = catalogFile(db, name, `_prometheus/${file}`);
  if (!found) throw new Failure("ErrNotFound", `job ${job} has no file ${quote(file)} below _prometheus/`);
  printText(bytesOf(found.content));
  return EXIT.done;
}

/** `ops cat prometheus scrape`: the scrape configurations of the jobs in one YAML list. */
export async function showScrape(input: Parsed): Promise<number> {
  const layout = await initialisedBucket(bucketDir(input));
  using db = await openBucket(layout);
  const kv = new KvStore(db, await loadKvKey(layout));
  const wanted = { jobs: flagList(input, "jobs"), reveal: input.switches.has("reveal") };
  const configs = (await prometheus()).scrapeConfigs(db, kv, wanted);
  if (wantsJson(input)) printJson(configs);
  else printText(toYaml(configs));
  return EXIT.done;
}

/** `ops kv set-secret <job> <key>` and `ops notify set-secret <key>`: stores what stdin holds, sealed. */
export async function storeSecret(bucket: BucketAccess, input: Parsed): Promise<number> {
  const secret = { ...secretOf(input), ttlSeconds: flagNumber(input, "ttl") };
  await bucket.changeSecret({ ...secret, value: await readSecret() });
  return changed(secret, "stored", input);
}

/** `ops kv delete-secret <job> <key>` and `ops notify delete-secret <key>`. */
export async function removeSecret(bucket: BucketAccess, input: Parsed): Promise<number> {
  const secret = secretOf(input);
  await bucket.changeSecret(secret);
  return changed(secret, "deleted", input);
}

function changed({ job, key }: JobSecret, how: string, input: Parsed): number {
  if (wantsJson(input)) printJson({ job, key });
  toStderr(`secret ${key} of ${job === null ? "notify.json" : `job ${job}`} is ${how}\n`);
  return EXIT.done;
}

function secretOf({ operands }: Parsed): JobSecret {
  const [key = "", job] = operands.toReversed();
  if (SECRET_KEY.test(key)) return { job: job?.toLowerCase() ?? null, key };
  throw new Failure("usage", `key: expected one line of text, found ${quote(key)}`);
}

async function readSecret(): Promise<string> {
  const question = "Type the value, then Enter and Ctrl-D; it is not shown:\n";
  const bytes = process.stdin.isTTY ? Buffer.from(await secretTyped(question)) : await stdinBytes(SECRET_BYTES);
  const text = decodeUtf8(bytes);
  if (text === undefined) throw new Failure("usage", "the value on stdin is not UTF-8 text: encode it, for example with base64");
  if (text === "") throw new Failure("usage", "the value on stdin is empty");
  if (text.endsWith("\n")) toStderr("note: the value ends with a newline, which is kept; printf leaves it out\n");
  return text;
}

/** The version with the one that is to come, and the last action with its outcome, in one cell each. */
function inShort(row: Record<string, Cell>): Record<string, Cell> {
  const { current_version: now, new_version: next, last_action: action, last_outcome: outcome } = row;
  return {
    ...row,
    current_version: (now === next ? now : `${now} → ${next}`) as Cell,
    new_version: "",
    last_action: `${action} ${outcome}`.trim(),
    last_reason: shortReason(String(row.last_reason)),
    last_outcome: "",
  };
}

/** These columns of rows as a table. */
function cellTable(rows: readonly Cells[], columns: readonly string[]): string {
  const cell = (column: string) => (row: Cells) => shortened(column, row[column] ?? null);
  return tableOf(rows, Object.fromEntries(columns.map((column) => [HEADS[column] ?? column, cell(column)])));
}

/** The cell of a column; long text is cut to the beginning of its first line. */
function shortened(column: string, value: Cell): Cell {
  if (!LONG.includes(column) || typeof value !== "string") return value;
  const [line = ""] = value.split("\n");
  const cut = line.slice(0, VALUE_LENGTH);
  return cut === value ? value : `${cut}…`;
}

/** Prints text to a pipe byte for byte; on a terminal control characters are escaped. */
function printText(text: string | Buffer): void {
  if (process.stdout.isTTY) toStdout(String(text));
  else process.stdout.write(text);
}
