import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { get } from "node:https";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { createBucket } from "../../../lib/bucket/source/root.ts";
import { initBucket } from "../../../lib/bucket/workspace/init.ts";
import { LocalServer, ops as opsProcess } from "../../../scripts/local-server.ts";
import { ops } from "../../helpers/command-line.ts";
import { certificateFor } from "../../helpers/http.ts";
import { temporaryFolder, writeFiles } from "../../helpers/temporary.ts";

const DYING = new URL("../../fixtures/dying-command.ts", import.meta.url).href;
const TOKEN = "token-of-this-test-of-serve";

async function serve(t: TestContext, root: string, options: Parameters<typeof LocalServer.start>[1] = {}): Promise<LocalServer> {
  const server = await LocalServer.start(root, { command: "serve", ...options });
  t.after(() => server.stop("SIGKILL"));
  return server;
}

/** A root with some environments, whose ids this answers, sorted. */
async function withEnvironments(t: TestContext, count = 3): Promise<{ root: string; ids: string[] }> {
  const root = path.join(temporaryFolder(t), "root");
  mkdirSync(root, { mode: 0o700 });
  const initialise = async (dir: string, bucketId: string) => void (await initBucket(dir, { bucketId, source: false }));
  const ids: string[] = [];
  for (let index = 0; index < count; index++) {
    const { id } = await createBucket(root, { project: "shop", name: `env-${index}` }, initialise, "env.json");
    ids.push(id);
  }
  return { root, ids: ids.sort() };
}

/** Which of the two files each folder of the root has. */
function labelFiles(root: string): string[] {
  const folders = readdirSync(root).filter((name) => !name.startsWith("."));
  return folders.flatMap((name) => ["env.json", "bucket.json"].filter((file) => existsSync(path.join(root, name, file))));
}

test("CP-901 CP-909 ops serve starts with the root of its variable and serves environments", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const child = spawn(
    process.execPath,
    [fileURLToPath(new URL("../../../bin/ops.js", import.meta.url)), "serve", "--addr", "127.0.0.1:0"],
    { env: { ...process.env, OPS_SERVE_ROOT: root, OPS_SERVE_TOKEN: TOKEN }, stdio: ["ignore", "pipe", "ignore"] },
  );
  t.after(() => child.kill("SIGKILL"));
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  const url = String(line).trim().replace("listening on ", "");
  const made = await fetch(`${url}/api/envs`, {
    method: "POST",
    headers: { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" },
    body: '{"project": "shop", "name": "live"}',
  });
  const { id } = (await made.json()) as { id: string };
  assert.equal(made.status, 201);
  assert.ok(existsSync(path.join(root, id, "env.json")));
  const exited = once(child, "exit");
  child.kill("SIGTERM");
  assert.deepEqual(await exited, [0, null]);
});

test("CP-910 CP-911 CP-912 CP-914 the flags set token, address and TLS", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const { certFile, keyFile } = await certificateFor(t);
  const flags = ["--token", TOKEN, "--tls-cert", certFile, "--tls-key", keyFile];
  const server = await serve(t, root, { addr: "localhost:0", flags });
  assert.match(server.url, /^https:\/\/127\.0\.0\.1:\d+$/);
  const ask = (method: string, target: string) =>
    new Promise<{ status: number | undefined; cookie: string }>((resolve, reject) => {
      const options = { method, ca: readFileSync(certFile), headers: { authorization: `Bearer ${TOKEN}` } };
      get(server.url + target, options, (response) => {
        response.resume();
        resolve({ status: response.statusCode, cookie: String(response.headers["set-cookie"]) });
      }).on("error", reject);
    });
  assert.equal((await ask("GET", "/api/envs")).status, 200);
  assert.match((await ask("POST", "/signin")).cookie, /^ops_serve_token=.*; Secure$/);
  const commandLine = readFileSync(`/proc/${server.process.pid}/cmdline`, "latin1");
  assert.ok(!commandLine.includes(TOKEN));
});

test("CP-913 there is no TOTP: its flags are unknown, and its variable refuses the start", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  for (const flag of ["--totp-secret-file", "--totp-session-ttl", "--totp-issuer"]) {
    const { code, stderr } = await ops(["serve", "--root", root, "--token", TOKEN, flag, "x"]);
    assert.equal(code, 2);
    assert.match(stderr, new RegExp(`has no flag "${flag}"`));
  }
  const { code, stderr } = await ops(["serve", "--root", root, "--token", TOKEN], { env: { OPS_SERVE_TOTP_SECRET_FILE: "x" } });
  assert.equal(code, 2);
  assert.match(stderr, /ops serve has no TOTP, but OPS_SERVE_TOTP_SECRET_FILE is set/);
  assert.ok(!existsSync(root));
});

for (const [id, sign] of [
  ["CP-906", "ops.conf"],
  ["CP-907", "data/ops.db"],
  ["CP-908", "env.json"],
] as const)
  test(`${id} a root that contains ${sign} is refused`, async (t) => {
    const root = writeFiles(temporaryFolder(t), { [sign]: "" });
    const { code, stderr } = await ops(["serve", "--root", root, "--token", TOKEN]);
    assert.equal(code, 2);
    assert.ok(stderr.includes(`is itself a bucket: it contains ${sign}`), stderr);
  });

