import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { TestServer } from "../helpers/server.ts";
import { startSshd } from "../helpers/sshd.ts";
import { until } from "../helpers/temporary.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

async function setUp(t: TestContext, port: number) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  makeWorkspace(bucket.folder, { workers: [{ host: "127.0.0.1", ssh_port: port }] });
  const start = async (what: string, body: unknown = {}) => {
    const reply = await server.call("POST", `${bucket.path}/${what}`, { body });
    assert.deepEqual([reply.status, Object.keys(reply.body)], [202, ["run_id"]]);
    return reply.body.run_id as string;
  };
  assert.equal((await server.ended(bucket.path, await start("build"))).status, "succeeded");
  const known = path.join(bucket.folder, ".ssh", "known_hosts");
  return { server, bucket, start, known };
}

test("CP-023 CP-252 CP-256 trust is a run of its own kind, whose result tells each worker; force is its parameter", async (t) => {
  const sshd = await startSshd(t, ["ed25519"]);
  const { server, bucket, start, known } = await setUp(t, sshd.port);
  const trust = async (body?: unknown) => server.ended(bucket.path, await start("workers/trust", body));
  const outcome = (run: { result: { workers: { outcome: string }[] } }) => run.result.workers[0]?.outcome;
  const first = await trust();
  assert.deepEqual(
    [first.kind, first.status, first.params, outcome(first)],
    [...["worker_trust", "succeeded", { force: false }, "trusted"]],
  );
  const before = readFileSync(known, "utf8");
  await sshd.stop();
  sshd.newKeys(["ed25519"]);
  await sshd.run();
  const refused = await trust({ workers: ["127.0.0.1"], concurrency: 2 });
  assert.deepEqual(
    [refused.status, refused.error, outcome(refused)],
    [...["failed", "1 of 1 worker is not trusted: 127.0.0.1 (changed)", "changed"]],
  );
  assert.equal(readFileSync(known, "utf8"), before);
  const forced = await trust({ labels: ["worker"], force: true });
  assert.deepEqual([forced.status, outcome(forced)], ["succeeded", "replaced"]);
  assert.notEqual(readFileSync(known, "utf8"), before);
  const listed = await server.call("GET", `${bucket.path}/runs?kind=worker_trust`);
  assert.equal(listed.body.items.length, 3);
});

for (const [body, message] of [
  [{ workers: [] }, /^workers: expected at least 1/],
  [{ workers: ["127.0.0.1"], labels: ["worker"] }, /labels: excludes workers: give one of the two/],
  [{ concurrency: 0 }, /^concurrency: /],
  [{ generate_workers: true }, /^generate_workers: is not a known field/],
] as const)
  test(`trust with ${JSON.stringify(body)} is refused and starts nothing`, async (t) => {
    const server = await TestServer.start(t);
    const bucket = await server.createBucket();
    const reply = await server.call("POST", `${bucket.path}/workers/trust`, { body });
    assert.deepEqual([reply.status, reply.body.error], [400, "invalid_request"]);
    assert.match(reply.body.message, message);
    assert.deepEqual((await server.call("GET", `${bucket.path}/runs`)).body.items, []);
  });

test("an unknown worker is refused with the nearest one that is known", async (t) => {
  const { server, bucket } = await setUp(t, 1);
  const asked = { body: { workers: ["127.0.0.11"] } };
  const { status, body } = await server.call("POST", `${bucket.path}/workers/trust`, asked);
  assert.deepEqual(
    [status, body.error, body.message],
    [400, "unknown_name", 'in the catalog there is no worker "127.0.0.11"; did you mean "127.0.0.1"?'],
  );
});

test("CP-137 a cancelled trust leaves no ssh-keyscan behind and no key recorded", async (t) => {
  const sockets = new Set<Socket>();
  const silent = createServer((socket) => sockets.add(socket.on("error", () => {}))).listen(0, "127.0.0.1");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    silent.close();
  });
  await once(silent, "listening");
  const { port } = silent.address() as { port: number };
  const { server, bucket, start, known } = await setUp(t, port);
  const id = await start("workers/trust");
  await until("ssh-keyscan asks the silent host", () => sockets.size === 1);
  assert.equal(scanning(port).length, 1);
  assert.equal((await server.call("POST", `${bucket.path}/runs/${id}/cancel`, { body: {} })).status, 202);
  const run = await server.ended(bucket.path, id);
  assert.equal(run.status, "cancelled");
  assert.deepEqual(
    run.audit.map(({ action }: { action: string }) => action),
    ["start", "cancel"],
  );
  assert.deepEqual(scanning(port), []);
  assert.throws(() => readFileSync(known), { code: "ENOENT" });
});

/** The processes that ask that port for its keys. */
function scanning(port: number): string[] {
  const lines = readdirSync("/proc").flatMap((pid) => {
    try {
      return /^\d+$/.test(pid) ? [readFileSync(`/proc/${pid}/cmdline`, "latin1")] : [];
    } catch {
      return [];
    }
  });
  return lines.filter((line) => line.startsWith("ssh-keyscan\0") && line.includes(`\0${port}\0`));
}
