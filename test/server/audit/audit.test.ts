import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import type { AuditLine } from "../../../lib/audit/line.ts";
import { verifyAudit } from "../../../lib/audit/verify.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import type { HttpRequest } from "../../../lib/http/message.ts";
import { createRecord } from "../../../lib/run/record.ts";
import { auditKindOf } from "../../../lib/server/audit/recorder.ts";
import { FoldedRefusals } from "../../../lib/server/audit/refusals.ts";
import { serverConfig } from "../../../lib/server/config.ts";
import { EARLIER_ROUTES } from "../../../lib/server/earlier/table.ts";
import { ROUTES } from "../../../lib/server/routes/table.ts";
import { auditBelow, auditLines, blockAudit, chainFiles } from "../../helpers/audit-log.ts";
import { TestServer } from "../../helpers/server.ts";
import { archiveBytes } from "../../helpers/sources.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

async function requireVerified(server: TestServer): Promise<void> {
  const { body } = await server.call("GET", "/api/audit/head");
  const { finding } = await verifyAudit(await chainFiles(server.root), { publicKey: body.public_key, head: body.hash });
  assert.equal(finding, null);
}

/** A bucket with a pushed source and its build. */
async function pushedBucket(server: TestServer) {
  const bucket = await server.createBucket();
  const source = {
    "workspace/workers.json": JSON.stringify([
      { host: "here", connection: "local", root: path.join(server.root, "..", "here"), labels: ["all"] },
    ]),
    "workspace/jobs/web/manifest.json": JSON.stringify({ version: "1.0.0", selectors: ["all"] }),
    "workspace/jobs/web/Makefile": "start stop:\n\ttrue\n",
  };
  const archive = await archiveBytes(source);
  const headers = { "content-type": "application/x-tar" };
  const { body } = await server.call("POST", `${bucket.path}/push`, { body: archive, headers });
  const run = await server.ended(bucket.path, body.run_id);
  assert.equal(run.status, "succeeded", run.error);
  return { ...bucket, archive };
}

test("CP-990 a start and a stop of the server, a sign-in and a change each have their lines, with who, from where and the outcome", async (t) => {
  const server = await TestServer.start(t);
  const signedIn = await server.call("POST", "/api/auth/session");
  const made = await server.call("POST", "/api/buckets", { body: { project: "shop", name: "live" } });
  await server.stop();
  const lines = await auditLines(server.root);
  assert.deepEqual(
    lines.map(({ what }) => what),
    ["server_start", "sign_in", "outcome", "change", "outcome", "server_stop"],
  );
  const [start, signIn, , change, outcome] = lines as [AuditLine, AuditLine, AuditLine, AuditLine, AuditLine];
  assert.equal((start.facts as { pid: number }).pid, process.pid);
  assert.deepEqual([signIn.who, signIn.via, signIn.role, signIn.from], ["root", "bearer", "root", "127.0.0.1"]);
  assert.equal(signIn.request, signedIn.headers.get("x-request-id"));
  assert.deepEqual([change.action, change.params], ["POST /api/buckets", { project: "shop", name: "live" }]);
  assert.deepEqual([outcome.of, outcome.outcome, outcome.code, outcome.request], [change.n, "done", 201, change.request]);
  assert.deepEqual(outcome.facts, { made: made.body.id });
  assert.match(server.auditLines.join("\n"), /^audit: public key [\w+/]{43}= \(SHA256:\S+\); it ends at line 1, [0-9a-f]{64}$/m);
});

test("every route that starts a run is a start, a change of keys or a restore in the audit", () => {
  const starts = [...ROUTES, ...EARLIER_ROUTES].filter(({ failures }) => failures?.includes("idempotency_mismatch"));
  assert.ok(starts.length > 40);
  const found = starts.filter((route) => !["start", "key", "restore"].includes(auditKindOf(route)));
  assert.deepEqual(
    found.map(({ path: place }) => place),
    [],
  );
});

