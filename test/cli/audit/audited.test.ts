import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { verifyAudit } from "../../../lib/audit/verify.ts";
import { COMMANDS } from "../../../lib/cli/main.ts";
import { ops as opsProcess } from "../../../scripts/local-server.ts";
import { auditBelow, auditLines, chainFiles } from "../../helpers/audit-log.ts";
import { ops } from "../../helpers/command-line.ts";
import { TestServer } from "../../helpers/server.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

const NAMED = JSON.stringify({ tokens: [{ name: "ada" }], approvals: {} });

test("CP-996 in a bucket of a server a command that changes something is in the server's audit, with its run and how it went", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  makeWorkspace(bucket.folder, { jobs: { web: { version: "1.0.0", selectors: ["worker"] } }, workers: ["127.0.0.1"] });
  const built = await opsProcess(["build"], { cwd: bucket.folder });
  assert.equal(built.code, 0, built.stderr);
  assert.equal((await ops(["cat", "jobs"], { cwd: bucket.folder })).code, 0);
  await server.call("PUT", bucket.path, { body: { name: "other" } });
  // The run of a command is found by its process.
  const refused = await opsProcess(["job", "start", "nothing"], { cwd: bucket.folder });
  assert.equal(refused.code, 1);
  const lines = (await auditLines(server.root)).filter(({ bucket: id }) => id === bucket.id);
  const [start, outcome] = lines;
  assert.deepEqual(
    lines.map(({ what, via, action }) => [what, via, action]),
    [
      ["start", "cli", "ops build"],
      ["outcome", "cli", "ops build"],
      ["change", "bearer", "PUT /api/buckets/{bucket_id}"],
      ["outcome", "bearer", "PUT /api/buckets/{bucket_id}"],
      ["start", "cli", "ops job start"],
      ["outcome", "cli", "ops job start"],
    ],
  );
  assert.match(start?.from ?? "", /^\S+@\S+ \(process \d+\)$/);
  assert.deepEqual([outcome?.of, outcome?.outcome, outcome?.kind, outcome?.code], [start?.n, "succeeded", "build", 0]);
  const record = JSON.parse(readFileSync(path.join(bucket.folder, "logs/runs", outcome?.run ?? "", "server-run.json"), "utf8"));
  assert.equal(record.audit[0].actor.address, outcome?.from, "the run's own audit agrees");
  assert.deepEqual([lines.at(-1)?.outcome, lines.at(-1)?.error], ["failed", "unknown_name"]);
  await server.stop();
  const { publicKey } = await auditBelow(server.root).log.key();
  assert.equal((await verifyAudit(await chainFiles(server.root), { publicKey })).finding, null);
});

test("CP-996 once a root has named people, a change here wants --break-glass with a reason, and readings do not", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  await server.stop();
  makeWorkspace(bucket.folder, { jobs: { web: { version: "1.0.0", selectors: ["worker"] } }, workers: ["127.0.0.1"] });
  const count = (await auditLines(server.root)).length;
  for (const access of [NAMED, "damaged"]) {
    writeFileSync(path.join(server.root, "access.json"), access);
    for (const args of [["build"], ["ssh-key", "create"], ["job", "create", "other"], ["deploy"]]) {
      const refused = await ops([...args, "--json"], { cwd: bucket.folder });
      assert.equal(refused.code, 1, args.join(" "));
      assert.equal(JSON.parse(refused.stderr).error, "forbidden");
      assert.match(refused.stderr, /which has named people: .*give --break-glass with a reason/);
    }
  }
  assert.equal((await auditLines(server.root)).length, count, "what is refused here has changed nothing");
  assert.equal((await ops(["info"], { cwd: bucket.folder })).code, 0);
  const built = await ops(["build", "--break-glass", "the server is down"], { cwd: bucket.folder });
  assert.equal(built.code, 0, built.stderr);
  const [start] = (await auditLines(server.root)).slice(count);
  assert.deepEqual([start?.what, start?.reason, start?.params], ["start", "the server is down", undefined]);
  for (const [args, what] of [
    [["ssh-key", "create"], "key"],
    [["kv", "delete-secret", "web", "password"], "delete"],
    [["job", "create", "other"], "change"],
  ] as const) {
    await ops([...args, "--break-glass", "r".repeat(200)], { cwd: bucket.folder });
    const asked = (await auditLines(server.root)).findLast(({ reason }) => reason === "r".repeat(200));
    assert.equal(asked?.what, what, args.join(" "));
  }
  for (const reason of ["r".repeat(201), " ", "two\nlines"]) {
    const refused = await ops(["build", "--break-glass", reason], { cwd: bucket.folder });
    assert.deepEqual([refused.code, /--break-glass: expected a reason, one line of at most 200/.test(refused.stderr)], [2, true]);
  }
  writeFileSync(path.join(server.root, "access.json"), JSON.stringify({ tokens: [], approvals: {} }));
  assert.equal((await ops(["build"], { cwd: bucket.folder })).code, 0);
});

