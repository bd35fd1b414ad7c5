import { SKIPPED_FOLDERS, SOURCE_PATHS } from "../../bucket/base/layout.ts";
import { type PackedSource, packSource } from "../../bucket/source/source-rules.ts";
import { idNamed, isUuid } from "../../codec/uuid.ts";
import { sleep } from "../../core/async.ts";
import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import { realPlace } from "../../core/files.ts";
import { byteSize } from "../../core/plain-text.ts";
import { boolean, check, type Infer, integer, list, object, optional, quote, type Shape, string } from "../../core/shape.ts";
import { Launcher } from "../../core/spawn.ts";
import { RUN_STATUS } from "../../run/protocol.ts";
import type { Parsed } from "../base/flags.ts";
import { type StopRequest, stopRequest, textTable, toStderr, toStdout } from "../base/terminal.ts";
import { type ApiClient, isUnreachable, jsonOf, openClient, parseBaseUrl } from "./client.ts";

/** A change of a bucket's source on a server, and the functions that follow the run. */
interface SourceChange {
  baseUrl: string;
  /** The bucket's UUID on the server. */
  bucket: string;
  token: string;
  caFile?: string | undefined;
  /** A TOTP code, verified once before anything else. */
  totp?: string | undefined;
  /** Ends the upload or, once there is a run, makes the server cancel the run. */
  signal: AbortSignal;
  /** Gets sentences about the progress, without newline. */
  progress: (text: string) => void;
  /** Gets the run's Activity as it comes. */
  output: (text: string) => void;
}

/** A push of the bucket in `dir`; the note is stored with the revision. */
interface Push extends SourceChange {
  dir: string;
  note?: string | undefined;
}

const PROGRESS_BYTES = 8 * 1024 * 1024;
const POLL_SECONDS = 30;
const IDLE_MS = 200;
const GIT_MS = 10_000;
const RETRY_AFTER_MS = [200, 1_000, 3_000];
const CANCEL_SILENCE_MS = 10_000;

const UUID = string({ pattern: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, means: "a UUID" });
const STARTED = answerWith({ run_id: UUID });
const CHUNK = answerWith({ next: integer({ min: 0 }), data: string(), done: boolean() });
const REVISION = answerWith({
  id: UUID,
  created_at: string(),
  build_status: string(),
  current: boolean(),
  last_successful: boolean(),
  note: optional(string()),
  commit: optional(string()),
});
const REVISIONS = answerWith({ items: list(REVISION) });
const RUN = answerWith({ status: RUN_STATUS, error: optional(string()) });

/** `ops push <base_url> --bucket <id>` with the token in OPS_SERVE_TOKEN (control-plane.md, Source push). */
export async function pushCommand(input: Parsed): Promise<number> {
  using stop = stopRequest();
  return await push({ ...changeOf(input, stop), dir: realPlace(input.values.get("dir") ?? "."), note: input.values.get("note") });
}

/** `ops push rollback <base_url> --bucket <id>`, with the token in the same place. */
export async function rollbackCommand(input: Parsed): Promise<number> {
  using stop = stopRequest();
  return await rollback({ ...changeOf(input, stop), revision: input.values.get("revision") });
}

function changeOf(input: Parsed, { signal }: StopRequest): SourceChange {
  const bucket = input.values.get("bucket");
  if (bucket === undefined) throw new Failure("usage", "--bucket is missing: the UUID of the bucket on the server");
  const token = process.env.OPS_SERVE_TOKEN;
  if (!token) throw new Failure("usage", "no token: set OPS_SERVE_TOKEN to the server's API token");
  return {
    baseUrl: input.operands[0] as string,
    bucket,
    token,
    caFile: input.values.get("ca-file"),
    totp: input.values.get("totp"),
    signal,
    progress: (text) => toStderr(`${text}\n`),
    output: (text) => toStdout(text),
  };
}

/**
 * Sends the source of the local bucket in `dir` to a server and follows the build (control-plane.md, Source push). Answers
 * the exit code: 0 the build succeeded, 1 the build failed, 130 the build or the push was cancelled. Without an outcome,
 * throws `usage`, `bucket_busy`, `invalid_source` for a source that cannot be packed, else `failed`.
 */
