import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { LocalServer, ops, type Run } from "../../scripts/local-server.ts";
import { runningConfiguration, writeServices } from "../helpers/service.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const NO_TOKEN = { OPS_SERVE_TOKEN: "" };

test("CP-039 CP-081 CP-082 CP-083 a command line that cannot be carried out is one sentence, an exit code, and nothing else", async (t) => {
  const folder = temporaryFolder(t);
  const root = path.join(folder, "root");
  const cases: [args: string[], env: Record<string, string>, code: number, sentence: RegExp][] = [
    [["servr"], {}, 2, /^ops: "servr" is not a command; did you mean server\?/],
    [["server", "--rot", "x"], {}, 2, /^ops: ops server has no flag "--rot"; did you mean --root\?/],
    [["server", "--root", root], NO_TOKEN, 2, /^ops: .*token/],
    [["server"], { OPS_SERVE_TOKEN: "t", OPS_SERVE_ROOT: "" }, 2, /^ops: .*root/],
    [
      ["server", "--root", root, "--addr", "0.0.0.0:0"],
      { OPS_SERVE_TOKEN: "t" },
      2,
      /^ops: --addr 0\.0\.0\.0:0 can be reached from other hosts: give --tls-cert and --tls-key/,
    ],
    [["worker", "run"], {}, 2, /^ops: ops worker run is started by the server/],
    [["build", "--bucket-dir", folder], {}, 1, /^ops: .* is not an initialised bucket: run `ops init` there first/],
    [
      ["push", "--bucket", "a", "--dir", folder],
      { OPS_SERVE_TOKEN: "t", OPS_SERVER: "" },
      2,
      /^ops: --bucket is given without a server/,
    ],
  ];
  for (const [args, env, code, sentence] of cases) {
    const result = await ops(args, { env });
    assert.equal(result.code, code, `${args}: ${result.stderr}`);
    assert.match(result.stderr, sentence);
    assert.equal(result.stderr.trim().split("\n").length, 1, result.stderr);
  }
  assert.ok(!existsSync(root), "a refused start makes nothing");
  for (const name of ["ops.conf", "data/ops.db", "bucket.json"]) {
    const isBucket = path.join(folder, name.replace("/", "-"));
    mkdirSync(path.dirname(path.join(isBucket, name)), { recursive: true });
    writeFileSync(path.join(isBucket, name), "");
    const result = await ops(["server", "--root", isBucket], { env: { OPS_SERVE_TOKEN: "t" } });
    assert.notEqual(result.code, 0);
    assert.ok(result.stderr.includes(name), result.stderr);
  }
});

async function withBucket(t: TestContext) {
  const folder = temporaryFolder(t);
  const root = path.join(folder, "root");
  const server = await LocalServer.start(root);
  t.after(() => server.stop("SIGKILL"));
  const bucket = await server.createBucket();
  const source = path.join(folder, "source");
  const workers = path.join(folder, "workers");
  writeServices(source, workers, { version: "1.0.0" });
  const push = () => server.push(bucket, source);
  assert.equal((await push()).code, 0);
  assert.equal((await server.run(bucket, "deploy")).status, "succeeded");
  const runs = async () => (await server.call<{ items: Run[] }>("GET", `/api/buckets/${bucket}/runs`)).body.items;
  const stillWorks = async () => {
    const run = await server.run(bucket, "deploy");
    assert.equal(run.status, "succeeded", run.error ?? "");
    assert.deepEqual(
      (run.result as { jobs: { outcome: string }[] }).jobs.map((job) => job.outcome),
      ["skipped", "skipped"],
    );
    assert.equal(runningConfiguration(workers, "127.0.0.1", bucket, "base"), "base 1.0.0 on 127.0.0.1\n");
  };
  return { server, bucket, source, push, runs, stillWorks, live: path.join(root, bucket) };
}

async function upload(server: LocalServer, bucket: string, body: Uint8Array) {
  const headers = { authorization: `Bearer ${server.token}`, "content-type": "application/x-tar" };
  const response = await fetch(`${server.url}/api/buckets/${bucket}/push`, {
    method: "POST",
    headers,
    body: body as unknown as string,
  });
  return { status: response.status, body: (await response.json()) as { error: string; message: string } };
}

