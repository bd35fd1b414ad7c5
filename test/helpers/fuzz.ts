import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import { isUuid } from "../../lib/codec/uuid.ts";
import { LocalServer } from "../../scripts/local-server.ts";
import { patience } from "../../scripts/patience.ts";
import { seeded } from "./random.ts";
import { archiveBytes } from "./sources.ts";

interface Operation {
  method: string;
  path: string;
  statuses: Set<string>;
  parameters: { name: string; in: string; example?: unknown }[];
  body?: { type: string; example: unknown };
}

/** What the fuzzer found the server to be like. */
export interface FuzzOutcome {
  answers: Record<string, number>;
  /** Resident memory after a tenth of the requests and at the end. */
  memoryMb: [number, number];
}

const LANES = 4;
const LONGEST_TARGET = 16 * 1024;
/** Long-polls are left after that. */
const PATIENCE_MS = 1_000;
const SOURCE = { "ops.conf": "", "workspace/workers.json": "[]", "workspace/jobs/web/x": "x", "templates/t/x": "x" };
/** All that may lie in a bucket. */
const PLACES = ["bucket.json", "ops.conf", "workspace", "templates", "data", "logs", "secrets", ".ssh", "tmp", ".ops"];

const STRANGE: readonly unknown[] = [
  ...["", " ", ".", "..", "../../etc/passwd", "%00", "\u0000", "%2e%2e", "a/b", "a\\b", "é", "\ufffd", "'; DROP TABLE bucket"],
  ...["x".repeat(300), "x".repeat(70_000), "__proto__", "constructor", "null", "-1", "1e9", "9".repeat(40), "NaN", "true"],
  ...[0, -1, 1.5, 1e308, 2 ** 53, true, false, null, [], [[[[]]]], {}, { __proto__: 1 }, ["a", 1, null], [""]],
  JSON.parse('{"__proto__": {"polluted": true}, "constructor": {"prototype": {}}}'),
];
const HEADERS: readonly [string, string][] = [
  ["Content-Type", "text/plain"],
  ["Content-Type", "application/json; charset=utf-16"],
  ["Content-Encoding", "gzip"],
  ["Range", "bytes=0-0"],
  ["Range", "bytes=999999999999-"],
  ["Range", "bytes=-0"],
  ["If-None-Match", "*"],
  ["If-Range", '"x"'],
  ["Cookie", "ops_server_session=a.b; ops_totp_session=%00"],
  ["Origin", "null"],
  ["X-Ops-CSRF", "1"],
  ["X-Ops-TOTP", "000000"],
  ["Expect", "100-continue"],
  ["Expect", "200-maybe"],
  ["X-Forwarded-For", "127.0.0.1"],
  ["Accept", "x".repeat(5_000)],
  ["Host", "other.example"],
];

/**
 * Sends requests that are derived from the server's own OpenAPI document and then changed, some of them as bytes, to a
 * server of its own, the same ones for the same seed. Whatever comes, the answer is one of those that the document
 * promises, never a 500; the server lives, and nothing lies where it should not.
 */