test("a run has a line for its start, its cancel and its end, which agree with the audit of its record", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await pushedBucket(server);
  server.hold();
  const { body } = await server.call("POST", `${bucket.path}/build`, { body: {} });
  const cancelled = await server.call("POST", `${bucket.path}/runs/${body.run_id}/cancel`, { body: {} });
  server.release();
  const run = await server.ended(bucket.path, body.run_id);
  await until("the line about the end", async () =>
    (await auditLines(server.root)).some(({ what, run: id }) => what === "run_ended" && id === run.id),
  );
  const lines = (await auditLines(server.root)).filter((line) => line.run === run.id || line.request === run.audit[0].request_id);
  assert.deepEqual(
    lines.map(({ what }) => what),
    ["start", "outcome", "cancel", "outcome", "run_ended"],
  );
  const [start, outcome, cancel, , end] = lines as [AuditLine, AuditLine, AuditLine, AuditLine, AuditLine];
  assert.deepEqual([outcome.of, outcome.run, outcome.code], [start.n, run.id, 202]);
  assert.deepEqual([start.bucket, end.kind, end.outcome, end.who], [bucket.id, "build", "cancelled", "root"]);
  const ofRecord = run.audit.map(
    (entry: { action: string; request_id: string; actor: { name: string; address: string } }) => entry,
  );
  assert.deepEqual(
    [start, cancel].map(({ request, who, from }) => [request, who, from]),
    ofRecord.map(({ request_id, actor }: { request_id: string; actor: { name: string; address: string } }) => [
      request_id,
      actor.name,
      actor.address,
    ]),
  );
  assert.equal(cancel.request, cancelled.headers.get("x-request-id"));
});

test("CP-992 secrets are fingerprints, equal ones equal, commands are masked, and an upload has its size and its sum", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await pushedBucket(server);
  const secret = "correct horse battery staple";
  for (const key of ["a", "b"]) {
    const stored = await server.call("PUT", `${bucket.path}/secrets/jobs/web/${key}`, { body: { value: secret } });
    assert.equal(stored.status, 204, stored.text);
  }
  const { body } = await server.call("POST", `${bucket.path}/run_command`, {
    body: { command: `echo ${secret}`, workers: ["here"] },
  });
  await server.ended(bucket.path, body.run_id);
  await server.stop();
  const lines = await auditLines(server.root);
  const [first, second] = lines
    .filter(({ what }) => what === "key")
    .map(({ params }) => params as { value: string; key: string });
  assert.match(first?.value ?? "", /^hmac:[0-9a-f]{32}$/);
  assert.equal(second?.value, first?.value);
  assert.equal(first?.key, "a");
  const command = lines.find(({ action }) => action?.endsWith("/run_command"));
  assert.equal((command?.params as { command: string } | undefined)?.command, "echo ***");
  for (const file of await chainFiles(server.root)) assert.equal(readFileSync(file, "utf8").includes(secret), false);
  const push = lines.find(({ what, action }) => what === "outcome" && action?.endsWith("/push"));
  const sha256 = createHash("sha256").update(bucket.archive).digest("hex");
  assert.deepEqual(push?.facts, { upload: { size_bytes: bucket.archive.length, sha256 } });
});

