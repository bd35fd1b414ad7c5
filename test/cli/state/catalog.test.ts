import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { acquireLock } from "../../../lib/bucket/base/lock.ts";
import { setLastOutcome } from "../../../lib/bucket/catalog/info.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { ops } from "../../helpers/command-line.ts";
import { makeBucket } from "../../helpers/workspace.ts";

async function built(t: TestContext) {
  const bucket = await makeBucket(t, { workers: ["10.0.0.1"], jobs: { web: { selectors: ["worker"] } } });
  await build(bucket.context(), {});
  const run = (...words: string[]) => ops([...words, "--bucket-dir", bucket.dir]);
  return { ...bucket, run };
}

const withInput = (dir: string, input: string | Buffer, ...words: string[]) => ops([...words, "--bucket-dir", dir], { input });

test("ops info and ops cat print tables, and with --json what the API answers", async (t) => {
  const { run, bucketId } = await built(t);
  assert.match((await run("info")).stdout, new RegExp(`bucket id +${bucketId}\n`));
  assert.equal(JSON.parse((await run("info", "--json")).stdout).bucket_id, bucketId);
  assert.match((await run("cat", "jobs")).stdout, /^job +version .*\nweb +unknown /);
  const [job] = JSON.parse((await run("cat", "jobs", "--json")).stdout);
  assert.deepEqual([job.job, job.disabled, job.deployment_seq], ["web", 0, 0]);
});

test("ops cat deployments tells the last action on each allocation, and shows only some outcomes", async (t) => {
  const { run, db } = await built(t);
  const [one] = JSON.parse((await run("cat", "deployments", "--json")).stdout);
  const reason = `\`make restart\` of job web on 10.0.0.1 failed: exit code 2:\nfirst line\n${"x".repeat(100)}`;
  setLastOutcome(db, one.allocation_id, "0198f3a2", { action: "restart", outcome: "failed", reason });
  const shown = await run("cat", "deployments", "--outcome", "failed,unreachable");
  assert.match(
    shown.stdout,
    /^job +worker +rollout +version +last +reason\nweb +\S+ +new +0\.0\.0 +restart failed +first line…\n$/,
  );
  for (const [length, end] of [
    [50, ""],
    [51, "…"],
  ] as const) {
    const last = { action: "restart", outcome: "failed", reason: "x".repeat(length) } as const;
    setLastOutcome(db, one.allocation_id, "0198f3a2", last);
    const { stdout } = await run("cat", "deployments", "--outcome", "failed");
    assert.match(stdout, new RegExp(` x{50}${end}\n`));
  }
  const none = await run("cat", "deployments", "--outcome", "ok");
  assert.deepEqual([none.code, none.stdout], [0, "there are no deployments with that outcome\n"]);
  const promoted = await run("cat", "deployments", "--state", "promoted,stop");
  assert.deepEqual([promoted.code, promoted.stdout], [0, "there are no deployments in that state\n"]);
  const wrong = await run("cat", "deployments", "--outcome", "faild");
  assert.equal(wrong.code, 2);
  assert.match(wrong.stderr, /--outcome: expected one of unknown, .*, found "faild"; did you mean failed\?/);
});

