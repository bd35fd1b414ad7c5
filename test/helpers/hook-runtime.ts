import { once } from "node:events";
import { request as httpRequest, type IncomingMessage } from "node:http";
import type { TestContext } from "node:test";
import { openDatabase } from "../../lib/bucket/base/database.ts";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { KvStore } from "../../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../../lib/bucket/kv/kv-access.ts";
import { initBucket } from "../../lib/bucket/workspace/init.ts";
import type { HookRuntimeOptions, RunningScript } from "../../lib/hook/routes.ts";
import { type HookRuntime, startHookRuntime } from "../../lib/hook/runtime.ts";
import { temporaryFolder } from "./temporary.ts";

/** What the API answered. */
export interface Answered {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: a test says by its assertions what it expects.
  body: any;
}

/** What a request carries beside its script's headers; `body` is JSON unless it is text. */
export interface Sent {
  body?: unknown;
  headers?: Record<string, string | undefined>;
  signal?: AbortSignal;
}

/** The API of one bucket, with the jobs `a`, `b` (demands `a`) and `ab`, each on the workers 10.0.0.1 to 10.0.0.3. */
export interface TestRuntime {
  runtime: HookRuntime;
  kv: KvStore;
  clock: { now: number };
  cancel: AbortController;
  warnings: string[];
  secrets: string[];
  /** A store of its own over the same database: sees what is committed. */
  committed(): KvStore;
  /** Starts a script, on `pre_deploy` for hook `setup` on the first worker unless told otherwise. */
  script(about?: Partial<RunningScript>): TestScript;
}

/** A script that runs, and its requests. */
export interface TestScript {
  id: string;
  end(): Promise<void>;
  ask(method: string, path: string, sent?: Sent): Promise<Answered>;
}

/** The id of an allocation in a test bucket. */
export function allocationId(job: string, worker: string): string {
  return `00000000-0000-5000-8000-${Buffer.from(`${job}${worker.slice(-1)}`)
    .toString("hex")
    .padStart(12, "0")}`;
}

/** A runtime for one test. */
export async function testRuntime(t: TestContext, changes: Partial<HookRuntimeOptions> = {}): Promise<TestRuntime> {
  const layout = layoutOf(temporaryFolder(t));
  await initBucket(layout.root, { source: false });
  const db = openDatabase(layout.database);
  t.after(() => db.close());
  const clock = { now: 1_000_000_000_000 };
  const key = await loadKvKey(layout);
  const committed = () => new KvStore(db, key, () => clock.now);
  const kv = committed();
  const cancel = new AbortController();
  const warnings: string[] = [];
  const secrets: string[] = [];
  const known = ["a", "b", "ab"].flatMap((job) =>
    [1, 2, 3].map((index) => ({ job, worker: `10.0.0.${index}`, id: allocationId(job, `${index}`) })),
  );
  const runtime = await startHookRuntime({
    kv,
    signal: cancel.signal,
    onSecret: (value) => secrets.push(value),
    allocation: (id) => known.find((one) => one.id === id),
    upstreams: (job) => new Set(job === "b" ? ["a"] : []),
    hasHook: (job, hook) => job === "a" && ["setup", "stop"].includes(hook),
    workers: (job) => known.filter((one) => one.job === job).map(({ worker }) => worker),
    command: async () => undefined,
    waiting: (_on, _limitMs, work) => work,
    dependents: (job, hook) =>
      job === "a" && hook === "setup" ? [{ job: "b", hook: "join", demand_config: { min_version: "1" } }] : [],
    warn: ({ job, worker, hook }, sentence) => warnings.push(`${job}@${worker} ${hook}: ${sentence}`),
    ...changes,
  });
  t.after(() => runtime.close());
  const script = (about: Partial<RunningScript> = {}): TestScript => {
    const { job = "a", worker = "10.0.0.1", event = "pre_deploy", hook = "setup" } = about;
    const id = allocationId(job, worker);
    const { end } = runtime.begin({ job, worker, event, hook, allocationId: id });
    const own = { "X-ALLOCATION-ID": id, EVENT: event, COMMAND: hook };
    return {
      id,
      end,
      ask: (method, path, sent = {}) => ask(runtime, method, path, { ...sent, headers: { ...own, ...sent.headers } }),
    };
  };
  return { runtime, kv, clock, cancel, warnings, secrets, committed, script };
}

/** Sends one request over a connection of its own; a header that is undefined is left out. */
export async function ask(
  { host, port }: { host: string; port: number },
  method: string,
  path: string,
  { body, headers = {}, signal }: Sent = {},
): Promise<Answered> {
  const given = body === undefined ? { ...headers } : { "Content-Type": "application/json", ...headers };
  const sent = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const request = httpRequest({ host, port, method, path, headers: sent, agent: false, signal });
  const text = typeof body === "string" ? body : JSON.stringify(body);
  // Node sends the body of a GET only where its length is told.
  if (text !== undefined) request.setHeader("Content-Length", Buffer.byteLength(text));
  request.end(text);
  const [response] = (await once(request, "response")) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return { status: response.statusCode ?? 0, body: JSON.parse(Buffer.concat(chunks).toString()) };
}
