import type { HookEvent } from "../bucket/base/model.ts";
import type { KvStore } from "../bucket/kv/kv.ts";
import {
  fullNamespace,
  isPrivateKey,
  isSecretNamespace,
  mayWrite,
  readableNamespaces,
} from "../bucket/kv/kv-access.ts";
import { type Infer, integer, optional, type Shape, string, withDefault } from "../core/shape.ts";
import { type Answer, json } from "../http/message.ts";
import { rolloutOrder } from "../plan/rollout.ts";
import type { Scope, Semaphores } from "./semaphores.ts";

/** What a handler works with: the script that calls, and what its session lends it. */
export interface Call {
  allocationId: string;
  /** Of the allocation: what a script says of itself decides nothing. */
  job: string;
  worker: string;
  event: HookEvent;
  /** The jobs that its job demands. */
  upstream: ReadonlySet<string>;
  kv: KvStore;
  semaphores: Semaphores;
  /** Aborted when the caller has left, its script has ended or the session ends. */
  signal: AbortSignal;
  /** The workers of a job, in the order of the catalog. */
  workers(job: string): readonly string[];
  longPoll(): void;
  /** Waits for something that shows in the run's progress meanwhile. */
  waiting<T>(on: string, limitMs: number, work: Promise<T>): Promise<T>;
  /** The hooks that demand the hook in `COMMAND`. */
  dependents(): unknown;
  onSecret(value: string): void;
  /** Writes a line for people to the log of the script. */
  warn(sentence: string): void;
}

type Fields = Record<string, Shape<unknown>>;

/** One entry of the route table. `fields` come in the query or in a JSON body for GET, else in a JSON body. */
interface HookRoute<F extends Fields = Fields> {
  method: "GET" | "PUT" | "DELETE" | "POST";
  path: string;
  fields: F;
  /** It writes to the KV store, which `health_check` hooks may not. */
  writes?: boolean;
  handle(given: { [K in keyof F]: Infer<F[K]> }, call: Call): Answer | Promise<Answer>;
}

const LONGEST_TTL_S = 100 * 366 * 86_400;
const DEFAULT_WAIT_S = 600;

const NAME = string({ min: 1, max: 1_000, pattern: /[^\p{Cc}\p{Cs}]*/u, means: "text of one line" });
/** SQLite keeps text as UTF-8, which has no lone surrogates: what is read back must be what was written. */
const VALUE = string({ min: 1, pattern: /\P{Cs}*/u, means: "well-formed text" });
const ENTRY = { namespace: NAME, key: NAME };
const WRITE = { ...ENTRY, value: VALUE, ttl: withDefault(integer({ min: 0, max: LONGEST_TTL_S }), 0) };

const ACQUIRE = {
  name: NAME,
  capacity: withDefault(integer({ min: 1, max: 64 }), 1),
  timeout_seconds: withDefault(integer({ min: 0, max: 3600 }), DEFAULT_WAIT_S),
};

/** The whole API (hook-runtime.md, Endpoints). */
export const ROUTES: readonly HookRoute[] = [
  route({ method: "GET", path: "/kv", fields: ENTRY, handle: getValue }),
  route({ method: "PUT", path: "/kv", fields: WRITE, writes: true, handle: put("/kv") }),
  route({ method: "DELETE", path: "/kv", fields: ENTRY, writes: true, handle: remove("/kv") }),
  route({ method: "PUT", path: "/kv/secret", fields: WRITE, writes: true, handle: put("/kv/secret") }),
  route({ method: "DELETE", path: "/kv/secret", fields: ENTRY, writes: true, handle: remove("/kv/secret") }),
  route({ method: "GET", path: "/kv/keys", fields: { namespace: optional(NAME) }, handle: listKeys }),
  route({ method: "GET", path: "/demands", fields: {}, handle: listDemands }),
  route({ method: "POST", path: "/semaphore/acquire", fields: ACQUIRE, handle: acquire }),
  route({ method: "POST", path: "/semaphore/release", fields: { name: NAME }, handle: release }),
  route({ method: "GET", path: "/semaphore/status", fields: { name: NAME }, handle: status }),
];

/** An entry of the table, its handler typed by its fields. */
function route<F extends Fields>(definition: HookRoute<F>): HookRoute {
  return definition as unknown as HookRoute;
}