export async function fuzz(folder: string, requests: number, seed: number): Promise<FuzzOutcome> {
  const root = path.join(folder, "root");
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, "sentinel"), "untouched");
  // With little room, so that its memory tells what it keeps and not what it has not yet thrown away.
  const env = { NODE_OPTIONS: "--max-old-space-size=64 --max-semi-space-size=2" };
  const server = await LocalServer.start(root, { env });
  try {
    const fuzzer = await Fuzzer.open(server, seeded(seed));
    const memory: number[] = [];
    let sent = 0;
    const lane = async () => {
      while (sent++ < requests) {
        if (sent === Math.ceil(requests / 10)) memory.push(memoryOf(server));
        await fuzzer.step();
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    memory.push(memoryOf(server));
    assertPlaces(folder, root);
    assert.equal(server.process.exitCode, null, server.log.slice(-2_000));
    return { answers: fuzzer.answers, memoryMb: memory as [number, number] };
  } finally {
    await server.stop();
  }
}

/** The statuses that any request may get; 400 only where its path and query are too long to be looked at. */
function anywhere(request: Buffer): string[] {
  return ["401", "404", "405", ...(request.indexOf("\r\n") > LONGEST_TARGET ? ["400"] : [])];
}

class Fuzzer {
  readonly answers: Record<string, number> = {};
  readonly #server: LocalServer;
  readonly #random: () => number;
  readonly #operations: Operation[];
  #known: Record<string, string> = {};
  #count = 0;

  private constructor(server: LocalServer, random: () => number, operations: Operation[]) {
    this.#server = server;
    this.#random = random;
    this.#operations = operations;
  }

  static async open(server: LocalServer, random: () => number): Promise<Fuzzer> {
    const { body } = await server.call<{ paths: Record<string, Record<string, Described>> }>("GET", "/openapi.json");
    const operations = Object.entries(body.paths).flatMap(([where, methods]) =>
      Object.entries(methods).map(([method, described]) => operationOf(method, where, described)),
    );
    const fuzzer = new Fuzzer(server, random, operations);
    await fuzzer.#prepare();
    return fuzzer;
  }

  /** Makes a bucket with something in it, at the beginning and whenever the last one was deleted. */
  async #prepare(): Promise<void> {
    const bucket = await this.#server.createBucket("fuzz");
    const response = await fetch(`${this.#server.url}/api/buckets/${bucket}/push`, {
      method: "POST",
      headers: { authorization: `Bearer ${this.#server.token}`, "content-type": "application/x-tar" },
      body: new Uint8Array(await archiveBytes(SOURCE)),
    });
    const { run_id } = (await response.json()) as { run_id: string };
    const revisions = `/api/buckets/${bucket}/source/revisions`;
    const { body } = await this.#server.call<{ items: { id: string }[] }>("GET", revisions);
    this.#known = { bucket_id: bucket, run_id, revision_id: body.items[0]?.id ?? "" };
  }

  async step(): Promise<void> {
    const operation = this.#pick(this.#operations);
    const method = this.#chance(0.97) ? operation.method : this.#pick(["HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"]);
    const text = this.#request(operation, method);
    const isRaw = this.#chance(0.1);
    const bytes = isRaw ? this.#damaged(text) : text;
    const answer = await exchange(this.#server.url, bytes, this.#count++);
    const status = /^HTTP\/1\.1 (\d{3}) /.exec(answer)?.[1] ?? "none";
    this.answers[status] = (this.answers[status] ?? 0) + 1;
    const story = `${bytes.toString("latin1").slice(0, 600)}\n=> ${answer.slice(0, 1_200)}\n${this.#server.log.slice(-800)}`;
    assert.equal(this.#server.process.exitCode, null, story);
    assert.notEqual(status, "500", story);
    if (status !== "none") assert.match(answer, /\r\nContent-Security-Policy: default-src 'none'/i, story);
    if (!isRaw && status !== "none")
      assert.ok(this.#statuses(operation.path, method).has(status) || anywhere(text).includes(status), `undescribed: ${story}`);
    if (Number(status) >= 400) assert.match(answer, /\{"error":"[a-z_]+","message":"[\s\S]+\}$|^HTTP[\s\S]*\r\n\r\n$/, story);
    const isGone = status === "204" && method === "DELETE" && operation.path.endsWith("{bucket_id}");
    if (isGone || this.#chance(0.002)) await this.#prepare();
  }

  #statuses(path: string, method: string): ReadonlySet<string> {
    const wanted = method === "HEAD" ? "GET" : method;
    return this.#operations.find((one) => one.path === path && one.method === wanted)?.statuses ?? new Set();
  }

  #request(operation: Operation, method: string): Buffer {
    const target = operation.path.replace(/\{(\w+)\}/g, (_, name) => this.#parameter(operation, name));
    const query = operation.parameters.filter((one) => one.in === "query" && this.#chance(0.5));
    const pairs = query.map(({ name, example }) => `${name}=${encodeURIComponent(this.#text(example))}`);
    if (this.#chance(0.05)) pairs.push(`unknown=${this.#chance(0.5) ? 1 : "%ff"}`);
    const body = this.#body(operation);
    const headers = new Map<string, string>([
      ["Host", "127.0.0.1"],
      ["Authorization", `Bearer ${this.#chance(0.98) ? this.#server.token : ""}`],
      ["Connection", "close"],
    ]);
    if (body.length > 0) headers.set("Content-Type", operation.body?.type ?? "application/json");
    if (body.length > 0) headers.set("Content-Length", String(body.length));
    if (this.#chance(0.2)) headers.set(...this.#pick(HEADERS));
    const lines = [...headers].map(([name, value]) => `${name}: ${value}\r\n`).join("");
    const suffix = pairs.length > 0 ? `?${pairs.join("&")}` : "";
    return Buffer.concat([Buffer.from(`${method} ${target}${suffix} HTTP/1.1\r\n${lines}\r\n`), body]);
  }

  #parameter({ parameters }: Operation, name: string): string {
    const example = this.#known[name] ?? parameters.find((one) => one.name === name)?.example;
    const value = this.#chance(0.85) ? String(example) : this.#text(example);
    return this.#chance(0.9) ? encodeURIComponent(value).slice(0, 8_000) : encodeURI(value.toWellFormed()).slice(0, 8_000);
  }

  #text(example: unknown): string {
    const value = this.#chance(0.5) ? example : this.#pick(STRANGE);
    const text = typeof value === "object" ? JSON.stringify(value) : String(value);
    return text.slice(0, 20_000).toWellFormed();
  }

  #body({ body, method }: Operation): Buffer {
    if (!body) return method === "GET" || this.#chance(0.9) ? Buffer.alloc(0) : Buffer.from("{}");
    const isArchive = body.type !== "application/json";
    if (isArchive) return Buffer.from(this.#chance(0.5) ? "x".repeat(1_024) : "");
    return Buffer.from(JSON.stringify(this.#chance(0.4) ? body.example : this.#changed(body.example)) ?? "");
  }

  /** The value with something in it taken away, put in or of another kind. */
  #changed(value: unknown): unknown {
    if (this.#chance(0.3) || typeof value !== "object" || value === null) return this.#pick(STRANGE);
    if (Array.isArray(value)) return [...value.map((one) => (this.#chance(0.5) ? one : this.#changed(one))), this.#pick(STRANGE)];
    const entries = Object.entries(value).filter(() => this.#chance(0.8));
    const next = entries.map(([name, one]) => [name, this.#chance(0.6) ? one : this.#changed(one)]);
    if (this.#chance(0.2)) next.push([String(this.#pick(STRANGE)), 1]);
    return Object.fromEntries(next);
  }

  /** The bytes of a request with some of them changed, left out, doubled or cut off. */
  #damaged(text: Buffer): Buffer {
    const bytes = Buffer.from(text);
    for (let times = 0; times < 3; times++)
      if (bytes.length > 0) bytes[Math.floor(this.#random() * bytes.length)] = Math.floor(this.#random() * 256);
    const at = Math.floor(this.#random() * bytes.length);
    if (this.#chance(0.3)) return bytes.subarray(0, at);
    return this.#chance(0.3) ? Buffer.concat([bytes, bytes.subarray(at)]) : bytes;
  }

  #chance(share: number): boolean {
    return this.#random() < share;
  }

  #pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.#random() * list.length)] as T;
  }
}

interface Described {
  parameters?: Operation["parameters"];
  requestBody?: { content: Record<string, { example?: unknown }> };
  responses: Record<string, unknown>;
}

function operationOf(method: string, where: string, { parameters = [], requestBody, responses }: Described): Operation {
  const [media] = Object.entries(requestBody?.content ?? {});
  return {
    method: method.toUpperCase(),
    path: where,
    parameters,
    statuses: new Set(Object.keys(responses)),
    ...(media && { body: { type: media[0], example: media[1].example } }),
  };
}

/** Sends bytes and answers all that comes until the server closes, or until it has waited long enough. */
function exchange(url: string, bytes: Buffer, count: number): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const received: Buffer[] = [];
    // Each from an address of its own, or tokens that were changed would end in 429 for all.
    const localAddress = `127.1.${(count >> 8) & 255}.${count & 255 || 1}`;
    const socket = connect({ port: Number(port), host: hostname, localAddress });
    const limit = setTimeout(() => socket.destroy(), patience(PATIENCE_MS));
    socket.on("data", (chunk: Buffer) => received.push(chunk));
    socket.on("error", () => {});
    socket.once("close", () => {
      clearTimeout(limit);
      resolve(
        Buffer.concat(received)
          .toString()
          .replace(/^HTTP\/1\.1 100 Continue\r\n\r\n/, ""),
      );
    });
    socket.write(bytes);
  });
}

function assertPlaces(folder: string, root: string): void {
  assert.deepEqual(readdirSync(folder).sort(), ["root", "sentinel"]);
  assert.equal(readFileSync(path.join(folder, "sentinel"), "utf8"), "untouched");
  for (const bucket of readdirSync(root)) {
    if (
      [".server", "access.json", "audit", "audit.key"].includes(bucket) ||
      bucket.startsWith(".creating-") ||
      bucket.startsWith(".deleting-")
    )
      continue;
    assert.ok(isUuid(bucket), bucket);
    for (const name of readdirSync(path.join(root, bucket))) assert.ok(PLACES.includes(name), `${bucket}/${name}`);
  }
}

function memoryOf(server: LocalServer): number {
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${server.process.pid}/status`, "utf8")) ?? [];
  return Math.round(Number(kilobytes) / 1024);
}
