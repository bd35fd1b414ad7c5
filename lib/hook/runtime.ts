import { explain, Failure, type FailureCode, type Problem } from "../core/errors.ts";
import { check, isObject, object, quote, type Shape } from "../core/shape.ts";
import { type Connection, type Listener, type ListenOptions, listen } from "../http/listen.ts";
import { type Answer, failureHeaders, HTTP_STATUS, type HttpRequest, invalidRequest, readJsonBody } from "../http/message.ts";
import { LIMITS } from "../http/node-server.ts";
import { findRoute } from "../http/router.ts";
import { isOwnHost, PeerCheck } from "./peer.ts";
import { errorAnswer, HOOK_ROUTES, type HookRuntimeOptions, type RunningScript } from "./routes.ts";
import { Semaphores } from "./semaphores.ts";

/** One script between its begin and its end. */
interface Running {
  script: RunningScript;
  ended: AbortController;
  /** The answers that are being made. */
  answers: Set<Promise<unknown>>;
}

/** What the API of one session works with. */
interface Api {
  options: HookRuntimeOptions;
  semaphores: Semaphores;
  peers: PeerCheck;
  running: Set<Running>;
}

const API_PORT = 8080;
const ADDRESSES = Array.from({ length: 254 }, (_, index) => `127.0.0.${index + 1}`);
/** Scripts are on this very machine and send little; waits do not count as time for the answer. */
const HOOK_LIMITS = { ...LIMITS, requestMs: 30_000, headerBytes: 16 * 1024 };
const API_CLOSE_MS = 1_000;

/** The sentences of this API (hook-runtime.md, Errors) in place of those of the control plane. */
const BODY_ERRORS: Partial<Record<FailureCode, string>> = {
  unsupported_media_type: "Content-Type must be application/json",
  invalid_request: "Invalid JSON format",
};

/** The fields whose absence has a sentence of its own. */
const ENTRY_NAMES = ["namespace", "key"];

/**
 * The runtime API of one session (hook-runtime.md, Endpoints; decisions: Hook runtime API): until `close` scripts on
 * this host reach the API at `host` and `port`. The API has no password: it answers only processes of this user and of
 * root, or of the user of the scripts alone, and only for an allocation that a script is running for.
 */
export type HookRuntime = Awaited<ReturnType<typeof startHookRuntime>>;

/** Listens on 127.0.0.1:8080, else on the next of 127.0.0.2 to 127.0.0.254, else on any free port. */
export async function startHookRuntime(options: HookRuntimeOptions) {
  const { user } = options;
  const peers = user === undefined ? new PeerCheck() : new PeerCheck(user, "alone");
  const api: Api = { options, semaphores: new Semaphores(), peers, running: new Set() };
  const { host, listener } = await listenSomewhere((request, connection) =>
    answerScript(api, request, connection).catch((error: unknown) => {
      if (!(error instanceof Failure)) return errorAnswer(500, explain(error));
      if (error.code === "cancelled") return errorAnswer(503, "The session ends");
      return errorAnswer(HTTP_STATUS[error.code] ?? 500, explain(error), failureHeaders(error));
    }),
  );
  /**
   * A script runs until `end` is called, which ends its waits and commands and warns about the slots that the script
   * leaves taken. Resolves when nothing of the script is left on a worker.
   */
  const begin = (script: RunningScript) => {
    const running = { script, ended: new AbortController(), answers: new Set<Promise<unknown>>() };
    api.running.add(running);
    return { end: () => endScript(api, running) };
  };
  /** Ends all waits and connections. */
  const close = () => listener.close(API_CLOSE_MS);
  return { host, port: listener.port, begin, close };
}

async function listenSomewhere(handle: ListenOptions["handle"]): Promise<{ host: string; listener: Listener }> {
  const options = { handle, limits: HOOK_LIMITS };
  for (const host of ADDRESSES) {
    // Where the port is taken, or the address is none of this machine: the next address.
    const listener = await listen({ ...options, host, port: API_PORT }).catch(() => undefined);
    if (listener) return { host, listener };
  }
  const [host = ""] = ADDRESSES;
  return { host, listener: await listen({ ...options, host, port: 0 }) };
}

