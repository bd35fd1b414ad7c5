import type { HookEvent } from "../bucket/base/model.ts";
import type { KvStore } from "../bucket/kv/kv.ts";
import { explain, Failure } from "../core/errors.ts";
import { quote } from "../core/shape.ts";
import { type Connection, type Listener, type ListenOptions, listen } from "../http/listen.ts";
import { type Answer, HTTP_STATUS, type HttpRequest } from "../http/message.ts";
import { LIMITS } from "../http/node-server.ts";
import { findRoute } from "../http/router.ts";
import { readFields } from "./fields.ts";
import { isOwnHost, PeerCheck } from "./peer.ts";
import { type Call, ROUTES, refusal } from "./routes.ts";
import { Semaphores } from "./semaphores.ts";

/** A hook script that runs for an allocation. */
export interface RunningScript {
  allocationId: string;
  job: string;
  worker: string;
  event: HookEvent;
  hook: string;
}

/** An allocation that the API knows. */
interface Allocation {
  id: string;
  job: string;
  worker: string;
}

/** What a session of hooks gives its API to work with. */
export interface HookRuntimeOptions {
  /** Writes stay pending until the session flushes them. */
  kv: KvStore;
  /** The allocations that the API knows: those not removed and, while a reconcile runs, the removed ones too. */
  allocation(id: string): Allocation | undefined;
  /** The jobs that a job demands. */
  upstreams(job: string): ReadonlySet<string>;
  hasHook(job: string, hook: string): boolean;
  /** The workers where a job has an allocation that is not removed, in the order of the catalog. */
  workers(job: string): readonly string[];
  /** The hooks that demand this hook of this job, each once. */
  dependents(job: string, hook: string): readonly { job: string; hook: string; demand_config: unknown }[];
  /** Ends all waits. */
  signal: AbortSignal;
  /** Gets every secret that a hook writes, before the write is answered, so that no log shows it. */
  onSecret(value: string): void;
  /** Waits for something and tells meanwhile what it is, and when it is given up. */
  waiting<T>(on: string, limitMs: number, work: Promise<T>): Promise<T>;
  /** Gets what people should read in the log of a script. */
  warn(script: RunningScript, sentence: string): void;
}

/** One script between its begin and its end. */
interface Running {
  script: RunningScript;
  ended: AbortController;
}

const PORT = 8080;
const ADDRESSES = Array.from({ length: 254 }, (_, index) => `127.0.0.${index + 1}`);
/** Scripts are on this very machine and send little; waits do not count as time for the answer. */
const HOOK_LIMITS = { ...LIMITS, requestMs: 30_000, headerBytes: 16 * 1024 };
const CLOSE_WAIT_MS = 1_000;

/**
 * The runtime API of one session (hook-runtime.md, Endpoints; decisions: Hook runtime API): until `close` scripts on
 * this host reach it at `host` and `port`. It has no password: it answers only processes of this user and of root, and
 * only for an allocation that a script is running for.
 */
export interface HookRuntime {
  host: string;
  port: number;
  /** A script runs until `end` is called, which ends its waits and warns about the slots that it leaves taken. */
  begin(script: RunningScript): { end(): void };
  /** Ends all waits and connections. */
  close(): Promise<void>;
}

/** Listens on 127.0.0.1:8080, else on the next of 127.0.0.2 to 127.0.0.254, else on any free port. */
export async function startHookRuntime(options: HookRuntimeOptions): Promise<HookRuntime> {
  const api = new Api(options);
  const { host, listener } = await listenSomewhere((request, connection) => api.handle(request, connection));
  return {
    host,
    port: listener.port,
    begin: (script) => api.begin(script),
    close: () => listener.close(CLOSE_WAIT_MS),
  };
}

async function listenSomewhere(handle: ListenOptions["handle"]): Promise<{ host: string; listener: Listener }> {
  for (const host of ADDRESSES) {
    try {
      return { host, listener: await listen({ handle, limits: HOOK_LIMITS, host, port: PORT }) };
    } catch {
      // Taken, or no address of this machine: the next one.
    }
  }
  const host = "127.0.0.1";
  return { host, listener: await listen({ handle, limits: HOOK_LIMITS, host, port: 0 }) };
}

