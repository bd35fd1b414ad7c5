import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { Launcher } from "../../../lib/core/spawn.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { readJobLogs } from "../../../lib/operation/tend/job-logs.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];

test("no more workers are followed at a time than ssh_concurrency says; reading once has no such limit", async (t) => {
  const root = temporaryFolder(t);
  const bucket = await makeBucket(t, {
    workers: HOSTS.map((host) => ({ host, connection: "local", root: path.join(root, host) })),
    jobs: { web: { version: "1.0.0", selectors: ["worker"] } },
    files: { "ops.conf": "ssh_concurrency = 2\n" },
  });
  await build(bucket.context("build"), {});
  const read = async (wanted: { follow: boolean; workers?: string[] }) => {
    const stop = new AbortController();
    const lines: string[] = [];
    const context = { layout: bucket.layout, launcher: new Launcher(process.env), signal: stop.signal };
    await readJobLogs(context, { job: "web", tail: 1, ...wanted }, (line) => {
      lines.push(line);
      // What is followed goes on until it is ended.
      if (wanted.follow) stop.abort();
    }).catch((error) => assert.ok(wanted.follow && (error as { code: string }).code === "cancelled", error));
    return lines[0];
  };
  const message =
    "at most 2 workers can be followed at a time (ssh_concurrency of ops.conf), and the job is on 3: name some of them";
  const signal = new AbortController().signal;
  const context = { layout: bucket.layout, launcher: new Launcher(process.env), signal };
  await assert.rejects(readJobLogs(context, { job: "web", tail: 1, follow: true }, assert.fail), {
    code: "invalid_request",
    message,
  });
  assert.equal(await read({ follow: true, workers: HOSTS.slice(1) }), `asked: ${HOSTS.slice(1).join(" ")}`);
  assert.equal(await read({ follow: false }), `asked: ${HOSTS.join(" ")}`);
});
