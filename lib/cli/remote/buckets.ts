import { Failure } from "../../core/errors.ts";
import { counted } from "../../core/plain-text.ts";
import { boolean, integer, object, quote } from "../../core/shape.ts";
import type { Answer } from "../../server/routes/shapes.ts";
import { askedOnTerminal, canAsk } from "../base/ask.ts";
import { flagNumber, type Parsed, type Target } from "../base/flags.ts";
import { printAnswer, printList, shortId } from "../base/terminal.ts";
import {
  allItems,
  bucketNamed,
  expectAnswer,
  namedAnswer,
  namedAnswers,
  openRemoteBucket,
  type RemoteBucket,
} from "./remote-bucket.ts";
import { openServer } from "./target.ts";

const BUCKETS = "/api/buckets";
const INITIALISED = object({ schema_version: integer(), upgraded: boolean() });
type Bucket = Answer<"Bucket">;

/** `ops buckets list`. */
export async function listBuckets(input: Parsed, target: Target): Promise<number> {
  const items = await namedAnswers("Bucket", await allItems(await openServer(target), BUCKETS));
  return printList(input, items, "the server has no bucket yet; make one with `ops buckets create PROJECT/NAME`", {
    bucket: labelOf,
    id: ({ id }) => id,
    state: stateOf,
    "last run": ({ last_run: run }) => run && `${run.kind} ${run.status} ${shortId(run.id)}`,
    at: ({ last_run: run }) => run?.created_at ?? null,
  });
}

function labelOf({ project, name }: Bucket): string {
  return `${project}/${name}`;
}

function stateOf({ initialized, failed_allocations: failed, active_run: active }: Bucket): string {
  if (!initialized) return "not initialised";
  if (active !== null) return "a run goes on";
  return failed ? `${counted(failed, "allocation")} failed` : "ok";
}

/** The two parts of `project/name`. Throws `usage`. */
function partsOf(label: string): { project: string; name: string } {
  const [, project, name] = /^([^/]+)\/([^/]+)$/.exec(label) ?? [];
  if (project !== undefined && name !== undefined) return { project, name };
  throw new Failure("usage", `expected PROJECT/NAME, such as shop/live, found ${quote(label)}`);
}

/** `ops buckets create <project/name>`: prints the id. */
export async function createBucket(input: Parsed, target: Target): Promise<number> {
  const label = partsOf(input.operands[0] ?? "");
  const made = await (await openServer(target)).call("POST", BUCKETS, { json: label });
  const bucket = await namedAnswer("Bucket", made);
  return printAnswer(input, bucket, `${bucket.id}\n`);
}

/** `ops buckets rename <bucket> <project/name>`. */
export async function renameBucket(input: Parsed, target: Target): Promise<number> {
  const [given, label = ""] = input.operands;
  const json = partsOf(label);
  const client = await openServer(target);
  const path = `${BUCKETS}/${await bucketNamed(client, given)}`;
  const bucket = await namedAnswer("Bucket", await client.call("PUT", path, { json }));
  return printAnswer(input, bucket, `bucket ${bucket.id} is ${labelOf(bucket)} now\n`);
}

/** `ops buckets set <bucket> --approvals N`: says what it was before. */
export async function setBucket(input: Parsed, target: Target): Promise<number> {
  const approvals = flagNumber(input, "approvals");
  if (approvals === undefined) throw new Failure("usage", "--approvals: expected 0, 1 or 2");
  const client = await openServer(target);
  const path = `${BUCKETS}/${await bucketNamed(client, input.operands[0])}`;
  const before = await namedAnswer("Bucket", await client.call("GET", path));
  const bucket = await namedAnswer("Bucket", await client.call("PUT", path, { json: { approvals } }));
  return printAnswer(
    input,
    bucket,
    `bucket ${labelOf(bucket)} asks for ${counted(bucket.approvals, "approval")}; before: ${before.approvals}\n`,
  );
}

/** `ops buckets delete <bucket>`: asks for the name, unless `--yes` is given. */
export async function deleteBucket(input: Parsed, target: Target): Promise<number> {
  const client = await openServer(target);
  const path = `${BUCKETS}/${await bucketNamed(client, input.operands[0])}`;
  const bucket = await namedAnswer("Bucket", await client.call("GET", path));
  if (!input.switches.has("yes")) await requireName(labelOf(bucket));
  await client.call("DELETE", path);
  return printAnswer(
    input,
    { id: bucket.id, project: bucket.project, name: bucket.name },
    `bucket ${labelOf(bucket)} (${bucket.id}) is deleted; its services run on where they were\n`,
  );
}

async function requireName(label: string): Promise<void> {
  if (!canAsk()) throw new Failure("usage", `${label} is not deleted: give --yes where nobody can type its name`);
  const what = `This deletes the source, the revisions, the database, the secrets and the logs of ${label}`;
  const typed = await askedOnTerminal(`${what}.\nType ${label} to delete it: `);
  if (typed === label) return;
  throw new Failure("failed", `${label} is not deleted: the name was not typed`);
}

/** `ops buckets init [bucket]`. */
export async function initBucket(input: Parsed, target: Target): Promise<number> {
  const client = await openServer(target);
  const id = await bucketNamed(client, input.operands[0] ?? target.bucket);
  const done = expectAnswer(INITIALISED, await client.call("POST", `${BUCKETS}/${id}/init`, { json: {} }));
  return printAnswer(
    input,
    { bucket_id: id, ...done },
    `bucket ${id} ${done.upgraded ? "is ready" : "was up to date"} (schema ${done.schema_version})\n`,
  );
}

/** What `ops open` can name, with the view of the console where the names are. */
const PLACES: Readonly<Record<string, string>> = {
  bucket: "",
  run: "runs",
  job: "jobs",
  worker: "workers",
  revision: "source/revisions",
};

/** `ops open [what] [name]`: prints the console's address of a bucket or of something in it. */
export async function openCommand(input: Parsed, target: Target): Promise<number> {
  const [what = "bucket", name] = input.operands;
  if (!Object.hasOwn(PLACES, what))
    throw new Failure("usage", `${quote(what)} has no page: expected one of ${Object.keys(PLACES).join(", ")}`);
  const named = what === "bucket" && name !== undefined ? { ...target, bucket: name } : target;
  const bucket = await openRemoteBucket(named);
  const id = name === undefined || what === "bucket" ? "" : await wholeName(what, name, bucket);
  // The list of workers has no page for each: it is filtered.
  const rest =
    what === "worker" && id !== "" ? `workers?q=${encodeURIComponent(id)}` : joined(PLACES[what] ?? "", encodeURIComponent(id));
  const { origin, pathname } = bucket.client.base;
  const address = `${origin}${pathname.replace(/\/$/, "")}/#/${joined(`buckets/${bucket.id}`, rest)}`;
  return printAnswer(input, { address }, `${address}\n`);
}

async function wholeName(what: string, name: string, bucket: RemoteBucket): Promise<string> {
  if (what === "run") return await bucket.runNamed(name);
  return what === "revision" ? await bucket.revisionNamed(name) : name;
}

function joined(...parts: readonly string[]): string {
  return parts.filter((part) => part !== "").join("/");
}