export function push(options: Push): Promise<number> {
  const { note = "-" } = options;
  if (!/^[^\p{C}\p{Zl}\p{Zp}]{1,200}$/u.test(note))
    throw new Failure("usage", "--note: expected one line of at most 200 characters");
  return change(options, "accepted", (client, bucket) => upload(client, bucket, options));
}

/**
 * Rolls the source on the server back to a revision, by default the last successful one; otherwise like {@link push}. Where
 * that is the source already, nothing is started: the revisions are shown.
 */
export function rollback(options: SourceChange & { revision?: string | undefined }): Promise<number> {
  const { revision, signal } = options;
  return change(options, "rolled back", async (client, bucket) => {
    const answer = await client.call("GET", `${bucket}/source/revisions`, { signal });
    const revisions = expect(REVISIONS, answer).items;
    const last = revisions.find((one) => one.last_successful);
    if (revision === undefined && last?.current) return void options.output(unchangedSource(revisions));
    const id =
      revision &&
      idNamed(
        revision,
        revisions.map((one) => one.id),
        "revision",
      );
    const sent = jsonOf({ revision_id: id });
    const path = `${bucket}/source/rollback`;
    return expect(STARTED, await client.call("POST", path, { ...sent, signal })).run_id;
  });
}

function unchangedSource(revisions: Infer<typeof REVISIONS>["items"]): string {
  const rows = revisions.map(({ id, created_at, build_status, note, commit, current, last_successful }) => {
    const marks = [...(current ? ["current"] : []), ...(last_successful ? ["last successful"] : [])];
    return [id, created_at, build_status, commit?.replace(/^(.{8})[^-]*/, "$1") ?? null, note ?? null, marks.join(", ")];
  });
  const columns = ["revision", "created_at", "build", "commit", "note", ""];
  return `nothing is changed: the last successful revision is the source; others are named with --revision\n${textTable(columns, rows, process.stdout.columns)}`;
}

/** Starts the run that changes the source and follows it to its end. */
async function change(
  options: SourceChange,
  done: string,
  start: (client: ApiClient, bucket: string) => Promise<string | undefined>,
): Promise<number> {
  const id = options.bucket.toLowerCase();
  if (!isUuid(id)) throw new Failure("usage", `Cannot push to ${quote(options.bucket)}: a bucket is named by its UUID`);
  const client = await openClient(parseBaseUrl(options.baseUrl), options.token, options.caFile);
  const bucket = `/api/buckets/${id}`;
  let run: string | undefined;
  try {
    if (options.totp !== undefined) await client.verifyTotp(options.totp, options.signal);
    const runId = await start(client, bucket);
    if (runId === undefined) return 0;
    run = `${bucket}/runs/${runId}`;
    options.progress(`the source was ${done}; run ${runId} builds it`);
    await follow(client, run, options);
    return await outcomeOfBuild(client, run, options);
  } catch (error) {
    if (!options.signal.aborted) throw error;
    if (run !== undefined) await cancel(client, run, options);
    return 130;
  }
}

/** Sends the source and answers the id of the run that builds it. */
async function upload(client: ApiClient, bucket: string, options: Push): Promise<string> {
  const packed = await packSource(options.dir);
  options.progress(`sending ${packed.files} ${packed.files === 1 ? "file" : "files"}, ${byteSize(packed.bytes)}`);
  const body = reported(packed, options.progress);
  const type = "application/x-tar";
  const { note, dir, signal } = options;
  const commit = await commitOf(dir, signal);
  const headers = { ...(note && { "Ops-Note": encodeURIComponent(note) }), ...(commit && { "Ops-Commit": commit }) };
  const started = await client.call("POST", `${bucket}/push`, { body, type, headers, signal });
  return expect(STARTED, started).run_id;
}

/**
 * The Git commit of a folder, with `-dirty` where the source differs from it; undefined where Git, or a commit, is missing.
 */