test("CP-111 ops cat prometheus lists, prints a file, and prints what is to be scraped", async (t) => {
  const bucket = await makeBucket(t, {
    workers: ["10.0.0.1"],
    jobs: { web: { selectors: ["worker"], resources: { ports: { metrics_port: 9100 } } }, idle: {} },
    files: {
      "workspace/jobs/web/_prometheus/scrape.yaml": "- job_name: web\n  static_configs: [{targets: ['ops:port/metrics_port']}]\n",
      "workspace/jobs/web/_prometheus/runbooks/down.md": "# Down\n",
    },
  });
  await build(bucket.context(), {});
  const run = async (...words: string[]) => {
    const { code, stdout, stderr } = await ops(["cat", "prometheus", ...words, "--bucket-dir", bucket.dir]);
    return [code, stdout, stderr];
  };
  const table = "job  scrape  alerts  runbooks  dashboards\nweb  yes          0         1           0\n";
  assert.deepEqual(await run(), [0, table, ""]);
  assert.deepEqual(await run("--jobs", "idle"), [0, "no job has anything below _prometheus/\n", ""]);
  assert.deepEqual(await run("get", "web", "runbooks/down.md"), [0, "# Down\n", ""]);
  const missing = 'ops: job web has no file "../Makefile" below _prometheus/\n';
  assert.deepEqual(await run("get", "web", "../Makefile"), [1, "", missing]);
  assert.deepEqual(await run("get", "none", "a"), [1, "", 'ops: in the catalog there is no job "none"\n']);
  const elsewhere = ["--server", "http://127.0.0.1:9", "--bucket", "b"];
  for (const words of [[], ["get", "web", "runbooks/down.md"], ["scrape"]]) {
    const [code, , stderr] = await run(...words, ...elsewhere);
    assert.deepEqual([code, /has no flag "--server"/.test(String(stderr))], [2, true], "it is no command for a server");
  }
  const yaml = '- job_name: web\n  static_configs:\n    - targets:\n        - "10.0.0.1:9100"\n';
  assert.deepEqual(await run("scrape"), [0, yaml, ""]);
  assert.deepEqual(await run("scrape", "--jobs", "idle"), [0, "[]\n", ""]);
  const [, json] = await run("scrape", "--json");
  assert.deepEqual(JSON.parse(String(json)), [{ job_name: "web", static_configs: [{ targets: ["10.0.0.1:9100"] }] }]);
});

test("nothing to show is no failure, but in a bucket that was never built", async (t) => {
  const { run } = await built(t);
  assert.deepEqual(await run("cat", "hooks"), { code: 0, stdout: "there are no hooks\n", stderr: "" });
  assert.equal((await run("cat", "hooks", "--json")).stdout, "[]\n");
  const { dir } = await makeBucket(t, {});
  const unbuilt = await ops(["cat", "hooks", "--bucket-dir", dir]);
  assert.deepEqual([unbuilt.code, unbuilt.stderr], [1, "ops: there are no hooks: the bucket was never built\n"]);
});

test("unknown names are failures that say what to do", async (t) => {
  const { run } = await built(t);
  const typo = await run("cat", "allocations", "--jobs", "wep");
  assert.deepEqual([typo.code, typo.stderr], [1, 'ops: in the catalog there is no job "wep"; did you mean "web"?\n']);
  const word = await run("cat", "job");
  assert.deepEqual([word.code, /did you mean cat jobs\?/.test(word.stderr)], [2, true], word.stderr);
});

test("readers take no lock", async (t) => {
  const { run, layout } = await built(t);
  const lock = await acquireLock(layout, uuidV7(), "test");
  t.after(() => lock.release());
  assert.equal((await run("cat", "jobs")).code, 0);
  assert.equal((await run("info")).code, 0);
});

test("a secret comes from stdin, is kept byte for byte and shown only on request", async (t) => {
  const { run, dir, kv } = await built(t);
  const set = await withInput(dir, "  two\nlines\n", "kv", "set-secret", "WEB", "password");
  assert.equal(set.code, 0, set.stderr);
  assert.match(set.stderr, /ends with a newline/);
  assert.match(set.stderr, /^secret password of job web is stored$/m);
  assert.equal(set.stdout, "");
  assert.equal(kv().get("secrets/job/web", "password"), "  two\nlines\n");
  const hidden = await run("cat", "kv", "get", "secrets/job/web", "password");
  assert.match(hidden.stdout, /value: \[encrypted\]\n/);
  const shown = await run("cat", "kv", "get", "secrets/job/web", "password", "--reveal", "--json");
  assert.equal(JSON.parse(shown.stdout).value, "  two\nlines\n");
  assert.equal((await run("cat", "kv", "get", "secrets/job/web", "nothing")).code, 1);
  const all = await run("cat", "kv", "--json");
  assert.ok(!all.stdout.includes("lines"));
  assert.match(all.stdout, /"fingerprint": "[0-9a-f]{12}"/);
});

