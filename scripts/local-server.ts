// A server of our own for the demo, the benchmarks and the tests: the real program, on a free loopback port.

import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { openClient, parseBaseUrl } from "../lib/cli/remote/client.ts";
import { push } from "../lib/cli/remote/push.ts";
import { RemoteBucket } from "../lib/cli/remote/remote-bucket.ts";
import { patience } from "./patience.ts";

/** The program of this source tree. */
export const PROGRAM = fileURLToPath(new URL("../bin/ops.js", import.meta.url));

/** The command line that everything is appended to: `OPS_PROGRAM`, an installed program, else that of this source tree. */
export const COMMAND: readonly [string, ...string[]] = process.env.OPS_PROGRAM
  ? [process.env.OPS_PROGRAM]
  : [process.execPath, PROGRAM];

const START_LIMIT_MS = 20_000;

/** An answer of the API. */
export interface Answer<T> {
  status: number;
  body: T;
}

/** What the scripts and tests read of a run. */
export interface Run {
  id: string;
  kind: string;
  params: Record<string, unknown>;
  revision: string | null;
  status: "running" | "succeeded" | "failed" | "cancelled";
  error: string | null;
  exit_code: number | null;
  result: unknown;
  audit: { action: string }[];
}

/** How a program ended, and what it printed. */
export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** A running server and the calls to its API. */
export class LocalServer {
  readonly process: ChildProcess;
  readonly url: string;
  readonly token: string;
  /** What the server wrote to stderr, for failures of tests. */
  log = "";

  private constructor(child: ChildProcess, url: string, token: string) {
    this.process = child;
    this.url = url;
    this.token = token;
  }

  /**
   * Starts a server on a root, on a free port unless `addr` says otherwise, and resolves once it listens. `node` is the
   * command line that the program of this source tree is appended to. With `quiet` the server's log is dropped.
   */
  static async start(
    root: string,
    options: {
      token?: string;
      addr?: string;
      node?: readonly [string, ...string[]];
      env?: NodeJS.ProcessEnv;
      flags?: string[];
      quiet?: boolean;
      /** `serve` for the earlier variant. */
      command?: "server" | "serve";
    } = {},
  ): Promise<LocalServer> {
    const token = options.token ?? randomBytes(24).toString("base64url");
    const flags = ["--root", root, "--addr", options.addr ?? "127.0.0.1:0", ...(options.flags ?? [])];
    const [file, ...before] = options.node ? [...options.node, PROGRAM] : COMMAND;
    const child = spawn(file, [...before, options.command ?? "server", ...flags], {
      env: { ...process.env, OPS_SERVE_TOKEN: token, ...options.env },
      stdio: ["ignore", "pipe", options.quiet ? "ignore" : "pipe"],
    });
    let log = "";
    child.stderr?.on("data", (chunk: Buffer) => {
      log += chunk;
      if (server) server.log = log;
    });
    let server: LocalServer | undefined;
    const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
    const listening = once(lines, "line", { signal: AbortSignal.timeout(patience(START_LIMIT_MS)) }) as Promise<[string]>;
    const ended = once(child, "exit").then(() => Promise.reject(new Error(`the server ended: ${log}`)));
    const [line] = await Promise.race([listening, ended]);
    ended.catch(() => {});
    server = new LocalServer(child, line.replace("listening on ", ""), token);
    server.log = log;
    return server;
  }

  /** One call; the body of the answer is parsed JSON, or null. */
  async call<T = Record<string, unknown>>(method: string, path: string, body?: unknown): Promise<Answer<T>> {
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${this.token}`, ...(body !== undefined && { "content-type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    return { status: response.status, body: (text === "" ? null : JSON.parse(text)) as T };
  }

  /** Makes a bucket and answers its id. */
  async createBucket(name = "demo"): Promise<string> {
    const { status, body } = await this.call<{ id: string }>("POST", "/api/buckets", { project: "demo", name });
    if (status !== 201) throw new Error(`cannot make a bucket: ${status} ${JSON.stringify(body)}`);
    return body.id;
  }

  /**
   * Pushes the source in a folder from this process; answers the exit code and the output that `ops push` would have.
   * Fails as the client does where a push has no outcome; a server that is gone is not waited for.
   */
  async push(bucket: string, dir: string): Promise<Ended> {
    const ended: Ended = { code: null, stdout: "", stderr: "" };
    const client = await openClient(parseBaseUrl(this.url), { token: this.token });
    const tell = (text: string) => {
      ended.stderr += `${text}\n`;
    };
    const output = (text: string) => {
      ended.stdout += text;
    };
    const follower = { signal: new AbortController().signal, patienceMs: 0, tell, output };
    ended.code = await push(new RemoteBucket(client, bucket), { dir }, follower);
    return ended;
  }

  /** Starts a run and answers its id. */
  async startRun(bucket: string, kind: string, params: unknown = {}): Promise<string> {
    const { status, body } = await this.call<{ run_id: string }>("POST", `/api/buckets/${bucket}/${kind}`, params);
    if (status !== 202) throw new Error(`cannot start ${kind}: ${status} ${JSON.stringify(body)}`);
    return body.run_id;
  }

  /** Follows a run to its end, handing out its Activity as it comes. */
  async follow(bucket: string, run: string, onText: (text: string) => void = () => {}): Promise<Run> {
    const base = `/api/buckets/${bucket}/runs/${run}`;
    for (let after = 0, done = false; !done; ) {
      const { status, body } = await this.call<{ data: string; next: number; done: boolean }>(
        "GET",
        `${base}/logs?after=${after}&timeout=30`,
      );
      if (status !== 200) throw new Error(`cannot follow run ${run}: ${status} ${JSON.stringify(body)}`);
      if (body.data !== "") onText(body.data);
      ({ next: after, done } = body);
    }
    return (await this.call<Run>("GET", base)).body;
  }

  /** Starts a run and waits for its end. */
  async run(bucket: string, kind: string, params: unknown = {}, onText?: (text: string) => void): Promise<Run> {
    return await this.follow(bucket, await this.startRun(bucket, kind, params), onText);
  }

  /** Stops the server as an administrator would and waits until it is gone. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const exited = once(this.process, "exit");
    this.process.kill(signal);
    await exited;
  }
}

/** Runs the program with a command line and answers how it ended. Without `input` its stdin is empty. */
export async function ops(
  args: string[],
  options: { cwd?: string; env?: Record<string, string>; input?: string | Uint8Array; onText?: (text: string) => void } = {},
): Promise<Ended> {
  const [file, ...before] = COMMAND;
  const child = spawn(file, [...before, ...args], {
    cwd: options.cwd,
    env: { ...process.env, ...options.env },
    stdio: ["pipe", "pipe", "pipe"],
  });
  // A program that reads no stdin may have ended before this.
  child.stdin.on("error", () => {}).end(options.input);
  const result: Ended = { code: null, stdout: "", stderr: "" };
  child.stdout.on("data", (chunk: Buffer) => {
    result.stdout += chunk;
    options.onText?.(chunk.toString());
  });
  child.stderr.on("data", (chunk: Buffer) => {
    result.stderr += chunk;
    options.onText?.(chunk.toString());
  });
  [result.code] = (await once(child, "close")) as [number | null];
  return result;
}
