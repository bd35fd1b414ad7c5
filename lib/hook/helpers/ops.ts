/**
 * What hook scripts import: `import * as ops from "./ops.ts"`. It talks to the runtime API of the session that runs the
 * script. Nothing but Node is needed. To run something on a worker, start
 * `ssh -F "$OPS_SSH_CONFIG" -- <worker> <command>`, or a Python script that uses `run_ssh` of ops.py.
 *
 * ```ts
 * import * as ops from "./ops.ts";
 *
 * const namespace = `secrets/job/${ops.jobName()}`;
 * if ((await ops.getStoreValue(namespace, "password")).status === 404)
 *   (await ops.putJobSecret("password", makePassword())).raiseForStatus();
 * ```
 *
 * A function that asks the API resolves with its answer, whatever the status; only `getRolloutOrder`, which resolves
 * with a value, rejects with the API's message. An API that does not answer is an error.
 */
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { text } from "node:stream/consumers";

/** The API refused a request: its message, and its answer. */
export class ApiError extends Error {
  readonly response: ApiResponse<unknown>;

  constructor(response: ApiResponse<unknown>) {
    super(`${response.error} (${response.status} for ${response.request})`);
    this.response = response;
  }
}

/** An answer of the API; `json()` of one that is `ok` is a `Body`. */
export class ApiResponse<Body> {
  /** Method and path. */
  readonly request: string;
  readonly status: number;
  readonly text: string;

  constructor(request: string, status: number, text: string) {
    this.request = request;
    this.status = status;
    this.text = text;
  }

  /** False when the API refused the request. */
  get ok(): boolean {
    return this.status < 400;
  }

  /** The API's message when it refused, else its whole answer. */
  get error(): string {
    try {
      return String(JSON.parse(this.text).error ?? this.text);
    } catch {
      return this.text;
    }
  }

  json(): Body {
    return JSON.parse(this.text);
  }

  /** Throws {@link ApiError} when the API refused the request. */
  raiseForStatus(): void {
    if (!this.ok) throw new ApiError(this);
  }
}

/** A value of the store, a secret in clear. */
export interface StoreValue {
  namespace: string;
  key: string;
  value: string;
}

/** A key that was written or deleted. */
export type StoreKey = Omit<StoreValue, "value">;

/** A hook that demands this one. */
export interface HookDemand {
  job: string;
  hook: string;
  demand_config: Record<string, unknown>;
}

/** A semaphore; `holders` are allocation ids, `waiting` and `available` numbers of waiters and of free places. */
export interface SemaphoreStatus {
  name: string;
  capacity: number;
  holders: string[];
  waiting: number;
  available: number;
}

/** How long the API may take for an answer; it is much faster, unless the answer is a wait for a semaphore. */
const REQUEST_MS = 60_000;

/** The allocation's UUID; it never changes. Undefined, like all of these, outside of a session. */
export function allocationId(): string | undefined {
  return process.env.ALLOCATION_ID;
}

/** The worker, as workers.json calls it. The script itself runs on the control host. */
export function allocationIp(): string | undefined {
  return process.env.ALLOCATION_IP;
}

/** Its place among all allocations of the job that are not removed, from "0" on. */
export function allocationIndex(): string | undefined {
  return process.env.ALLOCATION_INDEX;
}

/** The job this script belongs to. */
export function jobName(): string | undefined {
  return process.env.JOB;
}

/** What the script runs for: `pre_deploy`, `cli`, … */
export function hookEvent(): string | undefined {
  return process.env.EVENT;
}

/** The name of this hook. */
export function hookName(): string | undefined {
  return process.env.HOOK;
}

/** True when disabled.json names the allocation. */
export function isAllocationDisabled(): boolean {
  return process.env.DISABLED === "1";
}

/**
 * True in the first batch for the allocation with index 0. Where a rollout order puts that allocation into a later
 * batch, it is true for none.
 */
export function isOneShot(): boolean {
  return process.env.BATCH_INDEX === "0" && process.env.ALLOCATION_INDEX === "0";
}

/** Reads a value: `.json().value`; 404 where the key does not exist. */
export function getStoreValue(namespace: string, key: string): Promise<ApiResponse<StoreValue>> {
  return send("GET", "/kv", { query: { namespace, key } });
}

/** Writes to vars/job/<this job>. After `ttl` seconds the key is gone; 0 means never. */
export function putJobVariable(key: string, value: string, ttl = 0): Promise<ApiResponse<StoreKey>> {
  return send("PUT", "/kv", { body: { namespace: own("vars"), key, value, ttl } });
}

