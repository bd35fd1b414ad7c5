import { SEAL, type Seal } from "../../codec/crypto/seal-key.ts";
import { idNamed, isUuid, LEAST_LETTERS } from "../../codec/uuid.ts";
import { sleep } from "../../core/async.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { anything, check, list, nullable, object, optional, quote, type Shape, string } from "../../core/shape.ts";
import type { Answer, component } from "../../server/routes/shapes.ts";
import type { Target } from "../base/flags.ts";
import { type ApiClient, type CallOptions, isUnreachable } from "./client.ts";
import { openServer } from "./target.ts";

/** What may stand in a query; undefined is left out, a list has commas between its parts. */
export type Query = Record<string, string | number | boolean | readonly string[] | undefined>;
/** An object of an answer. */
export type Item = Record<string, unknown>;

const PAGE_ROWS = 500;
/** How long a command goes on without its server, and the pauses between its tries. */
const PATIENCE_MS = 300_000;
const PAUSES_MS = [200, 1_000, 3_000, 5_000];
const MOST_NAMED = 20;

/** A bucket of a server, for commands. */
export class RemoteBucket {
  readonly client: ApiClient;
  readonly id: string;

  constructor(client: ApiClient, id: string) {
    this.client = client;
    this.id = id;
  }

  /** The path of something of the bucket: the parts are encoded, all but the first. */
  path(first: string, ...parts: readonly string[]): string {
    return `/api/buckets/${this.id}${[first, ...parts.map(encodeURIComponent)].filter((part) => part !== "").join("/")}`;
  }

  /** Reads an object. The path begins with a slash, behind the bucket's id. */
  async get(path: string, query: Query = {}, options: CallOptions = {}): Promise<Item> {
    return await this.client.call("GET", this.path(path) + queryText(query), options);
  }

  /** Reads a body as it comes. */
  stream(path: string, query: Query = {}, options: CallOptions = {}): AsyncGenerator<Buffer> {
    return this.client.stream("GET", this.path(path) + queryText(query), options);
  }

  /** All items of a list that comes in pages. */
  async all(path: string, query: Query = {}): Promise<Item[]> {
    return await allItems(this.client, this.path(path), query);
  }

  /** The whole id of a run that a beginning or an end of an id names. Throws `run_not_found`, or `usage` for several. */
  async runNamed(given: string): Promise<string> {
    if (isUuid(given.toLowerCase())) return given.toLowerCase();
    // The server looks for none that is this short.
    const isLong = given.length >= LEAST_LETTERS;
    const { items } = isLong ? expectAnswer(PAGE, await this.get("/runs", { id: given, limit: MOST_NAMED })) : { items: [] };
    const ids = items.map(({ id }) => String(id));
    return idNamed(given, ids, "run");
  }

  /** How a snapshot is opened; null for one in clear. */
  async sealOf(name: string): Promise<Seal | null> {
    const found = (await this.all("/snapshots")).find((one) => one.name === name);
    return expectAnswer(nullable(SEAL), found?.seal ?? null);
  }

  /** The name of the snapshot that a name, or a beginning or an end of one, means, also with its suffix. */
  async snapshotNamed(given: string): Promise<string> {
    const names = (await this.all("/snapshots")).map(({ name }) => String(name));
    return idNamed(given.replace(/\.tar\.gz(\.sealed)?$/, ""), names, "snapshot");
  }

  /** The hooks of all jobs, a row for each event. */
  async hooks(): Promise<Item[]> {
    return await this.all("/cat/hooks");
  }

  /** The whole id of a revision that a beginning or an end of an id names. */
  async revisionNamed(given: string): Promise<string> {
    if (isUuid(given.toLowerCase())) return given.toLowerCase();
    const ids = (await this.all("/source/revisions")).map(({ id }) => String(id));
    return idNamed(given, ids, "revision");
  }
}

const ROW = anything({ type: "object" }) as Shape<Item>;
/** A page of a list. */
export const PAGE = object({ items: list(ROW), next_cursor: optional(nullable(string())) });

/** All items of a list that comes in pages. */
export async function allItems(client: ApiClient, path: string, query: Query = {}): Promise<Item[]> {
  const items: Item[] = [];
  for (let cursor: string | undefined; ; ) {
    const page = expectAnswer(PAGE, await client.call("GET", path + queryText({ limit: PAGE_ROWS, ...query, cursor })));
    items.push(...page.items);
    cursor = page.next_cursor ?? undefined;
    if (cursor === undefined) return items;
  }
}