test("CP-991 where a line cannot be written nothing is changed, but readings go on, and a cancel does and is written later", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await pushedBucket(server);
  server.hold();
  const { body } = await server.call("POST", `${bucket.path}/build`, { body: {} });
  const unblock = await blockAudit(server.root);
  for (const [method, target] of [
    ["POST", "/api/buckets"],
    ["POST", "/api/auth/session"],
    ["DELETE", bucket.path],
  ] as const) {
    const sent = target === "/api/buckets" ? { body: { project: "p", name: "other" } } : {};
    const refused = await server.call(method, target, sent);
    assert.deepEqual([refused.status, refused.body.error], [503, "audit_unavailable"], target);
  }
  assert.equal((await server.call("GET", "/api/buckets")).body.items.length, 1);
  assert.match((await server.call("GET", "/api/audit/head")).body?.message ?? "", /the audit cannot be written/);
  const cancelled = await server.call("POST", `${bucket.path}/runs/${body.run_id}/cancel`, { body: {} });
  assert.equal(cancelled.status, 202);
  server.release();
  unblock();
  assert.equal((await server.ended(bucket.path, body.run_id)).status, "cancelled");
  assert.equal((await server.call("POST", "/api/buckets", { body: { project: "p", name: "other" } })).status, 201);
  const lines = await auditLines(server.root);
  const cancel = lines.find(({ what }) => what === "cancel");
  assert.equal(cancel?.run, body.run_id);
  assert.match(cancel?.happened ?? "", /^2/);
  assert.equal(
    lines.some(({ what }) => what === "delete" || what === "sign_in"),
    false,
  );
  await requireVerified(server);
});

test("CP-993 requests that are refused are one line a minute and address, however many there are", async (t) => {
  const server = await TestServer.start(t);
  for (let index = 0; index < 30; index++) await server.call("GET", "/api/buckets", { authorization: "Bearer wrong" });
  await server.call("POST", "/api/buckets", { authorization: null, body: { project: "p", name: "n" } });
  await server.call("GET", "/api/buckets", { authorization: null, from: "127.0.0.2" });
  await server.stop();
  const refused = (await auditLines(server.root)).filter(({ what }) => what === "refused");
  assert.deepEqual(
    refused.map(({ from, count, facts }) => [from, count, (facts as { by_status: object }).by_status]),
    [
      ["127.0.0.1", 31, { 401: 21, 429: 10 }],
      ["127.0.0.2", 1, { 401: 1 }],
    ],
  );
});

test("CP-993 the line of refused requests tells who sent them: the one name, or the names where there are several", () => {
  const folded = new FoldedRefusals();
  const note = (peer: string, name?: string) => {
    const noted = { route: "/api/buckets", authenticated: undefined, name, refused: "the role viewer may not do this" };
    const request = { id: "request-1", method: "POST", peer, noted } as unknown as HttpRequest;
    folded.note({ request, status: 403 }, "2026-01-01T00:00:00.000Z");
  };
  for (const name of ["ada", "ada"]) note("127.0.0.1", name);
  for (const name of ["ada", "bob"]) note("127.0.0.2", name);
  note("127.0.0.3");
  assert.deepEqual(
    folded.take().map(({ from, who, facts }) => [from, who, (facts as { names?: string[] }).names]),
    [
      ["127.0.0.1", "ada", undefined],
      ["127.0.0.2", undefined, ["ada", "bob"]],
      ["127.0.0.3", undefined, undefined],
    ],
  );
  assert.deepEqual(folded.take(), []);
});

test("the audit is listed by page and filter, its files are downloaded byte for byte and verify, and its head names the key", async (t) => {
  const server = await TestServer.start(t);
  for (const name of ["a", "b", "c"]) await server.call("POST", "/api/buckets", { body: { project: "p", name } });
  const all = (await server.call("GET", "/api/audit?limit=500")).body.items as AuditLine[];
  assert.deepEqual(
    all.map(({ n }) => n),
    [7, 6, 5, 4, 3, 2, 1],
  );
  const page = (await server.call("GET", "/api/audit?limit=2&what=change")).body;
  assert.deepEqual(
    page.items.map(({ n }: AuditLine) => n),
    [6, 4],
  );
  const rest = (await server.call("GET", `/api/audit?limit=2&what=change&cursor=${page.next_cursor}`)).body;
  assert.deepEqual([rest.items.map(({ n }: AuditLine) => n), rest.next_cursor], [[2], null]);
  assert.equal((await server.call("GET", "/api/audit?what=change,nothing")).status, 400);
  assert.equal((await server.call("GET", "/api/audit?since=yesterday")).status, 400);
  const { items } = (await server.call("GET", "/api/audit/files")).body;
  const [{ name, size_bytes }] = items;
  const file = await server.call("GET", `/api/audit/files/${name}`);
  assert.equal(file.text, readFileSync(path.join(server.root, "audit", name), "utf8"));
  assert.equal(Buffer.byteLength(file.text), size_bytes);
  for (const wrong of ["1999-01.jsonl", "..%2Faudit.key", ".turns.db"])
    assert.equal((await server.call("GET", `/api/audit/files/${wrong}`)).status, 404, wrong);
  const { body: head } = await server.call("GET", "/api/audit/head");
  assert.deepEqual([head.n, head.hash, head.trouble], [7, all[0]?.hash, null]);
  await requireVerified(server);
});

