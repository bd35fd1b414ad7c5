import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { acquireLock } from "../../lib/bucket/base/lock.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { makeKey, publicPart } from "../../scripts/private-sshd.ts";
import { TestServer } from "../helpers/server.ts";
import { writeServices } from "../helpers/service.ts";
import { fingerprintBy } from "../helpers/sshd.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

async function setUp(t: TestContext) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const key = makeKey(temporaryFolder(t), "key", "-t", "ed25519");
  const text = readFileSync(key, "utf8");
  const target = `${bucket.path}/secrets/ssh_key`;
  const call = (method: string, body?: unknown) => server.call(method, target, body === undefined ? {} : { body });
  return { server, bucket, key, text, call };
}

/** All files below a folder that hold this text. */
function filesWith(folder: string, text: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .filter((file) => readFileSync(file).includes(text))
    .map((file) => path.relative(folder, file));
}

const ABSENT = { present: false, type: null, fingerprint: null, public_key: null, updated_at: null };

test("CP-207 CP-248 CP-249 CP-250 T-11 an ssh key is uploaded, described without its private part, and removed", async (t) => {
  const { server, bucket, key, text, call } = await setUp(t);
  assert.deepEqual([(await call("GET")).status, (await call("GET")).body], [200, ABSENT]);
  const put = await call("PUT", { private_key: text });
  assert.equal(put.status, 200, put.text);
  const { updated_at, ...told } = put.body;
  assert.deepEqual(told, { present: true, type: "ssh-ed25519", fingerprint: fingerprintBy(key), public_key: publicPart(key) });
  const get = await call("GET");
  assert.deepEqual(get.body, put.body);
  const secret = text.split("\n")[2] as string;
  assert.deepEqual(filesWith(server.root, secret), [path.join(bucket.id, "secrets", "worker.key")]);
  assert.ok(![put.text, get.text, ...server.lines].some((one) => one.includes(secret)));
  assert.equal((await call("DELETE")).status, 204);
  assert.deepEqual((await call("GET")).body, ABSENT);
  assert.deepEqual(filesWith(server.root, secret), []);
  assert.equal((await call("DELETE")).status, 204);
});

test("a key is kept under the name that ops.conf gives, one for each", async (t) => {
  const { bucket, text, call } = await setUp(t);
  await call("PUT", { private_key: text });
  writeFileSync(path.join(bucket.folder, "ops.conf"), 'ssh_key = "id_ops"\n');
  assert.deepEqual((await call("GET")).body, ABSENT);
  await call("PUT", { private_key: text });
  assert.deepEqual(readdirSync(path.join(bucket.folder, "secrets")).sort(), [
    "ca.crt",
    "ca.key",
    "id_ops",
    "kv.key",
    "worker.key",
  ]);
});

test("with an ops.conf that cannot be read, or that names kv.key, nothing is stored or removed", async (t) => {
  const { bucket, text, call } = await setUp(t);
  for (const conf of ["ssh_key = ", 'ssh_key = "../x"\n', 'ssh_key = "kv.key"\n']) {
    writeFileSync(path.join(bucket.folder, "ops.conf"), conf);
    for (const reply of [await call("GET"), await call("PUT", { private_key: text }), await call("DELETE")]) {
      assert.deepEqual([reply.status, reply.body.error], [400, "invalid_source"]);
      assert.match(reply.body.message, /^Cannot tell the name of the ssh key: .*ops\.conf/);
    }
  }
  assert.deepEqual(readdirSync(path.join(bucket.folder, "secrets")).sort(), ["ca.crt", "ca.key", "kv.key"]);
});

for (const [what, body, message] of [
  ["nothing", {}, /^private_key: is missing/],
  ["a key that is no text", { private_key: 5 }, /^private_key: expected a string/],
  ["a key that is too large", { private_key: "x".repeat(16_385) }, /at most 16384 characters/],
  ["a key that is garbage", { private_key: "garbage" }, /^private_key: it is not a private key/],
  ["a name to store it under", { private_key: "x", name: "y" }, /^name: is not a known field/],
] as const)
  test(`a PUT with ${what} is refused`, async (t) => {
    const { bucket, call } = await setUp(t);
    const reply = await call("PUT", body);
    assert.deepEqual([reply.status, reply.body.error], [400, "invalid_request"]);
    assert.match(reply.body.message, message);
    assert.deepEqual(readdirSync(path.join(bucket.folder, "secrets")).sort(), ["ca.crt", "ca.key", "kv.key"]);
  });

