import assert from "node:assert/strict";
import { mkdirSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { Launcher } from "../../../lib/core/spawn.ts";
import { lastLogs, makeStatus, readWorkerJson } from "../../../lib/transport/ask/inspect.ts";
import { localTransport } from "../../../lib/transport/base/local.ts";
import { patience } from "../../../scripts/patience.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const BUCKET = "0190a5e8-0000-7000-8000-000000000002";

function setUp(t: TestContext) {
  const root = temporaryFolder(t);
  const transport = localTransport({ host: "127.0.0.1", connection: "local", root }, BUCKET, new Launcher(process.env));
  const write = (file: string, text: string, age = 0) => {
    const target = path.join(transport.folder, file);
    mkdirSync(path.dirname(target), { recursive: true, mode: 0o755 });
    writeFileSync(target, text);
    const at = Date.now() / 1000 - age;
    utimesSync(target, at, at);
  };
  return { transport, write };
}

const LIMITS = { files: 2, bytes: 10, timeoutMs: patience(60_000) };

test("of the logs of a job the newest are read from their ends, empty and compressed ones left out", async (t) => {
  const { transport, write } = setUp(t);
  assert.deepEqual(await lastLogs(transport, "web", LIMITS), []);
  write("jobs/web/logs/old", "old\n", 30);
  write("jobs/web/logs/long", "0123456789abc\nde", 20);
  write("jobs/web/logs/new", "a\n\nb\n", 10);
  write("jobs/web/logs/empty", "");
  write("jobs/web/logs/new.1.gz", "gz");
  assert.deepEqual(await lastLogs(transport, "web", LIMITS), [
    { file: "new", text: "a\n\nb\n" },
    { file: "long", text: "6789abc\nde\n" },
  ]);
});

test("a job that hangs when it is asked is given up in time", async (t) => {
  const { transport, write } = setUp(t);
  write("jobs/web/Makefile", "status:\n\t@echo one; sleep 600\n");
  const outcome = await makeStatus(transport, "web", { timeoutMs: patience(300) });
  assert.deepEqual([outcome.reason, outcome.stdout.split("\n")[0]], ["timeout", "one"]);
  const cancel = new AbortController();
  const cut = await makeStatus(transport, "web", { signal: cancel.signal, onLine: () => cancel.abort() });
  assert.equal(cut.reason, "cancelled");
});

test("a job without folder or without such a target says so", async (t) => {
  const { transport, write } = setUp(t);
  const missing = await makeStatus(transport, "web", {});
  assert.deepEqual([missing.exitCode, missing.stdout], [66, "jobs/web is missing on this worker: deploy to it first\n"]);
  write("jobs/web/Makefile", "start:\n\t@true\n");
  const { exitCode, stdout } = await makeStatus(transport, "web", {});
  assert.equal(exitCode, 2);
  assert.match(stdout, /No rule to make target 'status'/);
});

test("worker.json is read as it is, at most 64 KiB of it", async (t) => {
  const { transport, write } = setUp(t);
  const { signal } = new AbortController();
  assert.equal(await readWorkerJson(transport, signal), "");
  write("worker.json", "x".repeat(100_000));
  assert.equal((await readWorkerJson(transport, signal)).length, 65_536);
});
