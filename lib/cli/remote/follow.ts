import { uuidV7 } from "../../codec/uuid.ts";
import { sleep } from "../../core/async.ts";
import { cancelledFailure, Failure, messageOf } from "../../core/errors.ts";
import { anything, boolean, check, type Infer, integer, isObject, nullable, object, string } from "../../core/shape.ts";
import { PROGRESS, type Progress } from "../../run/progress.ts";
import { RUN_STATUS } from "../../run/protocol.ts";
import { shortId } from "../base/terminal.ts";
import { Lines, type LogPiece } from "../bucket/output.ts";
import type { CallOptions } from "./client.ts";
import { expectAnswer, type Item, patiently, type RemoteBucket, type Retry } from "./remote-bucket.ts";

const POLL_SECONDS = 30;
const IDLE_MS = 200;
const PROGRESS_MS = 1_000;
const CANCEL_SILENCE_MS = 10_000;
/** How long a server holds a start that waits. */
const HELD_SECONDS = 60;

const UUID = string({ pattern: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, means: "a UUID" });
const STARTED = object({ run_id: UUID });
/** A piece of Activity. */
const PIECE = object({ next: integer({ min: 0 }), data: string(), done: boolean() });
/** What is followed of a run. */
const RUN = object({ status: RUN_STATUS, error: nullable(string()), result: anything() });
/** How a run on a server ended; `result` is what the run left, `untold` why it failed where Activity does not tell. */
export type EndedRun = Infer<typeof RUN> & { id: string; untold: string | undefined };

/** Who follows a run. */
export interface Follower {
  /** The first wish to stop: the run is cancelled, and followed to its end. */
  signal: AbortSignal;
  /** The second: the run is left alone. */
  insisted?: Promise<void> | undefined;
  /** Gets sentences about what happens, without newline. */
  tell(text: string): void;
  /** Gets the run's Activity as it comes, in whole lines. */
  output(text: string): void;
  /** Gets how far the run is, about once a second; leave it out where nobody looks. */
  progress?: ((progress: Progress) => void) | undefined;
  /** How long it goes on without an answer; default 5 minutes. */
  patienceMs?: number | undefined;
}

/** A request that starts a run: the path behind the bucket's id, and what is sent. */
export interface StartRequest extends Pick<CallOptions, "json" | "type" | "headers"> {
  path: string;
  /** Makes the body anew for each try. */
  body?: (() => AsyncIterable<Uint8Array>) | undefined;
  /** How long the start may wait in line; undefined for not at all. */
  waitMs?: number | undefined;
  /** Why it goes past what holds it back. */
  breakGlass?: string | undefined;
}

/**
 * Starts a run and answers its id. However often the request has to be sent, its key starts one run only. Where the bucket is
 * busy the start waits in line, as long as the request says; the signal gives the place up. Throws `bucket_busy`, `cancelled`
 * where nothing has started, and what the server refuses with.
 */
export async function startOnServer(bucket: RemoteBucket, request: StartRequest, follower: Follower): Promise<string> {
  const key = uuidV7();
  const { path, body, waitMs, breakGlass, headers: own, ...sent } = request;
  const headers = { ...own, ...(breakGlass !== undefined && { "Ops-Break-Glass": encodeURIComponent(breakGlass) }) };
  const until = performance.now() + (waitMs ?? 0);
  using place = waitMs === undefined ? undefined : placeOf(bucket, key, follower.signal);
  using stop = aborted(follower.insisted);
  const upload = body && new Upload(body, follower.signal);
  for (let told = 0; ; ) {
    const left = follower.signal.aborted ? 0 : Math.max(0, Math.ceil((until - performance.now()) / 1_000));
    const wait: Record<string, string> = waitMs === undefined ? {} : { "Ops-Wait": String(Math.min(left, HELD_SECONDS)) };
    const signals = [stop.signal, ...(upload ? [upload.signal] : [])];
    const options = { ...sent, headers: { ...headers, ...wait, "Idempotency-Key": key }, signal: AbortSignal.any(signals) };
    const send = () => bucket.client.call("POST", bucket.path(path), { ...options, ...(upload && { body: upload.body() }) });
    try {
      return expectAnswer(STARTED, await patiently(patienceOf(follower), send, { sent: true })).run_id;
    } catch (error) {
      const isBusy = error instanceof Failure && error.code === "bucket_busy";
      if (isBusy && (left === 0 || follower.signal.aborted)) await place?.leave();
      if (isBusy && follower.signal.aborted) throw cancelledFailure();
      const { position } = (isBusy && isObject(error.details) ? error.details : {}) as { position?: number | null };
      if (stop.signal.aborted) follower.tell("the start is given up; if it had arrived, a run goes on: see `ops runs list`");
      else if (upload?.signal.aborted) follower.tell("the upload was ended before all of it was sent: nothing has changed");
      if (typeof position !== "number" || left === 0) throw error;
      if (position !== told) follower.tell(`waiting in line, number ${position}: ${messageOf(error)}`);
      told = position;
    }
  }
}

/** What a start sends. An interrupt ends the upload until all is sent; from then on the run may have started. */
class Upload {
  readonly #make: () => AsyncIterable<Uint8Array>;
  readonly #ended = new AbortController();
  #isSent = false;

