import { createHash } from "node:crypto";
import path from "node:path";
import { fingerprintKey } from "../../audit/key.ts";
import type { AuditEntry, AuditHead, AuditKind } from "../../audit/line.ts";
import type { AuditLog } from "../../audit/log.ts";
import { fingerprintOf, toldParams } from "../../audit/told.ts";
import { type Identity, SESSION_PATH, VERIFY_PATH } from "../../auth/guard.ts";
import { layoutOf } from "../../bucket/base/layout.ts";
import { isUuid } from "../../codec/uuid.ts";
import { programRelease } from "../../core/self.ts";
import type { Schema } from "../../core/shape.ts";
import type { Exchange } from "../../http/listen.ts";
import { type Answer, failureAnswer, type HttpRequest } from "../../http/message.ts";
import type { Call, QueryFields } from "../../http/router.ts";
import type { EventLog } from "../../run/events.ts";
import { RUNS, type RunKind, type RunParams } from "../../run/protocol.ts";
import { type Actor, maskedText, type RunRecord } from "../../run/record.ts";
import type { Context, ServerRoute } from "../context.ts";
import { FoldedRefusals } from "./refusals.ts";

/** Fields in which people write sentences and scripts: secrets of the bucket in them are masked, as in records of runs. */
const WRITTEN_BY_PEOPLE: ReadonlySet<string> = new Set(["command", "note", "reason", "Ops-Note", "Ops-Break-Glass"]);
/** The names of ids in paths; env_id stands for the bucket's in the earlier API. */
const ID_NAMES: ReadonlySet<string> = new Set(["bucket_id", "env_id", "run_id"]);
const BREAK_GLASS = "Ops-Break-Glass";
const FOLD_MS = 60_000;
const ALIVE_MS = 3_600_000;

type AnyCall = Call<QueryFields, unknown>;

/** A run that the server starts by itself. */
interface UnaskedRun {
  bucket: string;
  run: string;
  kind: RunKind;
  params: RunParams;
  actor: Actor;
}

/** How a work went. */
type WorkEnd<T> = { done: T } | { error: unknown };

/** What the audit tells of an end. */
interface Outcome extends Pick<AuditEntry, "outcome" | "code" | "error" | "run"> {
  /** The id of what was made. */
  made?: string | undefined;
  upload?: Upload | undefined;
}

/** What happened to a body that a handler reads by itself. */
interface Upload {
  size_bytes: number;
  sha256: string;
}

/**
 * What a server writes into its audit: each request that may change something, before its handler and once more with the
 * outcome; the ends of runs; refusals, folded; and that it lives.
 */
export class AuditRecorder {
  readonly #audit: AuditLog;
  readonly #root: string;
  readonly #now: () => number;
  readonly #refusals = new FoldedRefusals();
  /** The requests that have lines of their own. */
  readonly #told = new WeakSet<object>();
  readonly #timers: NodeJS.Timeout[] = [];

  constructor(audit: AuditLog, { root, now }: { root: string; now: () => number }) {
    this.#audit = audit;
    this.#root = root;
    this.#now = now;
  }