/** Answers requests: who may call is decided here from top to bottom, what it may do in the routes. */
class Api {
  readonly #options: HookRuntimeOptions;
  readonly #semaphores = new Semaphores();
  readonly #peers = new PeerCheck();
  readonly #running = new Set<Running>();

  constructor(options: HookRuntimeOptions) {
    this.#options = options;
  }

  begin(script: RunningScript): { end(): void } {
    const running = { script, ended: new AbortController() };
    this.#running.add(running);
    return { end: () => this.#end(running) };
  }

  #end(running: Running): void {
    const { job, event, allocationId, hook } = running.script;
    if (!this.#running.delete(running)) return;
    running.ended.abort();
    for (const name of this.#semaphores.heldBy(job, event, allocationId))
      this.#options.warn(
        running.script,
        `hook ${hook} has ended and semaphore ${quote(name)} is not released: the slot stays taken until the session ends`,
      );
  }

  async handle(request: HttpRequest, connection: Connection): Promise<Answer> {
    try {
      return await this.#answer(request, connection);
    } catch (error) {
      const status = error instanceof Failure ? HTTP_STATUS[error.code] : undefined;
      return refusal(status ?? 500, explain(error));
    }
  }

  /** The order of decisions: allocation, content type, JSON, required fields, event, and in the handler namespace. */
  async #answer(request: HttpRequest, connection: Connection): Promise<Answer> {
    if (!isOwnHost(request, connection)) return refusal(403, "The Host header must be the address of this API");
    if (!(await this.#peers.admits(connection)))
      return refusal(403, "Only processes of the user who runs ops and of root may use this API");
    const { route } = findRoute(ROUTES, request);
    const id = request.headers["x-allocation-id"] ?? "";
    if (id === "") return refusal(400, "X-ALLOCATION-ID header is missing");
    const allocation = this.#options.allocation(String(id));
    if (!allocation) return refusal(404, "Invalid allocation ID");
    const { given, warnings } = await readFields(request, route);
    const running = this.#find(allocation, request);
    for (const { path, message } of warnings)
      this.#options.warn(running.script, `${route.method} ${route.path}: ${path} ${message}`);
    const call = this.#call(running, allocation, request);
    if (route.writes && call.event === "health_check")
      return refusal(400, "KV writes are not allowed during health_check");
    return route.handle(given, call);
  }

  /**
   * The script that sends the request: a script that is running for this allocation, and names its own hook or another
   * hook of the job.
   */
  #find({ id, job }: Allocation, { headers }: HttpRequest): Running {
    const refuse = (message: string) => new Failure("invalid_request", message);
    const { event = "", command = "" } = headers;
    if (event === "") throw refuse("EVENT header is missing");
    if (command === "") throw refuse("COMMAND header is missing");
    const own = [...this.#running].filter(({ script }) => script.allocationId === id);
    const onEvent = own.filter(({ script }) => script.event === event);
    const running = onEvent.find(({ script }) => script.hook === command) ?? onEvent[0];
    if (!running) throw refuse("EVENT does not match the running hook");
    if (running.script.hook !== command && !this.#options.hasHook(job, String(command)))
      throw refuse("COMMAND is no hook of the job");
    return running;
  }

  #call({ script, ended }: Running, { id, job, worker }: Allocation, request: HttpRequest): Call {
    const options = this.#options;
    return {
      allocationId: id,
      job,
      worker,
      event: script.event,
      kv: options.kv,
      upstream: options.upstreams(job),
      semaphores: this.#semaphores,
      signal: AbortSignal.any([request.signal, ended.signal, options.signal]),
      workers: (name) => options.workers(name),
      longPoll: () => request.longPoll(),
      waiting: (on, limitMs, work) => options.waiting(`${job}@${worker}: ${on}`, limitMs, work),
      dependents: () => options.dependents(job, String(request.headers.command)),
      onSecret: (value) => options.onSecret(value),
      warn: (sentence) => options.warn(script, sentence),
    };
  }
}