/** A query behind its question mark; nothing where nothing is asked for. */
export function queryText(query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== false);
  const text = given.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join("&");
  return text === "" ? "" : `?${text}`;
}

/** The bucket that a target names. Throws `usage` where none is named or several are meant, `bucket_not_found`. */
export async function openRemoteBucket(target: Target): Promise<RemoteBucket> {
  const client = await openServer(target);
  return new RemoteBucket(client, await bucketNamed(client, target.bucket));
}

/** The id of the bucket that a name, `project/name`, an id or an end of one names; without one, of the only bucket. */
export async function bucketNamed(client: ApiClient, given: string | undefined): Promise<string> {
  const id = given?.toLowerCase() ?? "";
  if (isUuid(id)) return id;
  const buckets = await allItems(client, "/api/buckets");
  const label = ({ project, name }: Item) => `${project}/${name}`;
  const byName = buckets.filter((one) => given === undefined || one.name === given || label(one) === given);
  const isPart = (one: Item) => String(one.id).startsWith(id) || String(one.id).endsWith(id);
  const found = byName.length > 0 || id.length < LEAST_LETTERS ? byName : buckets.filter(isPart);
  const [only, ...others] = found;
  if (only && others.length === 0) return String(only.id);
  const shown = found.map((one) => `\n  ${label(one)}  ${one.id}`).join("");
  const help = "name it with --bucket or OPS_BUCKET";
  if (given === undefined)
    throw new Failure(
      "usage",
      only ? `no bucket is named: ${help}:${shown}` : "the server has no bucket: make one with `ops buckets create`",
    );
  const way = new Set(found.map(label)).size > 1 ? "project/name or id" : "id";
  if (only) throw new Failure("usage", `the name ${quote(given)} is that of ${found.length} buckets: name it by ${way}:${shown}`);
  throw new Failure("bucket_not_found", `the server has no bucket ${quote(given)}; \`ops buckets list\` shows them`);
}

/** How a command bears that its server cannot be reached. */
export interface Retry {
  /** Ends all tries. */
  signal?: AbortSignal;
  /** How long without an answer at most; default 5 minutes. */
  ms?: number | undefined;
  /** Gets a sentence when the connection is lost, and when it is there again. */
  tell(text: string): void;
}

/**
 * Does a work again for as long as it fails because no answer came. Where the first try has not even reached the server
 * there is no second one with `sent`.
 */
export async function patiently<T>(
  { signal, ms = PATIENCE_MS, tell }: Retry,
  work: () => Promise<T>,
  { sent = false } = {},
): Promise<T> {
  const until = performance.now() + ms;
  for (let tries = 0; ; tries++) {
    try {
      const done = await work();
      if (tries > 0) tell("the server answers again");
      return done;
    } catch (error) {
      if (!isUnreachable(error, { sent: sent && tries === 0 }) || performance.now() > until) throw error;
      if (tries === 0) tell(`${messageOf(error)}; trying again`);
      await sleep(PAUSES_MS[Math.min(tries, PAUSES_MS.length - 1)] as number, signal);
    }
  }
}

/** An answer as it came, which has this shape and may have further fields. Throws `failed` for any other. */
export function expectAnswer<T>(shape: Shape<T>, body: unknown): T {
  const checked = check(shape, body, { isAnswer: true });
  if (checked.ok) return body as T;
  const [problem] = checked.problems;
  const why = `${problem?.path} ${problem?.message}`;
  throw new Failure("failed", `Cannot understand the server's answer: ${why}; is the server of another version?`);
}

/** An answer that has the shape which openapi.yaml gives this name. */
export async function namedAnswer<N extends Parameters<typeof component>[0]>(name: N, body: unknown): Promise<Answer<N>> {
  return expectAnswer((await import("../../server/routes/shapes.ts")).component(name), body);
}

/** A list of such answers. */
export async function namedAnswers<N extends Parameters<typeof component>[0]>(name: N, items: unknown): Promise<Answer<N>[]> {
  return expectAnswer(list((await import("../../server/routes/shapes.ts")).component(name)), items);
}
