import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import { hostname } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { acquireLock } from "../../../lib/bucket/base/lock.ts";
import { bootId, identify } from "../../../lib/core/process.ts";
import { LocalServer, PROGRAM } from "../../../scripts/local-server.ts";
import { ops } from "../../helpers/command-line.ts";
import { writeServices } from "../../helpers/service.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

test("T-79 a server that is told to stop while it still recovers stops as soon as it has", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const first = await LocalServer.start(root);
  const layout = layoutOf(path.join(root, await first.createBucket()));
  await first.stop();
  const deaf = spawn("sh", ["-c", "trap 'echo term' TERM; echo up; while :; do sleep 1; done"], {
    detached: true,
    stdio: ["ignore", "pipe", "ignore"],
  });
  t.after(() => deaf.kill("SIGKILL"));
  await once(deaf.stdout, "data");
  const pgid = deaf.pid as number;
  writeFileSync(
    layout.lock,
    JSON.stringify({
      run_id: "x",
      command: "deploy",
      since: "",
      boot_id: bootId(),
      host: hostname(),
      holders: [{ pid: process.pid, start_time: "1" }],
      groups: [{ pgid, start_time: identify(pgid)?.start_time }],
    }),
  );
  const server = spawn(process.execPath, [PROGRAM, "server", "--root", root, "--addr", "127.0.0.1:0"], {
    env: { ...process.env, OPS_SERVE_TOKEN: "token" },
    stdio: "ignore",
  });
  t.after(() => server.kill("SIGKILL"));
  // What the last server left is being ended: this one is recovering.
  await once(deaf.stdout, "data");
  server.kill("SIGTERM");
  assert.deepEqual(await once(server, "exit"), [0, null]);
  assert.ok(!existsSync(layout.lock));
});

test("CP-372 a second server on a root refuses to start and names host and process of the first", async (t) => {
  const root = path.join(temporaryFolder(t), "a", "root");
  const first = await LocalServer.start(root);
  t.after(() => first.stop("SIGKILL"));
  const second = await ops(["server", "--root", root, "--addr", "127.0.0.1:0"], { env: { OPS_SERVE_TOKEN: "token" } });
  assert.equal(second.code, 1);
  const holder = `held by server .* on ${hostname()}, process ${first.process.pid}, since `;
  assert.match(second.stderr, new RegExp(`Cannot take the root ${root}: ${holder}.*; give each server a root of its own`));
  assert.equal((await first.call("GET", "/api/buckets")).status, 200);
});

test("CP-372 a server that was stopped or killed leaves its root to the next one", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  for (const signal of ["SIGKILL", "SIGTERM", "SIGKILL"] as const) {
    const server = await LocalServer.start(root);
    t.after(() => server.stop("SIGKILL"));
    assert.deepEqual((await server.call("GET", "/api/buckets")).body, { items: [], next_cursor: null });
    await server.stop(signal);
  }
});

test("CP-124 a server takes no lock it starts while a command works in a bucket", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const first = await LocalServer.start(root);
  const bucket = await first.createBucket();
  await first.stop();
  const lock = await acquireLock(layoutOf(path.join(root, bucket)), "019a0000-0000-7000-8000-000000000000", "deploy");
  const server = await LocalServer.start(root);
  t.after(() => server.stop("SIGKILL"));
  assert.equal((await server.call("GET", `/api/buckets/${bucket}`)).status, 200);
  assert.equal((await server.call("POST", `/api/buckets/${bucket}/build`)).status, 409);
  await lock.release();
  assert.equal((await server.run(bucket, "build")).status, "succeeded");
});

test("a second signal does not wait for the runs; they end by themselves", async (t) => {
  const folder = temporaryFolder(t);
  const server = await LocalServer.start(path.join(folder, "root"));
  t.after(() => server.stop("SIGKILL"));
  const bucket = await server.createBucket();
  const source = path.join(folder, "source");
  const file = path.join(folder, "begun");
  const before = `\t@trap 'sleep 1; exit' TERM; echo $$$$ > ${file}; while :; do sleep 0.1; done\n`;
  writeServices(source, path.join(folder, "workers"), { version: "1.0.0", before });
  const env = { OPS_SERVE_TOKEN: server.token };
  assert.equal((await ops(["push", server.url, "--bucket", bucket, "--dir", source], { env })).code, 0);
  await server.startRun(bucket, "deploy");
  await until("the target to begin", () => existsSync(file) && readFileSync(file, "utf8").trim() !== "");
  const target = Number(readFileSync(file, "utf8"));
  const exited = once(server.process, "exit");
  server.process.kill("SIGTERM");
  setTimeout(() => server.process.kill("SIGTERM"), 400);
  assert.deepEqual(await exited, [130, null]);
  assert.match(server.log, /not waiting: /);
  await until("the target to end", () => identify(target) === undefined);
});

test("a push that is being sent when the server is told to stop is refused, and nothing of it is left", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const server = await LocalServer.start(root);
  t.after(() => server.stop("SIGKILL"));
  const bucket = await server.createBucket();
  const layout = layoutOf(path.join(root, bucket));
  const request = http.request(`${server.url}/api/buckets/${bucket}/push`, {
    method: "POST",
    headers: { authorization: `Bearer ${server.token}`, "content-type": "application/x-tar" },
  });
  request.flushHeaders();
  await until("the bucket to be taken", () => existsSync(layout.lock));
  const answered = once(request, "response");
  const exited = once(server.process, "exit");
  server.process.kill("SIGTERM");
  const [response] = await answered;
  assert.equal(response.statusCode, 503);
  request.on("error", () => {}).destroy();
  assert.deepEqual(await exited, [0, null]);
  assert.deepEqual([existsSync(layout.lock), readdirSync(layout.uploads), readdirSync(layout.runs)], [false, [], []]);
});
