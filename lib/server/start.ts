import { createHash, createHmac, type Hash } from "node:crypto";
import { fingerprintKey } from "../audit/key.ts";
import type { Identity } from "../auth/guard.ts";
import { busyFailure, heldBy } from "../bucket/base/lock.ts";
import { sleep } from "../core/async.ts";
import { Failure } from "../core/errors.ts";
import { described, integer, isNote, optional, type Report, refined, type Shape, string, withExample } from "../core/shape.ts";
import { type Answer, invalidRequest, json } from "../http/message.ts";
import { type RunKind, type RunParams, secretsApart } from "../run/protocol.ts";
import { type Actor, type RunRecord, runOfKey, type StartKey } from "../run/record.ts";
import type { ApprovalAsked } from "./approval/approvals.ts";
import type { BucketCall, Context } from "./context.ts";
import type { Hold } from "./line.ts";
import { requireGoingOn, requireRole } from "./people/permission.ts";
import { pollMs } from "./routes/shapes.ts";

const KEY = withExample(
  string({ min: 8, max: 100, pattern: /^[\w.:-]+$/, means: "letters, digits and -_.:" }),
  "0198f3a2-7b44-7c02-8e11-2a9d4c6b8f10",
);
/** How often the next in line looks whether its bucket is free. */
export const LINE_LOOK_MS = 200;

/** A header that holds a note: one line, percent-encoded, since headers are ASCII. */
export function encodedNote(example: string): Shape<string> {
  return withExample(refined(string({ max: 2_400 }), noteOf), example);
}

function noteOf(encoded: string, path: string, report: Report): string {
  try {
    const note = decodeURIComponent(encoded);
    if (isNote(note)) return note;
  } catch {
    // Told below.
  }
  report(path, "expected one line of at most 200 characters, percent-encoded");
  return "";
}

/** The headers of every route that starts a run. */
export const START_HEADERS = {
  "Idempotency-Key": optional(
    described(KEY, "The name of this start: sent again within an hour, it answers the same run and starts no other"),
  ),
  "Ops-Wait": optional(
    described(
      integer({ min: 0, max: 86_400 }),
      "Seconds to wait in line where the bucket is busy, at most 60 in one request; goes with Idempotency-Key",
    ),
  ),
  "Ops-Break-Glass": optional(
    described(
      encodedNote("The%20site%20is%20down"),
      "As an admin, go past what holds the run back, for this reason: one line of at most 200 characters, percent-encoded UTF-8",
    ),
  ),
};

/** Prepares a run in its reserved bucket and answers its parameters. An upload is read from `body`. */
type Prepare = (runId: string, body: AsyncIterable<Uint8Array>) => Promise<RunParams>;

/** How a run is prepared. What `apply` changes is changed only once the run is approved. */
interface Preparation {
  prepare: Prepare;
  apply?(params: RunParams): Promise<void>;
}

/**
 * Starts a run in a bucket and answers 202 with exactly `run_id` (control-plane.md, What the service does 4). If `prepare`
 * fails, nothing was started. Throws `bucket_not_initialized` and `bucket_busy` before `prepare` is called. With a key the
 * run that the key has started is answered (control-plane.md, Starts with a key).
 */
export async function startRun(
  call: BucketCall,
  kind: RunKind,
  context: Context,
  prepare: Prepare | Preparation,
): Promise<Answer> {
  const { "Idempotency-Key": key, "Ops-Wait": wait } = call.headers as { "Idempotency-Key"?: string; "Ops-Wait"?: number };
  if (wait !== undefined && key === undefined)
    throw invalidRequest([{ path: "Ops-Wait", message: "goes only with Idempotency-Key" }]);
  if (call.headers["Ops-Break-Glass"] !== undefined) requireRole(context.identity, "admin");
  const start = new Start(call, kind, context, typeof prepare === "function" ? { prepare } : prepare);
  if (key !== undefined) start.requireOwnKey(key);
  const started = key === undefined ? start.once() : wait === undefined ? start.onceFor(key) : start.inLine(key, wait);
  return json(202, { run_id: await started });
}

/** A request that starts a run. */
class Start {
  readonly #call: BucketCall;
  readonly #kind: RunKind;
  readonly #context: Context;
  readonly #preparation: Preparation;
  readonly #asked: ApprovalAsked;
  readonly #body: SummedBody;

