import { SKIPPED_FOLDERS, SOURCE_PATHS } from "../../bucket/base/layout.ts";
import { type PackedSource, packSource } from "../../bucket/source/source-rules.ts";
import { idNamed } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { realPlace } from "../../core/files.ts";
import { byteSize, counted } from "../../core/plain-text.ts";
import { isNote } from "../../core/shape.ts";
import { Launcher } from "../../core/spawn.ts";
import { START_ROUTES } from "../../server/routes/start-paths.ts";
import { EXIT, type Parsed, type Target, wantsJson } from "../base/flags.ts";
import { brokenGlass, startOf } from "../base/start-flags.ts";
import { printJson, stopRequest, tableOf, toStderr, toStdout } from "../base/terminal.ts";
import { EXIT_OF } from "../bucket/output.ts";
import { REVISION_COLUMNS } from "../state/revisions.ts";
import { type Follower, followRun, type StartRequest, startOnServer } from "./follow.ts";
import { namedAnswers, openRemoteBucket, patiently, type RemoteBucket } from "./remote-bucket.ts";
import { targetOf } from "./target.ts";

/** How the run of a change of the source is started. */
interface Change {
  waitMs?: number | undefined;
  /** Why it goes past what holds it back. */
  breakGlass?: string | undefined;
  /** Print the id of the run and end. */
  isDetached?: boolean;
  /** Print what was started, and how it ended, as JSON. */
  isJson?: boolean;
}

/** What a push sends: the source of the bucket in `dir`, and a note that is stored with the revision. */
interface Push extends Change {
  dir: string;
  note?: string | undefined;
}

const PROGRESS_BYTES = 8 * 1024 * 1024;
const GIT_MS = 10_000;

/** `ops push [base_url]` (control-plane.md, Source push). */
export async function pushCommand(input: Parsed): Promise<number> {
  const sent = { dir: realPlace(input.values.get("dir") ?? "."), note: input.values.get("note"), ...(await changeOf(input)) };
  return await onServer(input, (bucket, follower) => push(bucket, sent, follower), sent.dir);
}

/** `ops push rollback [base_url]`. */
export async function rollbackCommand(input: Parsed): Promise<number> {
  const asked = { revision: input.values.get("revision"), ...(await changeOf(input)) };
  return await onServer(input, (bucket, follower) => rollback(bucket, asked, follower));
}

async function changeOf(input: Parsed): Promise<Change> {
  return { ...(await startOf(input)), isJson: wantsJson(input) };
}

/** `ops revisions rollback [revision]`. */
export async function rollBackTo(input: Parsed, target: Target): Promise<number> {
  const asked = { revision: input.operands[0], ...(await changeOf(input)) };
  return await followed(input, target, (bucket, follower) => rollback(bucket, asked, follower));
}

/** Works on the server that the command line, the environment or the ops.conf in `dir` names. */
async function onServer(input: Parsed, work: ServerWork, dir?: string): Promise<number> {
  const [address] = input.operands;
  if (address !== undefined && input.values.has("server")) throw new Failure("usage", "give base_url or --server, not both");
  if (address !== undefined) input.values.set("server", address);
  const target = await targetOf(input, dir);
  if (!target)
    throw new Failure("usage", "base_url is missing: give it, set OPS_SERVER, or name it in the table [server] of ops.conf");
  return await followed(input, target, work);
}

type ServerWork = (bucket: RemoteBucket, follower: Follower) => Promise<number>;

async function followed(input: Parsed, target: Target, work: ServerWork): Promise<number> {
  using stop = stopRequest(() => process.exit(EXIT.cancelled));
  const bucket = await openRemoteBucket(target);
  const tell = (text: string) => toStderr(`${text}\n`);
  // A code is asked for before the upload, which could not be sent again.
  await patiently({ tell }, () => bucket.get(""), { sent: true });
  const output = wantsJson(input) ? toStderr : toStdout;
  return await work(bucket, { ...stop, tell, output });
}

