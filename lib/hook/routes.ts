import type { HookEvent } from "../bucket/base/model.ts";
import type { KvStore } from "../bucket/kv/kv.ts";
import {
  fullNamespace,
  isPrivateKey,
  isSecretNamespace,
  LONGEST_TTL,
  mayWrite,
  readableNamespaces,
} from "../bucket/kv/kv-access.ts";
import { cancelledFailure } from "../core/errors.ts";
import { type Infer, integer, optional, quote, type Shape, string, withDefault } from "../core/shape.ts";
import { type Answer, json } from "../http/message.ts";
import { rolloutOrder } from "../plan/rollout.ts";
import type { Semaphores } from "./semaphores.ts";

/** A hook script that runs for an allocation. */
export interface RunningScript {
  allocationId: string;
  job: string;
  worker: string;
  event: HookEvent;
  /** `DEPLOY_PHASE`. */
  phase?: string;
  hook: string;
}

/** What a session of hooks gives its API to work with. */
export interface HookRuntimeOptions {
  /** Writes stay pending until the session flushes them. */
  kv: KvStore;
  /** The allocations that the API knows: those not removed and, while a reconcile runs, the removed ones too. */
  allocation(id: string): object | undefined;
  /** The jobs that a job demands. */
  upstreams(job: string): ReadonlySet<string>;
  hasHook(job: string, hook: string): boolean;
  /** The workers of a pass over a job, in the order of the catalog: `command_control` leaves out the disabled ones. */
  workers(job: string, kind: "cli" | "command_control"): readonly string[];
  /** The hooks that demand this hook of this job, each once. */
  dependents(job: string, hook: string): readonly { job: string; hook: string; demand_config: unknown }[];
  /**
   * Runs a command line on a worker until the signal is aborted. Answers exit code, outputs and reason; undefined where
   * the bucket has no such worker. Throws `cancelled`.
   */
  command(script: RunningScript, order: CommandOrder, signal: AbortSignal): Promise<object | undefined>;
  /** The user of the scripts, who alone may call; without one our user and root. */
  user?: number | undefined;
  /** Ends all waits and commands. */
  signal: AbortSignal;
  /** Gets every secret that a hook writes, before the write is answered, so that no log shows the secret. */
  onSecret(value: string): void;
  /** Waits for something, and shows in the run's progress what is waited for and when the wait is given up. */
  waiting<T>(place: { job: string; worker: string; detail: string }, limitMs: number, work: Promise<T>): Promise<T>;
  /** Writes a sentence for people to the log of a script. */
  warn(script: RunningScript, sentence: string): void;
}

/** A request of a script, as handlers get it. Job and worker are the script's: no header decides them. */
interface HookCall {
  script: RunningScript;
  /** The hook in `COMMAND`: of the script's job. */
  command: string;
  options: HookRuntimeOptions;
  semaphores: Semaphores;
  /** Aborted when the caller has left, its script has ended or the session ends. */
  signal: AbortSignal;
  longPoll(): void;
}

type RouteFields = Record<string, Shape<unknown>>;

/** One entry of the route table. `fields` come in a JSON body, for GET and DELETE also in the query. */
interface HookRoute<F extends RouteFields = RouteFields> {
  method: "GET" | "PUT" | "DELETE" | "POST";
  path: string;
  fields: F;
  /** The route writes to the KV store, which `health_check` hooks may not. */
  writes?: boolean;
  handle(given: { [K in keyof F]: Infer<F[K]> }, call: HookCall): Answer | Promise<Answer>;
}

const DEFAULT_WAIT_S = 600;
const DEFAULT_COMMAND_S = 300;

const NAME_FIELD = string({ min: 1, max: 1_000, pattern: /[^\p{Cc}\p{Cs}]*/u, means: "text of one line" });
/** SQLite keeps text as UTF-8, without lone surrogates: with them a value would be read back as another. */
const VALUE_FIELD = string({ min: 1, pattern: /\P{Cs}*/u, means: "well-formed text" });
const ENTRY_FIELDS = { namespace: NAME_FIELD, key: NAME_FIELD };
const WRITE_FIELDS = { ...ENTRY_FIELDS, value: VALUE_FIELD, ttl: withDefault(integer({ min: 0, max: LONGEST_TTL }), 0) };