  /** Says that the server starts, follows its runs, and from now on says every hour that it lives. */
  async start(facts: object, events: EventLog): Promise<void> {
    events.onChange = (change, record) => {
      if (change === "ended") this.#audit.later(runEnded(record));
    };
    const { version, commit } = programRelease();
    const told = { version, commit, node: process.versions.node, pid: process.pid, ...facts };
    const entry: AuditEntry = { what: "server_start", via: "server", facts: told };
    await this.#audit.append(entry).catch(() => this.#audit.later(entry));
    this.#timers.push(
      setInterval(() => this.#fold(), FOLD_MS).unref(),
      setInterval(() => this.#audit.later({ what: "alive", via: "server" }), ALIVE_MS).unref(),
    );
  }

  /** Says that the server stops, and waits until all is written that can be. */
  async stop(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    this.#fold();
    this.#audit.later({ what: "server_stop", via: "server" });
    await this.#audit.close();
  }

  /** Notes an answer that refuses a request which no line tells of. */
  exchanged(exchange: Exchange): void {
    if (!FoldedRefusals.has(exchange.status) || this.#told.has(exchange.request)) return;
    this.#refusals.note(exchange, new Date(this.#now()).toISOString());
  }

  /**
   * The route with a handler that acts only once the request is in the audit, and answers once its outcome is. Throws
   * `audit_unavailable` before anything is done; a cancel goes on, and is written later.
   */
  recorded<R extends ServerRoute>(route: R, identity: Identity): R {
    if (route.method === "GET") return route;
    const handle = async (call: AnyCall, context: Context): Promise<Answer> => {
      let upload: (() => Upload | undefined) | undefined;
      const work = async () => {
        this.#told.add(call.request);
        upload = route.upload && summed(call.request);
        return await (route.handle as (call: AnyCall, context: Context) => Promise<Answer>)(call, context);
      };
      return await this.#betweenLines(await this.#entryOf(route, call, identity), work, (end) => {
        const answer = "done" in end ? end.done : failureAnswer(end.error, call.request.id);
        return outcomeOf(answer, upload?.());
      });
    };
    return Object.assign({}, route, { handle });
  }