async function commitOf(dir: string, signal: AbortSignal): Promise<string | undefined> {
  const { PATH = "", HOME = "" } = process.env;
  const launcher = new Launcher({ PATH, HOME, LC_ALL: "C", GIT_OPTIONAL_LOCKS: "0" });
  const git = async (...words: string[]) => {
    const argv: [string, ...string[]] = ["git", "-C", dir, "-c", "core.fsmonitor=false", ...words];
    const { exitCode, stdout } = await launcher.run(argv, { timeoutMs: GIT_MS, signal });
    return exitCode === 0 ? stdout : undefined;
  };
  try {
    const commit = (await git("rev-parse", "--verify", "HEAD"))?.trim();
    if (commit === undefined || !/^[0-9a-f]{40}([0-9a-f]{24})?$/.test(commit)) return undefined;
    const skipped = [...SKIPPED_FOLDERS].map((folder) => `:(exclude,glob)**/${folder}/**`);
    // A push sends what Git ignores, too.
    const changes = await git("status", "--porcelain", "--untracked-files=all", "--ignored", "--", ...SOURCE_PATHS, ...skipped);
    return changes === "" ? commit : `${commit}-dirty`;
  } catch {
    throwIfCancelled(signal);
    return undefined;
  }
}

/** The archive; tells the progress every 8 MiB. */
async function* reported(packed: PackedSource, progress: SourceChange["progress"]): AsyncGenerator<Uint8Array> {
  let sent = 0;
  for await (const chunk of packed.archive) {
    yield chunk;
    const before = sent;
    sent += chunk.length;
    if (Math.floor(sent / PROGRESS_BYTES) > Math.floor(before / PROGRESS_BYTES))
      progress(`sent ${byteSize(sent)} of ${byteSize(packed.bytes)}`);
  }
}

/** Hands out the Activity of a run until it has ended. */
async function follow(client: ApiClient, run: string, { signal, output }: SourceChange): Promise<void> {
  for (let after = 0; ; ) {
    const path = `${run}/logs?after=${after}&timeout=${POLL_SECONDS}`;
    const chunk = expect(CHUNK, await getPatiently(client, path, signal));
    if (chunk.data !== "") output(chunk.data);
    else if (!chunk.done) await sleep(IDLE_MS, signal);
    if (chunk.done) return;
    after = chunk.next;
  }
}

async function outcomeOfBuild(client: ApiClient, run: string, { signal, progress }: SourceChange): Promise<number> {
  const { status, error } = expect(RUN, await getPatiently(client, run, signal));
  progress(`the build ${status}${error === undefined ? "" : `: ${error}`}`);
  if (status === "succeeded") return 0;
  return status === "cancelled" ? 130 : 1;
}

/** Asks again a few times before it gives up: a run goes on while the connection to the server is lost. */
async function getPatiently(client: ApiClient, path: string, signal: AbortSignal): Promise<Record<string, unknown>> {
  for (const pause of RETRY_AFTER_MS) {
    try {
      return await client.call("GET", path, { signal });
    } catch (error) {
      if (!isUnreachable(error)) throw error;
      await sleep(pause, signal);
    }
  }
  return client.call("GET", path, { signal });
}

async function cancel(client: ApiClient, run: string, options: SourceChange): Promise<void> {
  try {
    await client.call("POST", `${run}/cancel`, { silenceMs: CANCEL_SILENCE_MS });
    options.progress("asked the server to cancel the run");
  } catch (error) {
    options.progress(`Cannot cancel the run: ${messageOf(error)}`);
  }
}

/** The shape of an answer, which may have further fields; `null` counts as absent. */
function answerWith<F extends Record<string, Shape<unknown>>>(fields: F) {
  return object(fields, { unknown: "warn", lenient: true });
}

function expect<T>(shape: Shape<T>, body: Record<string, unknown>): T {
  const checked = check(shape, body);
  if (checked.ok) return checked.value;
  const [problem] = checked.problems;
  throw new Failure("failed", `Cannot understand the server's answer: ${problem?.path} ${problem?.message}`);
}