test("CP-908 a root of environments is refused by server, and a root of buckets by serve; both name the way out", async (t) => {
  const { root, ids } = await withEnvironments(t, 1);
  const refusedBy = async (command: string) => {
    const { code, stderr } = await ops([command, "--root", root, "--token", TOKEN]);
    assert.equal(code, 2);
    return stderr;
  };
  const byServer = await refusedBy("server");
  assert.match(byServer, /holds environments: turn them into buckets with `ops server migrate <root>`/);
  assert.ok(byServer.includes(ids[0] as string));
  assert.equal((await ops(["server", "migrate", root])).code, 0);
  assert.match(await refusedBy("serve"), /holds buckets, as `ops server migrate` makes them .*: serve them with `ops server`/);
});

test("CP-936 server migrate turns environments into buckets with the same ids and labels, says so, and can be repeated", async (t) => {
  const { root, ids } = await withEnvironments(t);
  const before = ids.map((id) => readFileSync(path.join(root, id, "env.json"), "utf8"));
  const dry = await ops(["server", "migrate", root, "--dry-run"]);
  assert.equal(dry.code, 0);
  assert.deepEqual(
    dry.stdout.split("\n").map((line) => line.replace(/shop\/env-\d/, "…")),
    [...ids.map((id) => `${id} …: would become a bucket`), ""],
  );
  assert.deepEqual(
    labelFiles(root),
    ids.map(() => "env.json"),
  );
  assert.deepEqual(readdirSync(root).sort(), ids, "a dry run leaves nothing behind");
  const done = await ops(["server", "migrate", root]);
  assert.equal(done.code, 0);
  assert.match(done.stdout, new RegExp(`^${ids[0]} shop/env-\\d: is a bucket now$`, "m"));
  assert.deepEqual(
    ids.map((id) => readFileSync(path.join(root, id, "bucket.json"), "utf8")),
    before,
  );
  assert.equal(statSync(path.join(root, ids[0] as string, "bucket.json")).mode & 0o777, 0o600);
  assert.deepEqual(await ops(["server", "migrate", root]), {
    code: 0,
    stdout: `no environments are left in ${root}\n`,
    stderr: "",
  });
  const server = await LocalServer.start(root);
  t.after(() => server.stop("SIGKILL"));
  const { body } = await server.call<{ items: { id: string }[] }>("GET", "/api/buckets");
  assert.deepEqual(
    body.items.map(({ id }) => id),
    ids,
  );
});

test("CP-936 server migrate that is killed between two environments is finished by the next one", async (t) => {
  const { root, ids } = await withEnvironments(t);
  const dying = { NODE_OPTIONS: `--import=${DYING}`, OPS_TEST_FAULT: "migrate: renamed 1" };
  assert.equal((await opsProcess(["server", "migrate", root], { env: dying })).code, null);
  assert.deepEqual(labelFiles(root).sort(), ["bucket.json", "env.json", "env.json"]);
  for (const command of ["server", "serve"]) assert.equal((await ops([command, "--root", root, "--token", TOKEN])).code, 2);
  const { code, stdout } = await ops(["server", "migrate", root, "--json"]);
  assert.equal(code, 0);
  const { dry_run, items } = JSON.parse(stdout);
  assert.deepEqual(
    [dry_run, items.map(({ id, problem }: { id: string; problem: null }) => [id, problem])],
    [false, ids.slice(1).map((id) => [id, null])],
  );
  assert.deepEqual(
    labelFiles(root),
    ids.map(() => "bucket.json"),
  );
});

test("server migrate leaves what it cannot turn, and says why", async (t) => {
  const { root, ids } = await withEnvironments(t, 2);
  writeFileSync(path.join(root, ids[0] as string, "bucket.json"), "{}");
  writeFiles(root, { "my-env/env.json": "{}", "notes/text": "" });
  const { code, stdout } = await ops(["server", "migrate", root]);
  assert.equal(code, 1);
  assert.match(stdout, new RegExp(`^${ids[0]} shop/env-\\d: stays: it has a bucket\\.json too$`, "m"));
  assert.match(stdout, /^my-env: stays: its folder is not named by a UUID in small letters$/m);
  assert.deepEqual(labelFiles(root).sort(), ["bucket.json", "bucket.json", "env.json", "env.json"]);
  assert.equal((await ops(["server", "migrate", path.join(root, "nothing")])).code, 2);
});

test("CP-937 server migrate is refused while a server has the root", async (t) => {
  const { root } = await withEnvironments(t, 1);
  const server = await serve(t, root);
  const { code, stderr } = await ops(["server", "migrate", root]);
  assert.equal(code, 1);
  assert.match(stderr, new RegExp(`Cannot take the root ${root}: .*process ${server.process.pid}\\b.*; stop it first`));
  assert.deepEqual(labelFiles(root), ["env.json"]);
  await server.stop();
  assert.equal((await ops(["server", "migrate", root])).code, 0);
});