/**
 * Sends the source of the local bucket in `dir` to a server and follows the build (control-plane.md, Source push). Answers
 * the exit code: 0 the build succeeded, 1 the build failed, 130 the build or the push was cancelled. Without an outcome,
 * throws `usage`, `bucket_busy`, `invalid_source` for a source that cannot be packed, else `failed`.
 */
export async function push(bucket: RemoteBucket, { dir, note, ...how }: Push, follower: Follower): Promise<number> {
  if (!isNote(note ?? "-")) throw new Failure("usage", "--note: expected one line of at most 200 characters");
  return await change(bucket, "accepted", follower, async () => ({ ...(await upload(dir, note, follower)), ...how }));
}

/**
 * Rolls the source on the server back to a revision, by default the last successful one; otherwise like {@link push}. Where
 * that is the source already, nothing is started: the revisions are shown.
 */
export async function rollback(
  bucket: RemoteBucket,
  { revision: given, ...how }: Change & { revision: string | undefined },
  follower: Follower,
): Promise<number> {
  return await change(bucket, "rolled back", follower, async () => {
    const revisions = await namedAnswers("Revision", await bucket.all("/source/revisions"));
    const last = revisions.find((one) => one.last_successful);
    if (given === undefined && last?.current) {
      follower.output("nothing is changed: the last successful revision is the source; another one has to be named\n");
      follower.output(tableOf(revisions, REVISION_COLUMNS));
      if (how.isJson) printJson({ run_id: null, status: null, error: null, result: null });
      return undefined;
    }
    const ids = revisions.map((one) => one.id);
    const id = given === undefined ? undefined : idNamed(given, ids, "revision");
    return { path: START_ROUTES.rollback.path, json: { revision_id: id }, ...how };
  });
}

/** Starts the run that changes the source and follows it to its end. */
async function change(
  bucket: RemoteBucket,
  done: string,
  follower: Follower,
  request: () => Promise<(StartRequest & Change) | undefined>,
): Promise<number> {
  try {
    const start = await request();
    if (!start) return EXIT.done;
    const { isDetached, isJson, ...sent } = start;
    const id = await startOnServer(bucket, sent, follower);
    follower.tell(`the source was ${done}; run ${id} builds it`);
    if (isDetached && !follower.signal.aborted) {
      if (isJson) printJson({ run_id: id });
      else follower.output(`${id}\n`);
      return EXIT.done;
    }
    const { status, error, result } = await followRun(bucket, id, follower);
    follower.tell(`the build ${status}${error === null ? "" : `: ${error}`}`);
    if (isJson) printJson({ run_id: id, status, error, result });
    if (sent.breakGlass !== undefined) follower.tell(brokenGlass(id, sent.breakGlass).trimEnd());
    return EXIT_OF[status];
  } catch (error) {
    if (error instanceof Failure && error.code === "cancelled") return EXIT.cancelled;
    throw error;
  }
}

/** The request that sends the source. */
async function upload(dir: string, note: string | undefined, { signal, tell }: Follower): Promise<StartRequest> {
  const packed = await packSource(dir);
  let tries = 0;
  // What was read once is read again where the connection is lost.
  const body = async function* () {
    yield* reported(tries++ === 0 ? packed : await packSource(dir), tell);
  };
  tell(`sending ${counted(packed.files, "file")}, ${byteSize(packed.bytes)}`);
  const commit = await commitOf(dir, signal);
  const headers = { ...(note && { "Ops-Note": encodeURIComponent(note) }), ...(commit && { "Ops-Commit": commit }) };
  return { path: START_ROUTES.push.path, body, type: "application/x-tar", headers };
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
    // The upload that follows hears a cancel, too.
    return undefined;
  }
}

/** The archive; tells the progress every 8 MiB. */
async function* reported(packed: PackedSource, progress: Follower["tell"]): AsyncGenerator<Uint8Array> {
  let sent = 0;
  for await (const chunk of packed.archive) {
    yield chunk;
    const before = sent;
    sent += chunk.length;
    if (Math.floor(sent / PROGRESS_BYTES) > Math.floor(before / PROGRESS_BYTES))
      progress(`sent ${byteSize(sent)} of ${byteSize(packed.bytes)}`);
  }
}