  /**
   * Starts a run that no request has asked for: its start is in the audit before it begins, and its outcome behind it. Throws
   * `audit_unavailable` before anything is started, and what `start` throws.
   */
  async started({ bucket, kind, params, actor, run }: UnaskedRun, start: () => Promise<void>): Promise<void> {
    const told = await this.#toldParams(RUNS[kind].parameters.schema, bucket, params);
    const entry: AuditEntry = { what: "start", who: actor.name, via: actor.via, bucket, run, kind, params: told };
    await this.#betweenLines(entry, start, (end) => {
      if ("done" in end) return { outcome: "done" };
      const { outcome, error } = outcomeOf(failureAnswer(end.error, run));
      return { outcome, error };
    });
  }

  /** Does a work only once its line is on the disk, and tells its outcome before it answers. */
  async #betweenLines<T>(entry: AuditEntry, work: () => Promise<T>, outcome: (end: WorkEnd<T>) => Outcome): Promise<T> {
    const head = await this.#ask(entry);
    try {
      const done = await work();
      await this.#tellOutcome(entry, head, outcome({ done }));
      return done;
    } catch (error) {
      await this.#tellOutcome(entry, head, outcome({ error }));
      throw error;
    }
  }

  #fold(): void {
    for (const entry of this.#refusals.take()) this.#audit.later(entry);
  }

  async #ask(entry: AuditEntry): Promise<AuditHead | undefined> {
    try {
      return await this.#audit.append(entry);
    } catch (error) {
      if (entry.what !== "cancel") throw error;
      this.#audit.later(entry);
      return undefined;
    }
  }

  async #tellOutcome(
    { what: _, params: __, reason: ___, ...asked }: AuditEntry,
    head: AuditHead | undefined,
    { made, upload, run = asked.run, ...told }: Outcome,
  ): Promise<void> {
    const facts = { ...(asked.run === undefined && made !== undefined && { made }), ...(upload && { upload }) };
    const isMore = Object.keys(facts).length > 0;
    const entry: AuditEntry = { ...asked, ...told, what: "outcome", of: head?.n, run, facts: isMore ? facts : undefined };
    await this.#audit.append(entry).catch(() => this.#audit.later(entry));
  }

  async #entryOf(route: ServerRoute, call: AnyCall, identity: Identity): Promise<AuditEntry> {
    // What is no id is kept as a parameter, which is cut where it is long.
    const isId = ([name, value]: [string, string]) => ID_NAMES.has(name) && isUuid(value.toLowerCase());
    const ids = Object.entries(call.params).filter(isId);
    const { bucket_id, env_id, run_id: run } = Object.fromEntries(ids.map(([name, value]) => [name, value.toLowerCase()]));
    const bucket = bucket_id ?? env_id;
    const others = Object.fromEntries(Object.entries(call.params).filter((param) => !isId(param)));
    const { [BREAK_GLASS]: reason, ...headers } = call.headers;
    const given = { ...others, ...call.query, ...headers, ...(call.body as object | undefined) };
    const params = await this.#toldParams(route.body?.schema, bucket, given);
    return {
      what: auditKindOf(route),
      who: identity.name,
      via: `${identity.via}${identity.totp ? "+totp" : ""}`,
      role: identity.role,
      from: identity.address,
      request: call.request.id,
      action: `${route.method} ${route.path}`,
      bucket,
      run,
      params,
      reason: reason === undefined ? undefined : await this.#masked(bucket, String(reason)),
    };
  }

  async #toldParams(
    schema: Schema | undefined,
    bucket: string | undefined,
    given: Record<string, unknown>,
  ): Promise<Record<string, unknown> | undefined> {
    // A cancel has no parameters, and must not need the key.
    if (Object.values(given).every((value) => value === undefined)) return undefined;
    const key = fingerprintKey(await this.#audit.key());
    const masked = (name: string, text: string) => (WRITTEN_BY_PEOPLE.has(name) ? this.#masked(bucket, text) : undefined);
    return await toldParams(given, { key, schema, masked });
  }

  /** A text with the secrets of the bucket masked; a fingerprint of it where they cannot be read. */
  async #masked(bucket: string | undefined, text: string): Promise<string> {
    try {
      return bucket === undefined ? text : await maskedText(layoutOf(path.join(this.#root, bucket)), text);
    } catch {
      return fingerprintOf(text, fingerprintKey(await this.#audit.key()));
    }
  }
}

/** What a request is about, by method and path of its route; the first that fits. */
const AUDIT_RULES: readonly [RegExp, AuditKind][] = [
  [new RegExp(`^POST (?:${SESSION_PATH}|${VERIFY_PATH}|/signin)$`), "sign_in"],
  [new RegExp(`^DELETE (?:${SESSION_PATH}|/signin)$`), "sign_out"],
  [/\/cancel$/, "cancel"],
  [/\/(?:tokens|sessions)\b/, "token"],
  [/\/(?:proposals|approve|reject)\b/, "approval"],
  [/\/secrets\/|\/(?:rekey|rotate|import|trust)\b|\/ca\b/, "key"],
  [/\/restore$/, "restore"],
  [/^DELETE /, "delete"],
];

/** What a request to a route is about, in the audit. */
export function auditKindOf({ method, path, headers = {} }: Pick<ServerRoute, "method" | "path" | "headers">): AuditKind {
  const [, kind] = AUDIT_RULES.find(([pattern]) => pattern.test(`${method} ${path}`)) ?? [];
  // Every route that starts a run takes this header.
  return kind ?? ("Idempotency-Key" in headers ? "start" : "change");
}

function outcomeOf({ status, body }: Answer, upload?: Upload): Outcome {
  const { run_id: run, id: made, error } = answeredFields(body);
  const outcome = status < 400 ? "done" : status < 500 ? "refused" : "failed";
  return { outcome, code: status, error, run, made, upload };
}

function runEnded({ id, bucket_id, kind, status, audit }: RunRecord): AuditEntry {
  const isForced = audit.some(({ action }) => action === "force_kill");
  const facts = isForced ? { killed: true } : undefined;
  return {
    what: "run_ended",
    via: "server",
    who: audit[0]?.actor.name,
    bucket: bucket_id,
    run: id,
    kind,
    outcome: status,
    facts,
  };
}

/** Sums a body while a handler reads it; the function tells of what was read. */
function summed(request: HttpRequest): () => Upload | undefined {
  const sum = createHash("sha256");
  let size = 0;
  request.onBody = (piece) => {
    sum.update(piece);
    size += piece.length;
  };
  return () => (size === 0 ? undefined : { size_bytes: size, sha256: sum.copy().digest("hex") });
}

/** What an answer says that the audit keeps: never a secret that the answer shows once. */
function answeredFields(body: Answer["body"]): { run_id?: string; id?: string; error?: string } {
  if (typeof body !== "string" || !body.startsWith("{")) return {};
  const { run_id, id, error } = JSON.parse(body) as Record<string, unknown>;
  const text = (value: unknown) => (typeof value === "string" ? value : undefined);
  return Object.fromEntries(Object.entries({ run_id: text(run_id), id: text(id), error: text(error) }).filter(([, one]) => one));
}
