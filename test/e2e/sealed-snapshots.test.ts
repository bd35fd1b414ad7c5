import assert from "node:assert/strict";
import { copyFileSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { newIdentity } from "../../lib/codec/crypto/seal-key.ts";
import { ops } from "../../scripts/local-server.ts";
import { TestServer, TOKEN } from "../helpers/server.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { opsAtTerminal } from "../helpers/terminal.ts";

const PASSPHRASE = "correct horse battery staple";

/** A bucket folder, and files with secrets beside it. */
async function place(t: TestContext) {
  const folder = temporaryFolder(t);
  const cwd = path.join(folder, "bucket");
  const secret = (name: string, text: string, mode = 0o600) => {
    const file = path.join(folder, name);
    writeFileSync(file, text, { mode });
    return file;
  };
  const { code, stderr } = await ops(["init", "--bucket-dir", cwd]);
  assert.equal(code, 0, stderr);
  return { folder, cwd, secret, run: (...args: string[]) => ops(args, { cwd }) };
}

/** All text in the files below a folder. */
function textsBelow(folder: string): string {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((one) => one.isFile());
  return files.map((one) => readFileSync(path.join(one.parentPath, one.name), "latin1")).join("\n");
}

test("CP-640 on the command line a snapshot is sealed for a public key, and opened with the private one", async (t) => {
  const { folder, cwd, run, secret } = await place(t);
  const keyFile = path.join(folder, "recovery.key");
  const made = await run("snapshot", "keygen", keyFile);
  assert.match(made.stdout, /^x25519:[\w-]{48}\n$/);
  assert.equal(statSync(keyFile).mode & 0o777, 0o600);
  const again = await run("snapshot", "keygen", keyFile);
  assert.deepEqual([again.code, /exists: it is not replaced/.test(again.stderr)], [2, true], again.stderr);
  const conf = path.join(cwd, "ops.conf");
  const settings = `${readFileSync(conf, "utf8")}`.replace("snapshot_keep = 0", "snapshot_keep = 2");
  writeFileSync(conf, settings.replace(/^# snapshot_recipient = .*$/m, `snapshot_recipient = "${made.stdout.trim()}"`));
  const names = [];
  for (let count = 0; count < 3; count++) {
    const created = await run("snapshot", "create", "--json");
    assert.equal(created.code, 0, created.stderr);
    names.push(JSON.parse(created.stdout).name);
  }
  assert.deepEqual(
    readdirSync(path.join(cwd, ".ops", "snapshots")).sort(),
    names.slice(1).map((name) => `${name}.tar.gz.sealed`),
  );
  const [name] = names.slice(-1);
  const without = await run("snapshot", "verify", name);
  assert.deepEqual([without.code, /give its private key with --identity-file/.test(without.stderr)], [2, true], without.stderr);
  const open = secret("open.key", readFileSync(keyFile, "utf8"), 0o644);
  const refused = await run("snapshot", "verify", name, "--identity-file", open);
  assert.deepEqual([refused.code, /lets others use it: chmod 600/.test(refused.stderr)], [2, true], refused.stderr);
  assert.equal((await run("snapshot", "verify", name, "--identity-file", keyFile)).code, 0);
  const restored = await run("snapshot", "restore", name, "--identity-file", keyFile, "--json");
  assert.equal(restored.code, 0, restored.stderr);
  // What it saved first is sealed, too.
  assert.ok(existsSync(path.join(cwd, ".ops", "snapshots", `${JSON.parse(restored.stdout).saved_as}.tar.gz.sealed`)));
  const listed = await run("snapshot", "list");
  assert.match(listed.stdout, /sealed +signed.*\n.* recipient +here /);
});

test("CP-640 a passphrase comes from the terminal, a file or stdin, and is written nowhere", async (t) => {
  const { folder, cwd, run, secret } = await place(t);
  const file = secret("passphrase", `${PASSPHRASE}\n`);
  const typed = await opsAtTerminal(
    ["snapshot", "create", "--passphrase"],
    [
      ["Passphrase: ", `${PASSPHRASE}\n`],
      ["The same again: ", `${PASSPHRASE}\n`],
    ],
    { cwd },
  );
  assert.equal(typed.code, 0, typed.shown);
  assert.ok(!typed.shown.includes(PASSPHRASE));
  const [name = ""] = readdirSync(path.join(cwd, ".ops", "snapshots")).map((one) => one.replace(/\.tar.*/, ""));
  const atTerminal = await opsAtTerminal(["snapshot", "verify", name], [["Passphrase of the snapshot: ", `${PASSPHRASE}\n`]], {
    cwd,
  });
  assert.equal(atTerminal.code, 0, atTerminal.shown);
  const tooShort = await opsAtTerminal(["snapshot", "create", "--passphrase"], [["Passphrase: ", "short\n"]], { cwd });
  assert.deepEqual([tooShort.code, /fewer than 12 characters/.test(tooShort.shown)], [2, true], tooShort.shown);
  for (const [args, code, said] of [
    [["snapshot", "verify", name, "--passphrase-file", file], 0, /can be restored/],
    [["snapshot", "restore", name, "--passphrase-file", file], 0, /restored the state/],
    [["snapshot", "verify", name], 2, /sealed for a passphrase: give --passphrase-file/],
    [
      ["snapshot", "verify", name, "--passphrase-file", secret("other", "another passphrase")],
      1,
      /the passphrase does not open it/,
    ],
    [["snapshot", "create", "--passphrase-file", secret("short", "short")], 2, /fewer than 12 characters/],
    [
      ["snapshot", "create", "--passphrase-file", file, "--recipient", newIdentity().recipient],
      2,
      /give --recipient or a passphrase, not both/,
    ],
    [["snapshot", "create", "--passphrase-file", file, "--passphrase"], 2, /give --passphrase or --passphrase-file, not both/],
  ] as const) {
    const ended = await run(...args);
    assert.deepEqual([ended.code, said.test(ended.stdout + ended.stderr)], [code, true], ended.stdout + ended.stderr);
  }
  const stdin = await ops(["snapshot", "verify", name, "--passphrase-file", "-"], { cwd, input: `${PASSPHRASE}\n` });
  assert.equal(stdin.code, 0, stdin.stderr);
  assert.ok(!textsBelow(cwd).includes(PASSPHRASE));
  // Elsewhere: the signer first, before anybody types a passphrase.
  const copy = path.join(folder, `${name}.tar.gz.sealed`);
  copyFileSync(path.join(cwd, ".ops", "snapshots", `${name}.tar.gz.sealed`), copy);
  const elsewhere = path.join(folder, "elsewhere");
  const strange = await ops(["snapshot", "restore", copy, "--bucket-dir", elsewhere]);
  const [signer = ""] = /SHA256:[\w+/]{43}/.exec(strange.stderr) ?? [];
  assert.deepEqual([strange.code, signer !== "", existsSync(elsewhere)], [1, true, false], strange.stderr);
  const into = await ops(["snapshot", "restore", copy, "--bucket-dir", elsewhere, "--signer", signer, "--passphrase-file", file]);
  assert.equal(into.code, 0, into.stderr);
  assert.ok(existsSync(path.join(elsewhere, "secrets", "kv.key")));
});

test("CP-640 over HTTP the passphrase seals and opens, and is in no record, log, answer or process argument", async (t) => {
  const server = await TestServer.start(t);
  const { id, path: bucket, folder } = await server.createBucket();
  const run = async (target: string, body: unknown, headers = {}) => {
    const started = await server.call("POST", `${bucket}/${target}`, { body, headers });
    assert.equal(started.status, 202, started.text);
    return server.ended(bucket, started.body.run_id);
  };
  const made = await run("snapshots", { note: "n", passphrase: PASSPHRASE }, { "idempotency-key": "a-key-of-this-test" });
  assert.deepEqual(
    [made.status, made.params, made.result.seal.for, made.result.own],
    ["succeeded", { note: "n" }, "passphrase", true],
  );
  const { name } = made.result;
  const verify = async (body: unknown) => (await server.call("POST", `${bucket}/snapshots/${name}/verify`, { body })).body.error;
  assert.equal(await verify({ passphrase: PASSPHRASE }), null);
  assert.match(await verify({}), /sealed for a passphrase, which was not given/);
  assert.match(await verify({ passphrase: "another passphrase" }), /the passphrase does not open it/);
  const wrong = await run(`snapshots/${name}/restore`, { passphrase: "another passphrase" });
  assert.deepEqual([wrong.status, /does not open it/.test(wrong.error ?? "")], ["failed", true], wrong.error ?? "");
  const restored = await run(`snapshots/${name}/restore`, { passphrase: PASSPHRASE });
  assert.deepEqual([restored.status, "passphrase" in restored.params], ["succeeded", false]);
  // A command finds the key of this snapshot here, and sends that alone.
  const file = path.join(temporaryFolder(t), "passphrase");
  writeFileSync(file, PASSPHRASE, { mode: 0o600 });
  const remote = ["--server", server.url, "--bucket", id, "--passphrase-file", file];
  for (const command of ["verify", "restore"]) {
    const ended = await ops(["snapshot", command, name, ...remote], { env: { OPS_SERVE_TOKEN: TOKEN } });
    assert.equal(ended.code, 0, ended.stderr);
  }
  const sealed = await ops(["snapshot", "create", ...remote], { env: { OPS_SERVE_TOKEN: TOKEN } });
  assert.equal(sealed.code, 0, sealed.stderr);
  const files = readdirSync(path.join(folder, ".ops", "snapshots"));
  assert.equal(files.length, 4, "two that were made, and two that the restores have saved");
  assert.ok(files.every((one) => one.endsWith(".sealed")));
  assert.ok(!textsBelow(folder).includes(PASSPHRASE));
  for (const body of [{ passphrase: "short" }, { passphrase: PASSPHRASE, recipient: `x25519:${"A".repeat(48)}` }, { key: "x" }])
    assert.equal((await server.call("POST", `${bucket}/snapshots`, { body })).status, 400, JSON.stringify(body));
});
