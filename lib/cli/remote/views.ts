import { buffer } from "node:stream/consumers";
import type { ViewName } from "../../bucket/catalog/views.ts";
import { Failure } from "../../core/errors.ts";
import { counted } from "../../core/plain-text.ts";
import { list, oneOf, optional, parsedJson, string } from "../../core/shape.ts";
import { FINDING_GRADES } from "../../operation/tend/doctor-bucket.ts";
import { EXIT, flagList, type Parsed, type Target, wantsJson } from "../base/flags.ts";
import { type Cell, printJson, toStdout } from "../base/terminal.ts";
import {
  noKey,
  noPrometheusFile,
  removeSecret,
  showInfo,
  showKey,
  showPrometheus,
  showPrometheusFile,
  showScrape,
  showView,
  storeSecret,
  viewQuery,
} from "../bucket/catalog.ts";
import { showFindings } from "../bucket/doctor.ts";
import { showSnapshots } from "../bucket/upkeep.ts";
import { answerWith, expectAnswer, type Item, openRemoteBucket, PAGE_FIELDS, type RemoteBucket } from "./remote-bucket.ts";

const ROWS = answerWith({ ...PAGE_FIELDS, columns: list(string()) });

/** `ops info` of a bucket on a server. */
export async function remoteInfo(input: Parsed, target: Target): Promise<number> {
  const info = await (await openRemoteBucket(target)).get("/info");
  return showInfo(info as Record<string, Cell>, input);
}

/** `ops cat <resource>` on a server. */
export async function remoteView(name: ViewName, input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  return showView(name, await viewRows(bucket, name, viewQuery(input)), input);
}

async function viewRows(bucket: RemoteBucket, name: ViewName, query: Partial<ReturnType<typeof viewQuery>>) {
  const items: Item[] = [];
  for (let cursor: unknown; ; ) {
    const page = await bucket.get(`/cat/${name}`, { ...query, ...(cursor !== undefined && { cursor: String(cursor) }) });
    const { items: more, next_cursor: next, columns } = expectAnswer(ROWS, page);
    items.push(...more);
    cursor = next;
    if (cursor === undefined) return { columns, items: items as Record<string, Cell>[] };
  }
}

/** `ops cat kv get <namespace> <key>` on a server, which reveals no secret. */
export async function remoteKey(input: Parsed, target: Target): Promise<number> {
  const [namespace = "", key = ""] = input.operands;
  refuseReveal(input);
  const { items } = await viewRows(await openRemoteBucket(target), "kv", {});
  const entry = items.find((one) => one.namespace === namespace && one.key === key);
  if (!entry) throw noKey(namespace, key);
  const { value = null, version = null, ttl = null, created_date = null } = entry;
  return showKey({ namespace, key, value, version, ttl, created_date }, input);
}

function refuseReveal({ switches }: Parsed): void {
  if (switches.has("reveal")) throw new Failure("usage", "--reveal: a server sends no secret back; use it where the bucket is");
}

/** `ops cat prometheus` on a server. */
export async function remotePrometheus(input: Parsed, target: Target): Promise<number> {
  const jobs = flagList(input, "jobs");
  const { items } = await (await openRemoteBucket(target)).get("/prometheus", { jobs });
  return showPrometheus(items as Record<string, Cell>[], input);
}

/** `ops cat prometheus get <job> <path>` on a server. */
export async function remotePrometheusFile(input: Parsed, target: Target): Promise<number> {
  const [job = "", file = ""] = input.operands;
  const bucket = await openRemoteBucket(target);
  // Says so where there is no such job.
  await bucket.get("/prometheus", { jobs: [job] });
  const parts = file.split("/");
  if (parts.some((part) => /^\.{0,2}$/.test(part))) throw noPrometheusFile(job, file);
  const place = bucket.path("/jobs", job.toLowerCase(), "files", "_prometheus", ...parts);
  try {
    return showPrometheusFile(await buffer(bucket.client.stream("GET", place)));
  } catch (error) {
    throw error instanceof Failure && error.code === "file_not_found" ? noPrometheusFile(job, file) : error;
  }
}

/** `ops cat prometheus scrape` on a server, which reveals no secret. */
export async function remoteScrape(input: Parsed, target: Target): Promise<number> {
  const jobs = flagList(input, "jobs");
  refuseReveal(input);
  const { items } = await (await openRemoteBucket(target)).get("/prometheus/scrape", { jobs });
  return showScrape(items as Parameters<typeof showScrape>[0], input);
}

/** `ops kv set-secret <job> <key>` on a server. */
export async function remoteSetSecret(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  return await storeSecret(input, ({ job, key, value, ttlSeconds: ttl }) =>
    bucket.client.call("PUT", bucket.path("/secrets/jobs", job, key), { json: { value, ttl } }),
  );
}

/** `ops kv delete-secret <job> <key>` on a server. */
export async function remoteDeleteSecret(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  return await removeSecret(input, ({ job, key }) => bucket.client.call("DELETE", bucket.path("/secrets/jobs", job, key)));
}

const FINDING = answerWith({
  grade: oneOf(...FINDING_GRADES),
  where: string(),
  check: string(),
  message: string(),
  advice: optional(string()),
});

/** `ops doctor` on a server: its host, the bucket and the workers as they are seen from there. */
export async function remoteDoctor(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const lines = (await buffer(bucket.stream("/doctor", {}, { silenceMs: LONG_SILENCE_MS }))).toString().trimEnd().split("\n");
  const findings = lines.map((line) => expectAnswer(FINDING, parsedJson(line) as Item));
  return showFindings(
    findings.map((one) => ({ ...one, advice: one.advice ?? null })),
    input,
  );
}

/** `ops snapshot list` on a server. */
export async function remoteSnapshots(input: Parsed, target: Target): Promise<number> {
  const items = await (await openRemoteBucket(target)).all("/snapshots");
  return showSnapshots(items as unknown as Parameters<typeof showSnapshots>[0], input);
}

/** How long a server may take for the check of a snapshot. */
const LONG_SILENCE_MS = 600_000;

/** `ops snapshot verify` on a server. */
export async function remoteVerifySnapshot(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const name = await bucket.snapshotNamed(input.operands[0] ?? "");
  const path = bucket.path("/snapshots", name, "verify");
  const found = await bucket.client.call("POST", path, { json: {}, silenceMs: LONG_SILENCE_MS });
  if (typeof found.error === "string") throw new Failure("failed", found.error);
  const { files, size_bytes: bytes, sealed_values: sealed } = found as Record<string, number>;
  if (wantsJson(input)) printJson({ name, ...found });
  else
    toStdout(
      `the snapshot ${name} can be restored: ${counted(files ?? 0, "file")}, ${counted(bytes ?? 0, "byte")}, ${counted(sealed ?? 0, "sealed value")} opened\n`,
    );
  return EXIT.done;
}

/** `ops snapshot delete` on a server. */
export async function remoteDeleteSnapshot(input: Parsed, target: Target): Promise<number> {
  const bucket = await openRemoteBucket(target);
  const name = await bucket.snapshotNamed(input.operands[0] ?? "");
  await bucket.client.call("DELETE", bucket.path("/snapshots", name));
  if (wantsJson(input)) printJson({ name });
  else toStdout(`snapshot ${name} is removed\n`);
  return EXIT.done;
}