test("a key protected by a passphrase is refused with what to do", async (t) => {
  const { bucket, call } = await setUp(t);
  const file = makeKey(temporaryFolder(t), "key", "-t", "ed25519", "-N", "secret words");
  const reply = await call("PUT", { private_key: readFileSync(file, "utf8") });
  assert.deepEqual([reply.status, reply.body.error], [400, "invalid_request"]);
  assert.match(reply.body.message, /protected by a passphrase.*give a key without one/);
  assert.equal(existsSync(path.join(bucket.folder, "secrets", "worker.key")), false);
});

test("a run keeps the key it began with: while one is active, or a command works there, a change is 409", async (t) => {
  const { server, bucket, text, call } = await setUp(t);
  await call("PUT", { private_key: text });
  server.hold();
  const run = (await server.call("POST", `${bucket.path}/build`)).body.run_id;
  const attempts = async () => [await call("PUT", { private_key: text }), await call("DELETE")];
  for (const reply of await attempts())
    assert.deepEqual([reply.status, reply.body.error, reply.body.run_id], [409, "bucket_busy", run]);
  assert.equal((await call("GET")).body.present, true);
  server.release();
  await server.ended(bucket.path, run);
  const lock = await acquireLock(layoutOf(bucket.folder), uuidV7(), "deploy");
  for (const reply of await attempts()) assert.deepEqual([reply.status, reply.body.error], [409, "bucket_busy"]);
  await lock.release();
  assert.equal((await call("DELETE")).status, 204);
  assert.equal(existsSync(layoutOf(bucket.folder).lock), false);
});

test("the key of an unknown bucket, and other ways to change it, are refused", async (t) => {
  const { server, call } = await setUp(t);
  const unknown = `/api/buckets/${uuidV7()}/secrets/ssh_key`;
  assert.equal((await server.call("GET", unknown)).body.error, "bucket_not_found");
  assert.equal((await call("POST", {})).status, 405);
});

test("CP-399 T-11 a secret of a job is stored sealed, shown by its fingerprint alone, and removed", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  writeServices(bucket.folder, path.join(server.root, "workers"), { version: "1.0.0" });
  const build = (await server.call("POST", `${bucket.path}/build`)).body.run_id;
  assert.equal((await server.ended(bucket.path, build)).status, "succeeded");
  const target = `${bucket.path}/secrets/jobs/base/db_password`;
  const value = "correct horse battery";
  const put = await server.call("PUT", target, { body: { value, ttl: 0 } });
  assert.deepEqual([put.status, put.text], [204, ""]);
  const rows = (await server.call("GET", `${bucket.path}/cat/kv?jobs=base`)).body.items as { key: string; value: string }[];
  const [row] = rows.filter(({ key }) => key === "db_password");
  assert.ok(row && !JSON.stringify(row).includes(value), JSON.stringify(row));
  assert.deepEqual(filesWith(server.root, value), []);
  assert.ok(!server.lines.some((line) => line.includes(value)));
  assert.equal((await server.call("DELETE", target)).status, 204);
  assert.equal((await server.call("DELETE", target)).body.error, "not_found");
  assert.equal((await server.call("PUT", `${bucket.path}/secrets/jobs/none/key`, { body: { value } })).body.error, "not_found");
  const tooLong = `${bucket.path}/secrets/jobs/base/${"k".repeat(300)}`;
  assert.equal((await server.call("PUT", tooLong, { body: { value } })).body.error, "invalid_request");
  const lock = await acquireLock(layoutOf(bucket.folder), uuidV7(), "deploy");
  assert.equal((await server.call("PUT", target, { body: { value } })).body.error, "bucket_busy");
  await lock.release();
});