const ACQUIRE_FIELDS = {
  name: NAME_FIELD,
  capacity: withDefault(integer({ min: 1, max: 64 }), 1),
  timeout_seconds: withDefault(integer({ min: 0, max: 3600 }), DEFAULT_WAIT_S),
};

const COMMAND_FIELDS = {
  worker: NAME_FIELD,
  command: string({ pattern: /[^\0\p{Cs}]*/u, means: "well-formed text without NUL" }),
  timeout_seconds: withDefault(integer({ min: 0, max: LONGEST_TTL }), DEFAULT_COMMAND_S),
};

/** A command line for a worker. */
export type CommandOrder = { [K in keyof typeof COMMAND_FIELDS]: Infer<(typeof COMMAND_FIELDS)[K]> };

/** The whole API (hook-runtime.md, Endpoints). */
export const HOOK_ROUTES: readonly HookRoute[] = [
  hookRoute({ method: "GET", path: "/kv", fields: ENTRY_FIELDS, handle: getValue }),
  hookRoute({ method: "PUT", path: "/kv", fields: WRITE_FIELDS, writes: true, handle: putValue("/kv") }),
  hookRoute({ method: "DELETE", path: "/kv", fields: ENTRY_FIELDS, writes: true, handle: deleteValue("/kv") }),
  hookRoute({ method: "PUT", path: "/kv/secret", fields: WRITE_FIELDS, writes: true, handle: putValue("/kv/secret") }),
  hookRoute({ method: "DELETE", path: "/kv/secret", fields: ENTRY_FIELDS, writes: true, handle: deleteValue("/kv/secret") }),
  hookRoute({ method: "GET", path: "/kv/keys", fields: { namespace: optional(NAME_FIELD) }, handle: listKeys }),
  hookRoute({ method: "GET", path: "/demands", fields: {}, handle: listDemands }),
  hookRoute({ method: "POST", path: "/semaphore/acquire", fields: ACQUIRE_FIELDS, handle: acquire }),
  hookRoute({ method: "POST", path: "/semaphore/release", fields: { name: NAME_FIELD }, handle: release }),
  hookRoute({ method: "GET", path: "/semaphore/status", fields: { name: NAME_FIELD }, handle: status }),
  hookRoute({ method: "POST", path: "/worker/command", fields: COMMAND_FIELDS, handle: commandWorker }),
];

/** An entry of the table, its handler typed by its fields. */
function hookRoute<F extends RouteFields>(definition: HookRoute<F>): HookRoute {
  return definition as unknown as HookRoute;
}

/** The body of every error is its sentence (decisions: Hook runtime API). */
export function errorAnswer(status: number, error: string, headers: Answer["headers"] = {}): Answer {
  return json(status, { error }, headers);
}

const FORBIDDEN = errorAnswer(400, "Invalid or unauthorized namespace");
const CONFLICT = errorAnswer(409, "Semaphore acquire or release failed");

type Entry = { [K in keyof typeof ENTRY_FIELDS]: string };

function getValue({ namespace, key }: Entry, call: HookCall): Answer {
  const full = readableName(namespace, call);
  if (full === undefined || isPrivateKey(full, key)) return FORBIDDEN;
  const value = orderInForce(full, key, call) ?? call.options.kv.get(full, key);
  return value === undefined ? errorAnswer(404, "KV get operation failed") : json(200, { namespace: full, key, value });
}

/**
 * The rollout order in force of a job with workers: the order that a hook has put, if it names every worker or every
 * active one, or else that of the catalog.
 */