async function endScript({ options, semaphores, running }: Api, one: Running): Promise<void> {
  const { job, event, allocationId, hook } = one.script;
  if (!running.delete(one)) return;
  one.ended.abort();
  for (const name of semaphores.heldBy(job, event, allocationId)) {
    const left = `hook ${hook} has ended and semaphore ${quote(name)} is not released`;
    options.warn(one.script, `${left}: the slot stays taken until the session ends`);
  }
  await Promise.allSettled(one.answers);
}

/**
 * Answers a request. Decided from top to bottom: peer, route, allocation, content type, JSON, required fields, event;
 * the handler decides on the namespace.
 */
async function answerScript(api: Api, request: HttpRequest, connection: Connection): Promise<Answer> {
  const { options, semaphores } = api;
  if (!isOwnHost(request, connection)) return errorAnswer(403, "The Host header must be the address of this API");
  if (!(await api.peers.admits(connection))) {
    const who = options.user === undefined ? "of the user who runs ops and of root" : "of the user of hooks";
    return errorAnswer(403, `Only processes ${who} may use this API`);
  }
  const { route } = findRoute(HOOK_ROUTES, request);
  const id = String(request.headers["x-allocation-id"] ?? "");
  if (id === "") return errorAnswer(400, "X-ALLOCATION-ID header is missing");
  if (!options.allocation(id)) return errorAnswer(404, "Invalid allocation ID");
  const { given, warnings } = await readFields(request, route.fields);
  const command = String(request.headers.command ?? "");
  const { script, ended, answers } = callerOf(api, id, String(request.headers.event ?? ""), command);
  for (const { path, message } of warnings) options.warn(script, `${route.method} ${route.path}: ${path} ${message}`);
  if (route.writes && script.event === "health_check") return errorAnswer(400, "KV writes are not allowed during health_check");
  const signal = AbortSignal.any([request.signal, ended.signal, options.signal]);
  const call = { script, command, options, semaphores, signal, longPoll: () => request.longPoll() };
  const answer = Promise.resolve(route.handle(given, call));
  answers.add(answer);
  return await answer.finally(() => answers.delete(answer));
}

/** The script that sends a request: it runs for this allocation, and names its own hook or another hook of the job. */
function callerOf({ options, running }: Api, id: string, event: string, command: string): Running {
  const refuse = (message: string) => new Failure("invalid_request", message);
  if (event === "") throw refuse("EVENT header is missing");
  if (command === "") throw refuse("COMMAND header is missing");
  const onEvent = [...running].filter(({ script }) => script.allocationId === id && script.event === event);
  const caller = onEvent.find(({ script }) => script.hook === command) ?? onEvent[0];
  if (!caller) throw refuse("EVENT does not match the running hook");
  const { job, hook } = caller.script;
  if (hook !== command && !options.hasHook(job, command)) throw refuse("COMMAND is no hook of the job");
  return caller;
}

/**
 * Reads the fields of a request from its JSON body or, for GET and DELETE without a body, from the query, and checks
 * them: first the content type, then the JSON, then what is required. Names compare without case and `null` counts as
 * missing, as in Go's JSON, for which scripts were written; an unknown field is a warning. Throws `payload_too_large`,
 * `unsupported_media_type` or `invalid_request`.
 */
async function readFields(
  request: HttpRequest,
  fields: Record<string, Shape<unknown>>,
): Promise<{ given: Record<string, unknown>; warnings: Problem[] }> {
  const body = await readBodyFields(request);
  const fromQuery = body === undefined && ["GET", "HEAD", "DELETE"].includes(request.method);
  const input = fromQuery ? Object.fromEntries(new URLSearchParams(request.query)) : (body ?? {});
  const checked = check(object(fields, { lenient: true, unknown: "warn" }), input);
  if (checked.ok) return { given: checked.value, warnings: checked.warnings };
  const given = new Map(Object.entries(input).map(([name, value]) => [name.toLowerCase(), value]));
  if ("key" in fields && ENTRY_NAMES.some((name) => (given.get(name) ?? "") === ""))
    throw new Failure("invalid_request", "Both namespace and key are required");
  throw invalidRequest(checked.problems);
}

async function readBodyFields(request: HttpRequest): Promise<Record<string, unknown> | undefined> {
  try {
    const body = await readJsonBody(request);
    if (body === undefined || isObject(body)) return body;
    throw new Failure("invalid_request", "the body is not a JSON object");
  } catch (cause) {
    const sentence = cause instanceof Failure ? BODY_ERRORS[cause.code] : undefined;
    throw sentence === undefined ? cause : new Failure((cause as Failure).code, sentence, { cause });
  }
}
