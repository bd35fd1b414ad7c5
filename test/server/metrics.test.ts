import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { TestServer } from "../helpers/server.ts";
import { until } from "../helpers/temporary.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

const NAME = "[a-zA-Z_:][\\w:]*";
const SAMPLE = new RegExp(
  `^(${NAME})(?:\\{(${NAME}="(?:[^"\\\\]|\\\\[\\\\n"])*"(?:,${NAME}="(?:[^"\\\\]|\\\\[\\\\n"])*")*)\\})? (\\S+)$`,
);

/** The samples of a text in format 0.0.4, which is checked on the way: every metric has its help, its type, and no line twice. */
function parsed(text: string): Map<string, number> {
  assert.ok(text.endsWith("\n"));
  const samples = new Map<string, number>();
  let current = "";
  for (const line of text.trimEnd().split("\n")) {
    const [, head, name = ""] = /^# (HELP|TYPE) (\S+) \S/.exec(line) ?? [];
    if (head === "HELP") current = name;
    if (head !== undefined) {
      assert.equal(name, current);
      continue;
    }
    const [, metric = "", labels = "", value = ""] = SAMPLE.exec(line) ?? assert.fail(line);
    assert.equal(metric.replace(/_(sum|count)$/, ""), current.replace(/_(sum|count)$/, ""));
    assert.ok(Number.isFinite(Number(value)), line);
    const key = labels === "" ? metric : `${metric}{${labels}}`;
    assert.ok(!samples.has(key), `${key} is there twice`);
    samples.set(key, Number(value));
  }
  return samples;
}

test("the metrics tell of the server, of its runs and of each bucket, in the text format of Prometheus", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  await server.call("PUT", bucket.path, { body: { name: 'a "b"\\c' } });
  makeWorkspace(bucket.folder, {
    workers: ["10.0.0.1", "10.0.0.2"],
    jobs: { web: { version: "1.0.0", selectors: ["worker"], certs: { web: { subject: { common_name: "web.example" } } } } },
  });
  const built = await server.call("POST", `${bucket.path}/build`);
  await server.ended(bucket.path, built.body.run_id);
  const refused = await server.call("GET", "/metrics", { authorization: null });
  assert.equal(refused.status, 401);
  const { status, headers, text } = await server.call("GET", "/metrics");
  assert.deepEqual([status, headers.get("content-type")], [200, "text/plain; version=0.0.4; charset=utf-8"]);
  const checked = spawnSync("promtool", ["check", "metrics"], { input: text, encoding: "utf8" });
  assert.deepEqual([checked.status, checked.stdout + checked.stderr], [0, ""]);
  const samples = parsed(text);
  const { id } = (await server.call("GET", bucket.path)).body;
  const { project } = (await server.call("GET", bucket.path)).body;
  const own = (metric: string, labels = "") =>
    samples.get(`${metric}{bucket_id="${id}",project="${project}",bucket="a \\"b\\"\\\\c"${labels}}`);
  assert.equal(samples.get('ops_runs_total{kind="build",status="succeeded"}'), 1);
  assert.equal(samples.get('ops_run_duration_seconds_count{kind="build",status="succeeded"}'), 1);
  assert.deepEqual([samples.get("ops_runs_active"), samples.get("ops_runs_queued")], [0, 0]);
  assert.deepEqual(
    [own("ops_bucket_readable"), own("ops_starts_waiting"), own("ops_bucket_runs_active"), own("ops_drifted_allocations")],
    [1, 0, 0, undefined],
  );
  const allocations = ["new", "promoted"].map((state) => own("ops_allocations", `,state="${state}"`));
  assert.deepEqual(allocations, [2, 0]);
  const certs = [...samples].filter(([key]) => key.startsWith("ops_cert_not_after_seconds") && key.includes('job="web"'));
  assert.equal(certs.length, 2);
  assert.ok(certs.every(([key, end]) => key.includes('common_name="web.example"') && end > Date.now() / 1000));
  assert.ok((samples.get("process_resident_memory_bytes") ?? 0) > 1e7);
});

test("a bucket that cannot be read is told, and takes no metric of the others away", async (t) => {
  const server = await TestServer.start(t);
  const [broken, good] = [await server.createBucket(), await server.createBucket()];
  const { database } = layoutOf(broken.folder);
  for (const end of ["-wal", "-shm"]) rmSync(`${database}${end}`, { force: true });
  writeFileSync(database, "this is no database at all");
  const samples = [...parsed((await server.call("GET", "/metrics")).text)];
  const readable = samples.filter(([key]) => key.startsWith("ops_bucket_readable"));
  assert.deepEqual(readable.map(([key, value]) => [key.includes(broken.id), value]).sort(), [
    [false, 1],
    [true, 0],
  ]);
  assert.ok(samples.some(([key]) => key.startsWith("ops_allocations{") && key.includes(good.id)));
});

test("long-polls, requests, open connections and active runs are counted while they last", async (t) => {
  const server = await TestServer.start(t);
  const { next } = (await server.call("GET", "/api/events")).body;
  const polling = server.call("GET", `/api/events?after=${next}&timeout=30`);
  const load = async () => {
    const samples = parsed((await server.call("GET", "/metrics")).text);
    return ["ops_http_long_polls", "ops_http_requests_open"].map((name) => samples.get(name));
  };
  await until("the long-poll is counted, beside the scrape", async () => isDeepStrictEqual(await load(), [1, 2]));
  const connections = parsed((await server.call("GET", "/metrics")).text).get("ops_http_connections") ?? 0;
  assert.ok(connections >= 2, String(connections));
  const bucket = await server.createBucket();
  server.hold();
  await server.call("POST", `${bucket.path}/build`);
  const { text } = await server.call("GET", "/metrics");
  assert.equal(parsed(text).get("ops_runs_active"), 1);
  assert.match(text, /^ops_bucket_runs_active\{.*\} 1$/m);
  assert.equal((await polling).status, 200);
  await until("only the scrape is left", async () => isDeepStrictEqual(await load(), [0, 1]));
});