/** The body of every error is its sentence (decisions: Hook runtime API). */
export function refusal(status: number, error: string): Answer {
  return json(status, { error });
}

const FORBIDDEN = refusal(400, "Invalid or unauthorized namespace");
const CONFLICT = refusal(409, "Semaphore acquire or release failed");

interface Entry {
  namespace: string;
  key: string;
}

function getValue({ namespace, key }: Entry, call: Call): Answer {
  const full = readable(namespace, call);
  if (full === undefined || isPrivateKey(full, key)) return FORBIDDEN;
  const value = orderInForce(full, key, call) ?? call.kv.get(full, key);
  return value === undefined ? refusal(404, "KV get operation failed") : json(200, { namespace: full, key, value });
}

/**
 * The rollout order in force of a job with workers: the order that a hook has put, if it names every worker, or else
 * that of the catalog.
 */
function orderInForce(namespace: string, key: string, { kv, workers }: Call): string | undefined {
  const [, job] = /^ops\/job\/([^/]+)$/.exec(namespace) ?? [];
  if (job === undefined || key !== "rollout_order") return undefined;
  return rolloutOrder(kv.get(namespace, key), workers(job)).workers.join(",") || undefined;
}

function put(route: "/kv" | "/kv/secret") {
  return ({ namespace, key, value, ttl }: Entry & { value: string; ttl: number }, call: Call): Answer => {
    if (!mayWrite(call.job, call.event, route, namespace, key)) return FORBIDDEN;
    if (isSecretNamespace(namespace)) call.onSecret(value);
    call.kv.put(namespace, key, value, ttl);
    return json(200, { namespace, key });
  };
}

function remove(route: "/kv" | "/kv/secret") {
  return ({ namespace, key }: Entry, call: Call): Answer => {
    if (!mayWrite(call.job, call.event, route, namespace, key)) return FORBIDDEN;
    if (!call.kv.keys(namespace).includes(key)) return refusal(404, "KV delete operation failed");
    call.kv.delete(namespace, key);
    return json(200, { namespace, key });
  };
}

function listKeys({ namespace }: { namespace: string | undefined }, call: Call): Answer {
  const asked = namespace === undefined ? [`vars/job/${call.job}`, `secrets/job/${call.job}`] : [namespace];
  const namespaces: Record<string, string[]> = {};
  for (const one of asked) {
    const full = readable(one, call);
    if (full === undefined) return FORBIDDEN;
    namespaces[full] = call.kv.keys(full);
  }
  return json(200, { namespaces });
}

/** The full name of a namespace that the caller may read. */
function readable(namespace: string, call: Call): string | undefined {
  const full = fullNamespace(namespace, call.worker);
  if (!readableNamespaces(call).has(full)) return undefined;
  if (namespace === "ops") call.warn("the namespace ops is an older name of ops/bucket");
  return full;
}

function listDemands(_: object, call: Call): Answer {
  return json(200, call.dependents());
}

/** A timeout of 0 means the default. */
async function acquire(
  { name, capacity, timeout_seconds }: { name: string; capacity: number; timeout_seconds: number },
  call: Call,
): Promise<Answer> {
  const { allocationId, semaphores, signal } = call;
  const limitMs = (timeout_seconds || DEFAULT_WAIT_S) * 1000;
  call.longPoll();
  const acquired = semaphores.acquire(scope(name, call), allocationId, capacity, limitMs, signal);
  const outcome = await call.waiting(`semaphore ${name}`, limitMs, acquired);
  if (outcome === "conflict") return CONFLICT;
  if (outcome === "timeout") return refusal(408, "Timed out waiting for semaphore");
  if (outcome === "cancelled") return refusal(503, "The session ends");
  return json(200, { name, allocation_id: allocationId, capacity, acquired: true });
}

function release({ name }: { name: string }, call: Call): Answer {
  const { allocationId } = call;
  if (!call.semaphores.release(scope(name, call), allocationId)) return CONFLICT;
  return json(200, { name, allocation_id: allocationId, released: true });
}

function status({ name }: { name: string }, call: Call): Answer {
  return json(200, call.semaphores.status(scope(name, call)));
}

function scope(name: string, { job, event }: Call): Scope {
  return { job, event, name };
}