  constructor(make: () => AsyncIterable<Uint8Array>, signal: AbortSignal) {
    this.#make = make;
    const end = () => this.#isSent || this.#ended.abort();
    if (signal.aborted) end();
    signal.addEventListener("abort", end, { once: true });
  }

  /** Aborted where the upload was ended. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** The pieces, made anew for each try. */
  async *body(): AsyncGenerator<Uint8Array> {
    this.#isSent = false;
    yield* this.#make();
    this.#isSent = true;
  }
}

/** The place in line of a start, which an interrupt gives up until the start is over. */
function placeOf(bucket: RemoteBucket, key: string, signal: AbortSignal): { leave(): Promise<boolean> } & Disposable {
  const over = new AbortController();
  const leave = async () => {
    const drop = bucket.client.call("DELETE", bucket.path("/queue", key), { silenceMs: CANCEL_SILENCE_MS });
    return await drop.then(
      () => true,
      () => false,
    );
  };
  const leaveSoon = async () => {
    // The request that asks for the place may arrive after the one that gives the place up.
    while (!over.signal.aborted && !(await leave())) await sleep(IDLE_MS, over.signal).catch(() => {});
  };
  signal.addEventListener("abort", leaveSoon, { once: true, signal: over.signal });
  return { leave, [Symbol.dispose]: () => over.abort() };
}

/**
 * Hands out the Activity of a run until the run has ended, and answers how it ended. The log goes on where it was after a
 * lost connection. Throws `cancelled` where the follower insists: the run then goes on.
 */
export async function followRun(bucket: RemoteBucket, id: string, follower: Follower): Promise<EndedRun> {
  using stop = aborted(follower.insisted);
  const { signal } = stop;
  const run = bucket.path("/runs", id);
  const lines = new Lines(follower.output);
  let confirmed: Progress["cancel"] = null;
  const over = new AbortController();
  const looks = lookAt(
    () => bucket.client.call("GET", run, { signal: over.signal, isAside: true }),
    over.signal,
    (progress) => {
      confirmed = progress.cancel ?? confirmed;
      follower.progress?.(progress);
    },
  );
  let cancels: Promise<void> | undefined;
  const cancel = () => {
    cancels = askToCancel(bucket, run, follower, AbortSignal.any([signal, over.signal]));
  };
  if (follower.signal.aborted) cancel();
  else follower.signal.addEventListener("abort", cancel, { once: true });
  const retry = { ...patienceOf(follower), signal };
  try {
    await lines.follow((after) => nextPiece(bucket, id, after, retry), 0, signal);
    const ended = expectAnswer(RUN, await patiently(retry, () => bucket.client.call("GET", run, { signal })));
    const { confirmed: done, total } = (confirmed as Progress["cancel"]) ?? {};
    if (total !== undefined) follower.tell(`cancelled: ${done} of ${total} confirmed to have ended`);
    return { id, ...ended, untold: lines.untold(ended) };
  } catch (error) {
    const state = signal.aborted ? "is left alone" : "goes on as far as is known here";
    follower.tell(`run ${id} ${state}; \`ops runs follow ${shortId(id)}\` shows it`);
    throw follower.signal.aborted ? new Failure("cancelled", messageOf(error), { cause: error }) : error;
  } finally {
    over.abort();
    follower.signal.removeEventListener("abort", cancel);
    await Promise.all([looks, cancels]);
  }
}

/** The next text of a run's Activity from a byte on; the server waits for it for a while. */
export async function nextPiece(bucket: RemoteBucket, id: string, after: number, retry: Retry): Promise<LogPiece> {
  const { signal } = retry;
  const ask = () => bucket.get(`/runs/${id}/logs`, { after, timeout: POLL_SECONDS }, { ...(signal && { signal }) });
  return expectAnswer(PIECE, await patiently(retry, ask));
}

/** Hands out how far a run is, about once a second, until the signal is aborted. Whoever reads the log tells what goes wrong. */
async function lookAt(ask: () => Promise<Item>, signal: AbortSignal, show: (progress: Progress) => void): Promise<void> {
  for (;;) {
    await sleep(PROGRESS_MS, signal).catch(() => {});
    if (signal.aborted) return;
    const { progress } = await ask().catch((): Item => ({}));
    const checked = check(PROGRESS, progress);
    if (checked.ok && !signal.aborted) show(checked.value);
  }
}

async function askToCancel(bucket: RemoteBucket, run: string, follower: Follower, signal: AbortSignal): Promise<void> {
  try {
    const options = { json: {}, silenceMs: CANCEL_SILENCE_MS, isAside: true, signal };
    await patiently({ ...patienceOf(follower), signal }, () => bucket.client.call("POST", `${run}/cancel`, options));
    follower.tell("asked the server to cancel the run; a second interrupt leaves the run alone");
  } catch (error) {
    const isOver = signal.aborted || (error instanceof Failure && error.code === "run_not_active");
    if (!isOver) follower.tell(`Cannot cancel the run: ${messageOf(error)}`);
  }
}

function patienceOf({ patienceMs, tell }: Follower) {
  return { ms: patienceMs, tell };
}

/** A signal that is aborted once a promise is fulfilled; nothing is awaited after its disposal. */
function aborted(by: Promise<void> | undefined): { signal: AbortSignal } & Disposable {
  const controller = new AbortController();
  let isOver = false;
  void by?.then(() => isOver || controller.abort());
  return {
    signal: controller.signal,
    [Symbol.dispose]() {
      isOver = true;
    },
  };
}
