import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, writeFileSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { acquireLock } from "../../../lib/bucket/base/lock.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { PROGRAM } from "../../../scripts/local-server.ts";
import { ops } from "../../helpers/command-line.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

const LINES = [
  { namespace: "secrets/job/web", key: "password", value: "correct horse" },
  { namespace: "vars/job/web", key: "owner", value: "ada" },
];
const GIVEN = LINES.map((line) => `${JSON.stringify(line)}\n`).join("");

/** A built bucket, and a way to run commands of `ops kv` in it. */
async function bucket(t: TestContext) {
  const dir = temporaryFolder(t);
  assert.equal((await ops(["init", "--bucket-dir", dir])).code, 0);
  makeWorkspace(dir, { workers: [{ host: "127.0.0.1", connection: "local" }], jobs: { web: {} } });
  assert.equal((await ops(["build", "--bucket-dir", dir])).code, 0);
  const kv = (words: string[], input = "") => ops(["kv", ...words, "--bucket-dir", dir], { input });
  return { layout: layoutOf(dir), kv };
}

test("ops kv export seals secrets or prints them after --reveal, and ops kv import takes both", async (t) => {
  const [from, to] = [await bucket(t), await bucket(t)];
  const file = path.join(temporaryFolder(t), "passphrase");
  writeFileSync(file, "a long enough phrase\n", { mode: 0o600 });
  assert.deepEqual(await from.kv(["import"], GIVEN), { stdout: "", stderr: "imported 2 keys\n", code: 0 });
  const refused = await from.kv(["export"]);
  assert.deepEqual([refused.code, refused.stdout], [2, ""]);
  assert.match(refused.stderr, /the export has 1 secret: give --passphrase-file to seal, or --reveal/);
  const sealed = await from.kv(["export", "--passphrase-file", file]);
  assert.equal(sealed.code, 0, sealed.stderr);
  assert.equal(sealed.stderr, "exported 2 keys, 1 secret among them\n");
  assert.doesNotMatch(sealed.stdout, /correct horse/);
  assert.equal((await to.kv(["import", "--passphrase-file", file], sealed.stdout)).code, 0);
  const clear = await to.kv(["export", "--reveal"]);
  assert.equal(clear.stdout, `{"ops_kv":1,"entries":2}\n${GIVEN}`);
  const both = await from.kv(["export", "--passphrase-file", file, "--reveal"]);
  assert.deepEqual(both, { code: 2, stdout: "", stderr: "ops: give --passphrase-file or --reveal, not both\n" });
  chmodSync(file, 0o640);
  assert.match(
    (await from.kv(["export", "--passphrase-file", file])).stderr,
    /--passphrase-file: its mode 640 lets others use it/,
  );
  writeFileSync(file, "short");
  chmodSync(file, 0o600);
  assert.match((await from.kv(["export", "--passphrase-file", file])).stderr, /the passphrase has fewer than 12 characters/);
});

test("ops kv import waits for nobody, and a line that is wrong stores nothing", async (t) => {
  const { layout, kv } = await bucket(t);
  const lock = await acquireLock(layout, uuidV7(), "deploy");
  assert.equal((await kv(["import"], GIVEN)).code, 75);
  await lock.release();
  assert.equal((await kv(["import"], `${GIVEN}{}\n`)).code, 2);
  assert.equal((await kv(["export"])).stdout, '{"ops_kv":1,"entries":0}\n');
});

test("what is too long for stdin is not read to its end, and an unknown job is refused", async (t) => {
  const { layout, kv } = await bucket(t);
  const dir = ["--bucket-dir", layout.root];
  for (const [words, most] of [
    [["kv", "set-secret", "web", "k"], "1.0 MiB"],
    [["ssh-key", "set"], "16 KiB"],
  ] as const) {
    const child = spawn(process.execPath, [PROGRAM, ...words, ...dir], { stdio: "pipe" });
    child.stdin.on("error", () => {});
    // stdin stays open: only a command that stops at its bound ends.
    child.stdin.write(Buffer.alloc(1024 * 1024 + 1, "x"));
    const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, "close")]);
    assert.deepEqual([code, stderr], [2, `ops: stdin has more than ${most}\n`]);
  }
  assert.match((await kv(["export", "--jobs", "nope"])).stderr, /in the catalog there is no job "nope"/);
});