/** Writes to secrets/job/<this job>, encrypted. After `ttl` seconds the key is gone; 0 means never. */
export function putJobSecret(key: string, value: string, ttl = 0): Promise<ApiResponse<StoreKey>> {
  return send("PUT", "/kv/secret", { body: { namespace: own("secrets"), key, value, ttl } });
}

/** Deletes from vars/job/<this job>. */
export function deleteJobVariable(key: string): Promise<ApiResponse<StoreKey>> {
  return send("DELETE", "/kv", { body: { namespace: own("vars"), key } });
}

/** Deletes from secrets/job/<this job>. */
export function deleteJobSecret(key: string): Promise<ApiResponse<StoreKey>> {
  return send("DELETE", "/kv/secret", { body: { namespace: own("secrets"), key } });
}

/** The keys of a namespace; without one, those of the vars and the secrets of this job. */
export function listJobKeys(namespace?: string): Promise<ApiResponse<{ namespaces: Record<string, string[]> }>> {
  return send("GET", "/kv/keys", { query: namespace === undefined ? {} : { namespace } });
}

/**
 * In which order the job's workers are rolled out until the next build: hosts in a list, or in a string with commas.
 * Only on pre_deploy and cli.
 */
export function putRolloutOrder(order: string | readonly string[]): Promise<ApiResponse<StoreKey>> {
  const value = typeof order === "string" ? order : order.map((host) => host.trim()).join(",");
  return send("PUT", "/kv", { body: { namespace: own("ops"), key: "rollout_order", value } });
}

/**
 * The rollout order in force, as hosts separated by commas: the order that a hook has put, or else that of the catalog.
 * Rejects with {@link ApiError} where the job has no workers.
 */
export async function getRolloutOrder(): Promise<string> {
  const response = await getStoreValue(own("ops"), "rollout_order");
  response.raiseForStatus();
  return response.json().value;
}

/** The hooks that demand this one. */
export function listHookDemands(): Promise<ApiResponse<HookDemand[]>> {
  return send("GET", "/demands");
}

/**
 * Waits for one of `capacity` (1 to 64) places of a semaphore, which the scripts of this job and event share, for at
 * most `timeoutSeconds` (0 to 3600; 0 means 600). Status 408 when the time is up. Release it in a `finally` block: a
 * place is held until then or to the end of the session.
 */
export function acquireSemaphore(
  name: string,
  capacity = 1,
  timeoutSeconds = 600,
): Promise<ApiResponse<{ name: string; allocation_id: string; capacity: number; acquired: boolean }>> {
  const body = { name, capacity, timeout_seconds: timeoutSeconds };
  return send("POST", "/semaphore/acquire", { body, timeoutMs: ((Math.max(timeoutSeconds, 0) || 600) + 30) * 1000 });
}

/** Status 409 where this allocation holds no place. */
export function releaseSemaphore(name: string): Promise<ApiResponse<{ name: string; allocation_id: string; released: boolean }>> {
  return send("POST", "/semaphore/release", { body: { name } });
}

/** Who holds a semaphore, and how many wait for it. */
export function semaphoreStatus(name: string): Promise<ApiResponse<SemaphoreStatus>> {
  return send("GET", "/semaphore/status", { query: { name } });
}

function own(kind: "ops" | "secrets" | "vars"): string {
  return `${kind}/job/${jobName()}`;
}

/** What a request carries; `timeoutMs` instead of {@link REQUEST_MS}. */
interface Parts {
  query?: Record<string, string>;
  body?: Record<string, unknown>;
  timeoutMs?: number;
}

/** Over node:http, because `fetch` gives up after five minutes without an answer. */
async function send<Body>(method: string, path: string, parts: Parts = {}): Promise<ApiResponse<Body>> {
  const search = new URLSearchParams(parts.query).toString();
  const target = search === "" ? path : `${path}?${search}`;
  const content = parts.body && Buffer.from(JSON.stringify(parts.body));
  const { HOOK_API_HOST, HOOK_API_PORT, ALLOCATION_ID, EVENT, COMMAND } = process.env;
  const headers = {
    "X-ALLOCATION-ID": ALLOCATION_ID ?? "",
    EVENT: EVENT ?? "",
    COMMAND: COMMAND ?? "",
    ...(content && { "Content-Type": "application/json", "Content-Length": content.length }),
  };
  const outgoing = request({
    method,
    path: target,
    headers,
    agent: false,
    host: HOOK_API_HOST ?? "127.0.0.1",
    port: HOOK_API_PORT ?? "8080",
    signal: AbortSignal.timeout(parts.timeoutMs ?? REQUEST_MS),
  });
  outgoing.end(content);
  const [incoming] = (await once(outgoing, "response")) as [IncomingMessage];
  return new ApiResponse(`${method} ${target}`, incoming.statusCode ?? 0, await text(incoming));
}