test("a secret has at most 1 MiB, and --ttl ends it", async (t) => {
  const { run, dir, kv } = await built(t);
  const large = "x".repeat(2 ** 20);
  assert.equal((await withInput(dir, large, "kv", "set-secret", "web", "large", "--ttl", "60")).code, 0);
  assert.equal(kv().get("secrets/job/web", "large"), large);
  const get = async (key: string) =>
    JSON.parse((await run("cat", "kv", "get", "secrets/job/web", key, "--json")).stdout) as { ttl: number | null };
  assert.equal((await get("large")).ttl, 60);
});

test("a private key is never shown, not even on request; certificates are", async (t) => {
  const job = { selectors: ["worker"], certs: { server: {} } };
  const bucket = await makeBucket(t, { workers: ["10.0.0.1"], jobs: { web: job } });
  await build(bucket.context(), {});
  const get = (key: string) =>
    ops([
      ...["cat", "kv", "get", "ops/job/web/worker/10.0.0.1", `certs/server.${key}`],
      ...["--reveal", "--json", "--bucket-dir", bucket.dir],
    ]);
  assert.equal(JSON.parse((await get("key")).stdout).value, "[encrypted]");
  assert.match(JSON.parse((await get("crt")).stdout).value, /^-----BEGIN CERTIFICATE/);
  const all = await ops(["cat", "kv", "--json", "--bucket-dir", bucket.dir]);
  assert.ok(!all.stdout.includes("PRIVATE KEY") && !all.stdout.includes("enc:v2"), all.stdout);
});

for (const [what, input, words, message] of [
  ["an unknown job", "x", ["wob", "key"], /there is no job "wob"; did you mean "web"/],
  ["more than 1 MiB", "x".repeat(2 ** 20 + 1), ["web", "key"], /stdin has more than 1.0 MiB/],
  ["an empty value", "", ["web", "key"], /the value on stdin is empty/],
  ["bytes that are no text", Buffer.from([0xff, 0xfe]), ["web", "key"], /is not UTF-8 text/],
  ["a key over two lines", "x", ["web", "a\nb"], /key: expected one line of text/],
  ["a missing key", "x", ["web"], /key is missing/],
] as const)
  test(`kv set-secret refuses ${what}`, async (t) => {
    const { dir, kv } = await built(t);
    const { code, stderr } = await withInput(dir, input, "kv", "set-secret", ...words);
    assert.notEqual(code, 0);
    assert.match(stderr, message);
    assert.deepEqual(kv().keys("secrets/job/web"), []);
  });

test("a secret of notify.json is stored and deleted; with --json it has no job", async (t) => {
  const { dir, run, kv } = await built(t);
  const set = await withInput(dir, "s", "notify", "set-secret", "slack", "--json");
  assert.deepEqual([set.code, JSON.parse(set.stdout)], [0, { job: null, key: "slack" }]);
  assert.match(set.stderr, /^secret slack of notify\.json is stored$/m);
  assert.equal(kv().get("secrets/notify", "slack"), "s");
  assert.match((await run("notify", "delete-secret", "slack")).stderr, /^secret slack of notify\.json is deleted$/m);
  assert.equal(kv().get("secrets/notify", "slack"), undefined);
});

test("kv set-secret takes the lock", async (t) => {
  const { dir, layout } = await built(t);
  const lock = await acquireLock(layout, uuidV7(), "test");
  t.after(() => lock.release());
  const { code, stderr } = await withInput(dir, "x", "kv", "set-secret", "web", "key");
  assert.equal(code, 75);
  assert.match(stderr, /^ops: bucket busy: another ops operation is in progress\n/);
});