test("a run that a server left behind has its end in the audit, once the next server has settled it", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  await server.stop();
  const id = uuidV7();
  const actor = { name: "root", address: "192.0.2.1", via: "bearer" } as const;
  const left = { id, bucket_id: bucket.id, origin: "server", kind: "build", params: {}, actor, requestId: null } as const;
  await createRecord(layoutOf(bucket.folder), left);
  await server.open();
  const endIn = (lines: AuditLine[]) => lines.find(({ what, run }) => what === "run_ended" && run === id);
  await until("the line about the end", async () => endIn(await auditLines(server.root)) !== undefined);
  const lines = await auditLines(server.root);
  const end = endIn(lines);
  assert.deepEqual([end?.outcome, end?.kind, end?.bucket], ["failed", "build", bucket.id]);
  assert.equal(lines.filter(({ what }) => what === "server_start").length, 2);
  await requireVerified(server);
});

test("a server whose audit is damaged starts, answers readings and changes nothing", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  await auditBelow(root).log.append({ what: "alive" });
  rmSync(path.join(root, "audit.key"));
  const server = await TestServer.start(t, { root });
  assert.equal((await server.call("GET", "/api/buckets")).status, 200);
  const { status, body } = await server.call("POST", "/api/buckets", { body: { project: "p", name: "n" } });
  assert.deepEqual([status, body.error], [503, "audit_unavailable"]);
  assert.match(body.message, /audit\.key is missing: put it back/);
  assert.match(server.lines.join("\n"), /the audit cannot be written, so that nothing can be changed/);
});

test("the command of --audit-sink gets the lines of a server from its start to its stop, and none is no command", async (t) => {
  const folder = temporaryFolder(t);
  const copy = path.join(folder, "copy.jsonl");
  const server = await TestServer.start(t, { auditSink: `cat > ${copy}` });
  await server.call("POST", "/api/buckets", { body: { project: "p", name: "n" } });
  const { body: head } = await server.call("GET", "/api/audit/head");
  await server.stop();
  const verdict = await verifyAudit([copy], { publicKey: head.public_key, head: head.hash });
  assert.deepEqual([verdict.ok, verdict.last?.n], [true, 4]);
  const flags = { root: path.join(folder, "root"), token: "long-enough-for-a-token", "audit-sink": " " };
  await assert.rejects(serverConfig(flags, {}), { code: "usage", message: /^--audit-sink is empty/ });
});

test("every field of a body that is a secret by its name is described as one", () => {
  const looksSecret = /private|passphrase|password|secret|^value$|^code$|^token$|^key$/i;
  const found = ROUTES.flatMap(({ body, method, path: place }) => {
    const properties = (body?.schema.properties ?? {}) as Record<string, { writeOnly?: boolean; type?: string }>;
    const open = Object.entries(properties).filter(
      ([name, schema]) => looksSecret.test(name) && schema.type === "string" && !schema.writeOnly,
    );
    return open.map(([name]) => `${method} ${place}: ${name}`);
  });
  assert.deepEqual(found, []);
});
