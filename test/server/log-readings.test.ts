import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { Readable } from "node:stream";
import { type TestContext, test } from "node:test";
import { hasMembers, identify } from "../../lib/core/process.ts";
import { type Argv, Launcher } from "../../lib/core/spawn.ts";
import type { StreamedBody } from "../../lib/http/message.ts";
import { LogReadings } from "../../lib/server/log-readings.ts";
import { ops } from "../../scripts/local-server.ts";
import { requestWith } from "../helpers/http.ts";
import { TestServer, TOKEN } from "../helpers/server.ts";

const [FIRST, SECOND] = ["0190a5e8-0000-7000-8000-000000000001", "0190a5e9-0000-7000-8000-000000000002"];

function line(second: number, run: string, rest: string): string {
  return `ts=2026-01-01T00:00:0${second}.000Z level=info run=${run} ops=deploy ${rest}\n`;
}

const TOKEN_ENV = { env: { OPS_SERVE_TOKEN: TOKEN } };

function serverFlags(server: TestServer, { id }: { id: string }): string[] {
  return ["--server", server.url, "--bucket", id];
}

/** A server with a bucket in which two runs have logged. */
async function withLogs(t: TestContext) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const write = (file: string, text: string) => {
    const place = path.join(bucket.folder, "logs", file);
    mkdirSync(path.dirname(place), { recursive: true });
    writeFileSync(place, text);
  };
  const lines = [
    line(1, FIRST, "worker=- msg=begin"),
    line(2, FIRST, 'worker=10.0.0.1 job=web stream=stderr msg="oh \\u001b[31mno"'),
    line(3, SECOND, "worker=- event=x"),
  ];
  write("ops.log", `${lines[0]}${lines[2]}`);
  write("10.0.0.1.log", lines[1] as string);
  write(`runs/${FIRST}/ops.log`, line(1, FIRST, "worker=- msg=mine"));
  return { server, bucket, lines, get: (query: string) => server.call("GET", `${bucket.path}/logs${query}`) };
}

test("CP-470 the structured lines of a bucket come as they were written, in the order of time", async (t) => {
  const { bucket, lines, get } = await withLogs(t);
  const { status, headers, text } = await get("");
  assert.deepEqual([status, headers.get("content-type"), text], [200, "text/plain; charset=utf-8", lines.join("")]);
  const local = await ops(["logs", "--format", "raw", "--bucket-dir", bucket.folder]);
  assert.equal(local.stdout, lines.join(""));
});

test("CP-470 `ops logs` of a server prints what it prints where the bucket is, in each form", async (t) => {
  const { server, bucket } = await withLogs(t);
  const both = async (...words: string[]) => {
    const local = await ops(["logs", ...words, "--bucket-dir", bucket.folder]);
    assert.deepEqual(await ops(["logs", ...words, ...serverFlags(server, bucket)], TOKEN_ENV), local);
    return local.stdout;
  };
  assert.notEqual(await both(), "");
  assert.notEqual(await both("--json", "--worker", "10.0.0.1,-"), "");
  assert.notEqual(await both("--format", "raw", "--tail", "2"), "");
  assert.notEqual(await both("--run", SECOND.slice(0, 8)), "");
  assert.equal(await both("--run", "ffff"), "");
  assert.equal(await both("--follow"), "");
});

test("CP-470 filters, the last lines and one run are chosen as `ops logs` does", async (t) => {
  const { lines, get } = await withLogs(t);
  const [first, second, third] = lines;
  assert.equal((await get("?worker=10.0.0.1,10.0.0.9&job=web")).text, second);
  assert.equal((await get("?event=x")).text, third);
  assert.equal((await get("?tail=2")).text, `${second}${third}`);
  assert.equal((await get(`?run=${FIRST}`)).text, line(1, FIRST, "worker=- msg=mine"));
  assert.equal((await get(`?run=${FIRST},${SECOND}`)).text, `${first}${second}${third}`);
  assert.equal((await get("?job=none")).text, "");
});

test("CP-470 a run that is not there, and a filter without a name, are refused", async (t) => {
  const { get } = await withLogs(t);
  assert.deepEqual([(await get("?run=ffff")).status, (await get("?run=ffff")).body.error], [404, "run_not_found"]);
  assert.deepEqual([(await get("?job=a,,b")).status, (await get("?tail=x")).status], [400, 400]);
});

test("CP-470 only so many logs are read at a time; who has left makes room, also before anything was sent", async (t) => {
  const { bucket } = await withLogs(t);
  const readings = new LogReadings(new Launcher(process.env), {}, 1);
  const task = { name: "run_logs", bucketDir: bucket.folder, bucketId: bucket.id, input: { filter: {} } } as const;
  const request = requestWith([], {});
  const first = await readings.answer(task, request);
  await assert.rejects(readings.answer(task, request), { code: "rate_limited", details: { retry_after_s: 10 } });
  await (first.body as StreamedBody).close();
  await assert.rejects(readings.answer(task, requestWith([], { signal: AbortSignal.abort() })), { code: "cancelled" });
  await ((await readings.answer(task, request)).body as StreamedBody).close();
  await readings.closed();
});

test("CP-470 the wait for the first line of a log takes none of the time for an answer", async (t) => {
  const { bucket } = await withLogs(t);
  const readings = new LogReadings(new Launcher(process.env));
  const order: string[] = [];
  const request = requestWith([], { longPoll: () => order.push("waits") });
  const task = { name: "run_logs", bucketDir: bucket.folder, bucketId: bucket.id, input: { filter: {} } } as const;
  const answer = readings.answer(task, request).finally(() => order.push("answers"));
  await ((await answer).body as StreamedBody).close();
  assert.deepEqual(order, ["waits", "answers"]);
});

test("CP-470 what a reading has started ends with it, but not what that has left behind", async (t) => {
  const [started, left] = [0, 1].map(() => {
    const child = spawn("sleep", ["600"], { detached: true, stdio: "ignore" });
    t.after(() => child.kill("SIGKILL"));
    return child.pid as number;
  }) as [number, number];
  const output = Readable.from(["line", "another"]);
  const channel = async (_: Argv, __: unknown, says: (message: object) => void) => {
    for (const pgid of [started, left]) says({ type: "group_open", group: { pgid, start_time: identify(pgid)?.start_time } });
    says({ type: "group_close", group: { pgid: left } });
    return { pid: 2 ** 30, send() {}, output, ended: Promise.resolve({ exitCode: 0, signal: null }) };
  };
  const readings = new LogReadings({ channel } as unknown as Launcher);
  const body = await readings.pieces({ name: "run_logs", bucketDir: "", bucketId: "", input: { filter: {} } }, t.signal);
  await body.close();
  assert.deepEqual([hasMembers(started), hasMembers(left), output.destroyed], [false, true, true]);
});