test("where the audit of the server cannot be written, a command here changes nothing", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  await server.stop();
  const [file = ""] = await chainFiles(server.root);
  rmSync(file);
  mkdirSync(file);
  const refused = await ops(["ssh-key", "create", "--json"], { cwd: bucket.folder });
  assert.deepEqual([refused.code, JSON.parse(refused.stderr.trim().split("\n").at(-1) ?? "").error], [1, "audit_unavailable"]);
  assert.equal(JSON.parse((await ops(["ssh-key", "show", "--json"], { cwd: bucket.folder })).stdout).present, false);
});

test("a bucket that belongs to no server has no audit", async (t) => {
  const folder = temporaryFolder(t);
  assert.equal((await ops(["init"], { cwd: folder })).code, 0);
  assert.equal((await ops(["ssh-key", "create"], { cwd: folder })).code, 0);
  assert.deepEqual(await chainFiles(path.dirname(folder)), []);
});

test("every command that works in a bucket here either changes it or is known to read", () => {
  const readings =
    /^(?:status|runs?( list| show| follow| log| cancel)?|revisions( list| show| diff)?|ssh-key show|info|cat .*|logs|kv (?:export|list|get).*|check|schema|doctor|drift|snapshot (?:list|verify|keygen)|health(?:_check)?|worker (?:uptime|sysstat)|job status)$/;
  const left = COMMANDS.filter(
    ({ run, changes, flags }) => run && changes === undefined && flags.some(({ name }) => name === "bucket-dir"),
  );
  assert.deepEqual(
    left.map(({ name }) => name).filter((name) => !readings.test(name)),
    [],
  );
});

test("CP-510 CP-996 a token that is made or revoked with --root is in the audit of that server, and a list is not", async (t) => {
  const server = await TestServer.start(t);
  await server.stop();
  const before = await auditLines(server.root);
  const here = (...args: string[]) => ops([...args, "--root", server.root], { cwd: server.root, env: { OPS_SERVER: "" } });
  const made = await here("tokens", "create", "ada", "--role", "admin", "--totp");
  assert.equal(made.code, 0, made.stderr);
  assert.equal((await here("tokens", "create", "ADA")).code, 1);
  assert.equal((await here("tokens")).code, 0);
  assert.equal((await here("tokens", "revoke", "ada")).code, 0);
  const lines = (await auditLines(server.root)).slice(before.length);
  assert.deepEqual(
    lines.map(({ what, via, action, outcome }) => [what, via, action, outcome]),
    [
      ["token", "cli", "ops tokens create", undefined],
      ["outcome", "cli", "ops tokens create", "done"],
      ["token", "cli", "ops tokens create", undefined],
      ["outcome", "cli", "ops tokens create", "failed"],
      ["token", "cli", "ops tokens revoke", undefined],
      ["outcome", "cli", "ops tokens revoke", "done"],
    ],
  );
  assert.partialDeepStrictEqual(lines[0]?.params, { operands: ["ada"], role: "admin", switches: ["totp"] });
  const secret = /^secret +(\S+)$/m.exec(made.stderr)?.[1] ?? "";
  const text = (await chainFiles(server.root)).map((file) => readFileSync(file, "utf8")).join("");
  assert.ok(secret !== "" && !text.includes(secret) && !text.includes(made.stdout.trim().slice(4, 68)));
  assert.match(lines[0]?.from ?? "", /^\S+@\S+ \(process \d+\)$/);
});

test("CP-991 CP-996 where the audit of a stopped server cannot be written no token is made with --root", async (t) => {
  const server = await TestServer.start(t);
  await server.stop();
  rmSync(path.join(server.root, "audit.key"));
  const refused = await ops(["tokens", "create", "ada", "--root", server.root], { cwd: server.root, env: { OPS_SERVER: "" } });
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /audit/);
  assert.ok(!existsSync(path.join(server.root, "access.json")));
});