test("CP-091 CP-115 CP-219 CP-220 a truncated or hostile archive is refused with its entry and changes nothing", async (t) => {
  const { server, bucket, source, runs, stillWorks, live } = await withBucket(t);
  const { Launcher } = await import("../../lib/core/spawn.ts");
  const launcher = new Launcher(process.env);
  const pack = async (...args: string[]) => {
    const file = path.join(source, "..", "upload.tar");
    const outcome = await launcher.run(["tar", "--sort=name", "-C", source, "-cf", file, ...args]);
    assert.equal(outcome.exitCode, 0, outcome.stderr);
    return readFileSync(file);
  };
  mkdirSync(path.join(source, "secrets"));
  writeFileSync(path.join(source, "secrets", "kv.key"), "mine");
  symlinkSync("/etc/passwd", path.join(source, "workspace", "link"));
  const before = readFileSync(path.join(live, "secrets", "kv.key"));
  const whole = await pack("workspace/jobs");
  const cases: [name: string, body: Buffer, message: RegExp][] = [
    ["truncated", whole.subarray(0, 2000), /workspace\/jobs/],
    ["a symbolic link", await pack("workspace"), /workspace\/link/],
    ["another root", await pack("workspace/jobs", "secrets"), /secrets/],
    [
      "a way out",
      await pack(
        "--absolute-names",
        "--transform",
        "s,workspace/workers.json,workspace/../../x,",
        "workspace/jobs",
        "workspace/workers.json",
      ),
      /\.\./,
    ],
    ["no archive at all", Buffer.from("hello".repeat(500)), /./],
  ];
  const count = (await runs()).length;
  for (const [name, body, message] of cases) {
    const answer = await upload(server, bucket, body);
    assert.equal(answer.status, 400, name);
    assert.equal(answer.body.error, "invalid_source", name);
    assert.match(answer.body.message, message, name);
  }
  assert.equal((await runs()).length, count);
  assert.deepEqual(readdirSync(path.join(live, ".ops", "uploads")), []);
  assert.deepEqual(readFileSync(path.join(live, "secrets", "kv.key")), before);
  await stillWorks();
});

test("CP-152 CP-221 CP-222 a broken manifest fails the build with file and place; what ran and what was built stay", async (t) => {
  const { server, bucket, source, push, stillWorks } = await withBucket(t);
  const manifest = path.join(source, "workspace", "jobs", "base", "manifest.json");
  writeFileSync(manifest, JSON.stringify({ version: "2.0.0", selectors: ["all"], restart_policy: "sometimes" }));
  const pushed = await push();
  assert.equal(pushed.code, 1);
  assert.match(
    pushed.stdout + pushed.stderr,
    /workspace\/jobs\/base\/manifest\.json.*restart_policy.*expected one of always, reload, never, found "sometimes"/,
  );
  const revisions = (
    await server.call<{ items: { current: boolean; last_successful: boolean; build_status: string }[] }>(
      "GET",
      `/api/buckets/${bucket}/source/revisions`,
    )
  ).body.items;
  assert.deepEqual(
    revisions.map((one) => [one.current, one.last_successful, one.build_status]),
    [
      [true, false, "failed"],
      [false, true, "succeeded"],
    ],
  );
  await stillWorks();
  writeFileSync(manifest, '{"version": ');
  assert.match((await push()).stdout, /manifest\.json/);
  await stillWorks();
});

test("CP-015 CP-322 CP-323 CP-325 without the token nothing is told, with it the mistake is", async (t) => {
  const folder = temporaryFolder(t);
  const server = await LocalServer.start(path.join(folder, "root"));
  t.after(() => server.stop("SIGKILL"));
  const call = async (headers: Record<string, string>, where: string) => {
    const response = await fetch(`${server.url}${where}`, { headers });
    return { status: response.status, error: ((await response.json()) as { error: string }).error };
  };
  const right = { authorization: `Bearer ${server.token}` };
  const unknown = "/api/buckets/019a0000-0000-7000-8000-000000000000";
  assert.deepEqual(await call({}, "/api/buckets"), { status: 401, error: "unauthorized" });
  assert.deepEqual(await call({}, "/api/nothing"), { status: 401, error: "unauthorized" });
  assert.deepEqual(await call({ authorization: "Bearer wrong" }, unknown), { status: 401, error: "unauthorized" });
  assert.deepEqual(await call(right, unknown), { status: 404, error: "bucket_not_found" });
  assert.deepEqual(await call(right, "/api/nothing"), { status: 404, error: "not_found" });
});
