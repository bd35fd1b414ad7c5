import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { flushCompileCache } from "node:module";
import path from "node:path";
import type { TestContext } from "node:test";
import { createBucket } from "../../lib/bucket/source/root.ts";
import { initBucket } from "../../lib/bucket/workspace/init.ts";
import { check } from "../../lib/core/shape.ts";
import { Launcher } from "../../lib/core/spawn.ts";
import type { HttpRequest } from "../../lib/http/message.ts";
import { findRoute } from "../../lib/http/router.ts";
import { startServer } from "../../lib/server/app.ts";
import type { ServerConfig } from "../../lib/server/config.ts";
import type { ServerRoute } from "../../lib/server/context.ts";
import { EARLIER_ROUTES } from "../../lib/server/earlier/table.ts";
import { component } from "../../lib/server/routes/shapes.ts";
import { ROUTES } from "../../lib/server/routes/table.ts";
import { send } from "./http.ts";
import { temporaryFolder, until } from "./temporary.ts";

export const TOKEN = "token-of-this-test";

// biome-ignore lint/suspicious/noExplicitAny: tests read fields of answers that were compared with their shapes.
type Body = any;

/** An answer as a test looks at it. */
export interface Reply {
  status: number;
  headers: Headers;
  text: string;
  /** The parsed text, where it is JSON. */
  body: Body;
}

/** Credentials and body of a call; without `authorization` the right token is sent, with `null` none. */
export interface CallOptions {
  authorization?: string | null;
  headers?: Record<string, string>;
  /** The loopback address to call from; default 127.0.0.1. */
  from?: string;
  /** Sent as JSON, bytes as they are. */
  body?: unknown;
}

/**
 * The control plane in this process, with real run processes, for one test. Each answer is compared with what the
 * route table promises. Run processes wait at their start while they are held back.
 */
export class TestServer {
  readonly root: string;
  readonly #config: Partial<ServerConfig>;
  readonly #hold: string;
  readonly lines: string[] = [];
  /** What the server says of its audit when it starts. */
  readonly auditLines: string[] = [];
  /** The facts of the access log. */
  readonly accesses: Record<string, unknown>[] = [];
  /** What the server's clock is ahead of the real one. */
  aheadMs = 0;
  url = "";
  #stop: () => Promise<void> = async () => {};
  reload: () => Promise<void> = async () => {};

  private constructor(t: Pick<TestContext, "after">, config: Partial<ServerConfig>) {
    // In this order: what is registered first is done first, and the folder goes last.
    t.after(() => {
      this.release();
      return this.#stop();
    });
    const folder = temporaryFolder(t);
    this.root = config.root ?? path.join(folder, "root");
    this.#hold = path.join(folder, "hold");
    this.#config = config;
  }

  static async start(t: Pick<TestContext, "after">, config: Partial<ServerConfig> = {}): Promise<TestServer> {
    const server = new TestServer(t, config);
    await server.open();
    return server;
  }