  constructor(call: BucketCall, kind: RunKind, context: Context, preparation: Preparation) {
    this.#call = call;
    this.#kind = kind;
    this.#context = context;
    this.#preparation = preparation;
    const { proposal, plan } = (call.body ?? {}) as Partial<Record<"proposal" | "plan", string>>;
    this.#asked = { proposal, plan, isGlassBroken: this.#breakGlass !== undefined };
    this.#body = new SummedBody(call);
  }

  /**
   * Throws `idempotency_mismatch` where somebody else's start waits in line with this key. Everybody sees the keys of the
   * line; a place, and the right to give the place up, are for the person who waits there.
   */
  requireOwnKey(key: string): void {
    const { lines, identity } = this.#context;
    const waiting = lines.waiting(this.#call.bucket.id).find((one) => one.key === key);
    if (!waiting || waiting.by.name === identity.name) return;
    const message = "somebody else's start waits in line with this Idempotency-Key; take a new key";
    throw new Failure("idempotency_mismatch", message);
  }

  /** Starts the run, unless its bucket is busy or another start is next there. A start of the line leaves its `place`. */
  async once(key?: string, place?: Hold): Promise<string> {
    const { bucket, request } = this.#call;
    const { supervisor, lines, identity, approvals, scheduler } = this.#context;
    await this.#requireDatabase();
    const params = (this.#call.body ?? {}) as RunParams;
    if (!this.#asked.isGlassBroken) await scheduler.requireThawed(bucket, { kind: this.#kind, params });
    await this.#requireApproval();
    const next = lines.next(bucket.id);
    if (place ? place.position !== 1 : next && next.key !== key) throw await this.#busy();
    const reservation = await supervisor.reserve(bucket.layout, bucket.id, this.#kind);
    let taken: Awaited<ReturnType<typeof approvals.take>>;
    try {
      // Whoever gave the place up has been told that nothing starts.
      if (place?.leave() === false) throw busyFailure();
      requireGoingOn(identity);
      const prepared = await this.#params(reservation.runId);
      const start_key = key === undefined ? undefined : { key, sum: await this.#sum() };
      taken = await approvals.take(
        bucket,
        { kind: this.#kind, params: prepared, runId: reservation.runId, by: identity },
        this.#asked,
      );
      await this.#preparation.apply?.(prepared);
      await reservation.start(prepared, {
        actor: actorOf(identity),
        requestId: request.id,
        ...(start_key && { start_key }),
        breakGlass: this.#breakGlass,
        approval: taken?.approval,
      });
      return reservation.runId;
    } catch (error) {
      // Where not even that can be written, the approval is used up without a run.
      await taken?.giveBack().catch(() => {});
      await reservation.release();
      throw error;
    }
  }

  /** The same, or the run that the key has started. Equal keys are looked at one after the other. */
  async onceFor(key: string, place?: Hold): Promise<string> {
    const { bucket, request } = this.#call;
    const { lines } = this.#context;
    request.longPoll();
    return await lines.alone(`${bucket.id} ${key}`, request.signal, async () => {
      const earlier = await runOfKey(bucket.layout, key);
      const id = earlier ? await this.#sameAs(earlier) : await this.once(key, place);
      // What has started waits no more.
      lines.leave(bucket.id, key);
      return id;
    });
  }

  /** The same after a wait in line: until the run has started, the place is given up, or the time is over. */
  async inLine(key: string, waitS: number): Promise<string> {
    const { bucket, request } = this.#call;
    const { lines, identity } = this.#context;
    const until = performance.now() + pollMs(waitS);
    const since = new Date().toISOString();
    using place = lines.enter(bucket.id, { key, kind: this.#kind, by: actorOf(identity), since });
    for (;;) {
      try {
        return await this.onceFor(key, place);
      } catch (error) {
        if (!mayPass(error)) place.leave();
        if (!mayPass(error) || place.position === null || performance.now() >= until) throw withPosition(error, place);
      }
      const mustWait = async () => place.position !== 1 || (await heldBy(bucket.layout)) !== undefined;
      do await sleep(LINE_LOOK_MS, request.signal);
      while (place.position !== null && performance.now() < until && (await mustWait()));
    }
  }

  get #breakGlass(): string | undefined {
    return this.#call.headers["Ops-Break-Glass"] as string | undefined;
  }

  /** Whoever lacks an approval need not wait for the bucket to learn it, where the body tells what is asked for. */
  async #requireApproval(): Promise<void> {
    const { bucket, body = {} } = this.#call;
    const params = body as RunParams;
    const isTold =
      this.#asked.proposal !== undefined || (this.#kind === "deploy" ? "dry_run" in params : !("retry_of" in params));
    if (isTold) await this.#context.approvals.mustHave(bucket, this.#kind, params, this.#asked);
  }

  /** The parameters of the run: those that are proposed, or those of the request. */
  async #params(runId: string): Promise<RunParams> {
    const { proposal } = this.#asked;
    if (proposal === undefined) return await this.#preparation.prepare(runId, this.#body);
    return await this.#context.approvals.paramsOf(this.#call.bucket, this.#kind, proposal);
  }

  /** A database that can be opened can be used by runs. A restore must start with a damaged database too. */
  async #requireDatabase(): Promise<void> {
    const { readers } = this.#context;
    await readers
      .read(this.#call.bucket.layout, () => undefined)
      .catch((error: unknown) => {
        const isDamaged = error instanceof Failure && error.code === "database_damaged";
        if (this.#kind !== "snapshot_restore" || !isDamaged) throw error;
      });
  }

  /** The failure of a start whose turn it is not. The bucket may be free: it is kept for the next in line. */
  async #busy(): Promise<Failure> {
    const { id, layout } = this.#call.bucket;
    const next = this.#context.lines.next(id);
    const kept = next && { holder: `kept for a start that waits: ${next.kind}, in line since ${next.since}` };
    return busyFailure((await heldBy(layout)) ?? kept);
  }

  async #sameAs({ id, start_key }: RunRecord): Promise<string> {
    if (start_key?.sum === (await this.#sum())) return id;
    const message = `this Idempotency-Key was sent with another request, which started run ${id}; take a new key`;
    throw new Failure("idempotency_mismatch", message, { details: { run_id: id } });
  }

  /**
   * The sum of what is asked for. The address of the client is no part of it: who sends a request again may have changed
   * networks. A command or a note may hold secrets, which nobody must be able to guess from the sum: the sum is keyed, with a
   * key that no change of the bucket's keys and no restore touches.
   */
  async #sum(): Promise<StartKey["sum"]> {
    const { request, query, body: given, headers } = this.#call;
    // A passphrase must not be guessed from the sum either.
    const body = given && secretsApart(this.#kind, given as RunParams).params;
    const { "Idempotency-Key": _, "Ops-Wait": __, ...said } = headers as Record<string, unknown>;
    const { name, via } = this.#context.identity;
    const asked = [request.method, request.path, query, said, body ?? (await this.#body.sum()), via, name];
    return createHmac("sha256", fingerprintKey(await this.#context.audit.key()))
      .update(JSON.stringify(asked))
      .digest("hex");
  }
}

/** Who made a request, as records keep it. */
export function actorOf({ name, address, via }: Identity): Actor {
  return { name, address, via };
}

/** Failures that a start of the line waits out. A start whose client has left keeps its place, too. */
export function mayPass(error: unknown): boolean {
  return error instanceof Failure && ["bucket_busy", "busy", "database_busy", "cancelled"].includes(error.code);
}

/** The failure with the place in line among its details. */
function withPosition(error: unknown, { position }: Hold): unknown {
  if (!(error instanceof Failure && ["bucket_busy", "busy"].includes(error.code))) return error;
  return new Failure(error.code, error.message, {
    details: { ...(error.details as object | undefined), position },
    cause: error,
  });
}

/** The body of a request; with a key it is summed while it is read. */
class SummedBody implements AsyncIterable<Uint8Array> {
  readonly #request: BucketCall["request"];
  readonly #hash: Hash | undefined;

  constructor({ request, headers }: BucketCall) {
    this.#request = request;
    this.#hash = headers["Idempotency-Key"] === undefined ? undefined : createHash("sha256");
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    for await (const piece of this.#request.body) {
      this.#hash?.update(piece);
      yield piece;
    }
  }

  /** Of the whole body; reads what nobody has read yet. */
  async sum(): Promise<string | undefined> {
    for await (const _ of this);
    return this.#hash?.digest("hex");
  }
}