function orderInForce(namespace: string, key: string, { options }: HookCall): string | undefined {
  const [, job] = /^ops\/job\/([^/]+)$/.exec(namespace) ?? [];
  if (job === undefined || key !== "rollout_order") return undefined;
  const put = options.kv.get(namespace, key);
  const orders = (["cli", "command_control"] as const).map((kind) => rolloutOrder(put, options.workers(job, kind)));
  return (orders.find(({ source }) => source === "kv") ?? orders[0])?.workers.join(",") || undefined;
}

function putValue(route: "/kv" | "/kv/secret") {
  return ({ namespace, key, value, ttl }: Entry & { value: string; ttl: number }, call: HookCall): Answer => {
    if (!mayWrite(call.script.job, call.script.event, { route, namespace, key })) return FORBIDDEN;
    if (isSecretNamespace(namespace)) call.options.onSecret(value);
    call.options.kv.put(namespace, key, value, ttl);
    return json(200, { namespace, key });
  };
}

function deleteValue(route: "/kv" | "/kv/secret") {
  return ({ namespace, key }: Entry, call: HookCall): Answer => {
    if (!mayWrite(call.script.job, call.script.event, { route, namespace, key })) return FORBIDDEN;
    const isThere = orderInForce(namespace, key, call) !== undefined || call.options.kv.keys(namespace).includes(key);
    if (!isThere) return errorAnswer(404, "KV delete operation failed");
    call.options.kv.delete(namespace, key);
    return json(200, { namespace, key });
  };
}

function listKeys({ namespace }: { namespace: string | undefined }, call: HookCall): Answer {
  const asked = namespace === undefined ? [`vars/job/${call.script.job}`, `secrets/job/${call.script.job}`] : [namespace];
  const namespaces: Record<string, string[]> = {};
  for (const one of asked) {
    const full = readableName(one, call);
    if (full === undefined) return FORBIDDEN;
    namespaces[full] = call.options.kv.keys(full);
  }
  return json(200, { namespaces });
}

/** The full name of a namespace that the caller may read. */
function readableName(namespace: string, { script, options }: HookCall): string | undefined {
  const { job, worker } = script;
  const full = fullNamespace(namespace, worker);
  if (!readableNamespaces({ job, worker, upstream: options.upstreams(job) }).has(full)) return undefined;
  if (namespace === "ops") options.warn(script, "the namespace ops is an older name of ops/bucket");
  return full;
}

function listDemands(_: object, { script, command, options }: HookCall): Answer {
  return json(200, options.dependents(script.job, command));
}

/** A timeout of 0 means the default. */
async function acquire(
  { name, capacity, timeout_seconds }: { name: string; capacity: number; timeout_seconds: number },
  { script, options, semaphores, signal, longPoll }: HookCall,
): Promise<Answer> {
  const { allocationId, job, worker, event } = script;
  const timeoutMs = (timeout_seconds || DEFAULT_WAIT_S) * 1000;
  longPoll();
  const acquired = semaphores.acquire({ job, event, name }, allocationId, { capacity, timeoutMs, signal });
  const outcome = await options.waiting({ job, worker, detail: `semaphore ${name}` }, timeoutMs, acquired);
  if (outcome === "conflict") return CONFLICT;
  if (outcome === "timeout") return errorAnswer(408, "Timed out waiting for semaphore");
  if (outcome === "cancelled") throw cancelledFailure();
  return json(200, { name, allocation_id: allocationId, capacity, acquired: true });
}

function release({ name }: { name: string }, { script, semaphores }: HookCall): Answer {
  const { allocationId, job, event } = script;
  if (!semaphores.release({ job, event, name }, allocationId)) return CONFLICT;
  return json(200, { name, allocation_id: allocationId, released: true });
}

function status({ name }: { name: string }, { script: { job, event }, semaphores }: HookCall): Answer {
  return json(200, semaphores.status({ job, event, name }));
}

/** What the command waits for before it begins does not count as its time. */
async function commandWorker(order: CommandOrder, { script, options, signal, longPoll }: HookCall): Promise<Answer> {
  longPoll();
  const end = await options.command(script, order, signal);
  return end ? json(200, end) : errorAnswer(404, `${quote(order.worker)} is not a worker of this bucket`);
}