  /** Starts it, again after `stop`. */
  async open(): Promise<void> {
    const config = { root: this.root, host: "127.0.0.1", port: 0, token: TOKEN, ...this.#config };
    const log = (line: string, facts?: Record<string, unknown>) => {
      (line.startsWith("audit: ") ? this.auditLines : this.lines).push(line);
      if (facts) this.accesses.push(facts);
    };
    const now = () => Date.now() + this.aheadMs;
    const { url, stop, reload } = await startServer(config, new Launcher(this.#environment()), log, now);
    // Node writes its compile cache when a process ends. The processes of this server would find nothing of what this one has
    // compiled.
    flushCompileCache();
    this.url = url;
    this.reload = reload;
    let stopped: Promise<void> | undefined;
    this.#stop = () => {
      stopped ??= stop();
      return stopped;
    };
  }

  stop(): Promise<void> {
    return this.#stop();
  }

  /** The names in the root, without what is the server's own. */
  inRoot(): string[] {
    return readdirSync(this.root).filter((name) => ![".server", "audit", "audit.key"].includes(name));
  }

  /** From now on run processes wait before they do anything, until {@link release}. */
  hold(): void {
    writeFileSync(this.#hold, "");
  }

  release(): void {
    rmSync(this.#hold, { force: true });
  }

  async call(method: string, target: string, options: CallOptions = {}): Promise<Reply> {
    const { authorization = `Bearer ${TOKEN}`, body } = options;
    const certFile = this.#config.tls?.certFile;
    const plain = certFile === undefined && options.from === undefined;
    const ca = certFile === undefined ? undefined : readFileSync(certFile);
    const response = await (plain ? fetch : send)(this.url + target, {
      ...(!plain && { ca, from: options.from }),
      method,
      headers: {
        ...(authorization !== null && { authorization }),
        ...(body !== undefined && { "content-type": "application/json" }),
        ...options.headers,
      },
      body: body === undefined || body instanceof Uint8Array ? (body as Uint8Array<ArrayBuffer>) : JSON.stringify(body),
    });
    const text = await response.text();
    const isJson = response.headers.get("content-type")?.startsWith("application/json") === true;
    const reply = { status: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : null };
    assertPromised(this.#config.earlier ? EARLIER_ROUTES : ROUTES, method, target, reply);
    return reply;
  }

  /** Makes a token through the API; answers what the API answered, and the header that the token goes into. */
  async makeToken(wanted: Record<string, unknown>): Promise<{ authorization: string; id: string; token: string; answer: Body }> {
    const { status, body } = await this.call("POST", "/api/tokens", { body: wanted });
    assert.equal(status, 201, body.message);
    return { authorization: `Bearer ${body.token}`, id: body.id, token: body.token, answer: body };
  }

  /** Signs in as a browser does; answers its cookie, and what a page of the server sends with a change. */
  async signInWith(authorization: string): Promise<{ cookie: string; page: CallOptions; body: Body }> {
    const { status, headers, body } = await this.call("POST", "/api/auth/session", { authorization });
    assert.equal(status, 200, body.message);
    const cookie = headers.getSetCookie()[0]?.split(";")[0] as string;
    return { cookie, page: { authorization: null, headers: { cookie, origin: this.url, "x-ops-csrf": "1" } }, body };
  }

  /** Makes a bucket, as the route does but in this process, and answers its path in the API. */
  async createBucket(
    fields: { id?: string; project?: string; name?: string } = {},
  ): Promise<{ id: string; path: string; folder: string }> {
    const initialise = async (dir: string, bucketId: string) => void (await initBucket(dir, { bucketId, source: false }));
    const { earlier } = this.#config;
    const labels = earlier ? "env.json" : "bucket.json";
    const { id } = await createBucket(this.root, { project: "p", name: "n", ...fields }, initialise, labels);
    return { id, path: `/api/${earlier ? "envs" : "buckets"}/${id}`, folder: path.join(this.root, id) };
  }

  /** Waits until a run has ended; answers it. */
  async ended(bucketPath: string, runId: string): Promise<Body> {
    const run = `${bucketPath}/runs/${runId}`;
    let next = 0;
    await until("the end of the run", async () => {
      const { status, body } = await this.call("GET", `${run}/logs?after=${next}&timeout=5`);
      assert.equal(status, 200, body.message);
      next = body.next;
      return body.done;
    });
    return (await this.call("GET", run)).body;
  }

  #environment(): NodeJS.ProcessEnv {
    const wait = `import{existsSync}from"node:fs";while(existsSync(${JSON.stringify(this.#hold)}))await new Promise((go)=>setTimeout(go,5))`;
    return { ...process.env, NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(wait)}` };
  }
}

/** Every answer is what the route table says of it: a failure in the one form, or the route's own shape. */
function assertPromised(routes: readonly ServerRoute[], method: string, target: string, reply: Reply): void {
  for (const name of ["content-security-policy", "x-frame-options", "x-content-type-options", "referrer-policy"])
    assert.ok(reply.headers.has(name), `${method} ${target} lacks ${name}`);
  if (reply.status >= 400) assertShape(component("Error"), reply, `${method} ${target}`);
  const [targetPath = ""] = target.split("?");
  if (reply.status >= 400 || !targetPath.startsWith("/api/")) return;
  const { route } = findRoute(routes, { method, path: targetPath, query: "" } as HttpRequest);
  const also = route.answer.ranges ? [206, 304] : [];
  assert.ok([route.answer.status, ...also].includes(reply.status), `${method} ${target}: ${reply.status}`);
  if (route.answer.shape) assertShape(route.answer.shape, reply, `${method} ${target}`);
}

function assertShape(shape: Parameters<typeof check>[0], reply: Reply, what: string): void {
  const checked = check(shape, reply.body);
  assert.ok(checked.ok, `${what}: ${reply.text}\n${JSON.stringify(checked)}`);
}

/** True when the folder of a run exists. */
export function runFolderExists(bucketFolder: string, runId: string): boolean {
  return existsSync(path.join(bucketFolder, "logs", "runs", runId));
}
