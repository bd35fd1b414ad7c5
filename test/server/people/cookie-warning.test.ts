import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { networkInterfaces } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { build } from "../../../lib/operation/build/build.ts";
import { cookieWarning } from "../../../lib/server/people/cookie-warning.ts";
import { TestServer } from "../../helpers/server.ts";
import { archiveBytes } from "../../helpers/sources.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const WARNING =
  /^warning: services of worker (\S+) in bucket (\S+) run on this machine, .* a name of its own, such as ops\.localhost/;

/** What a server says at its start over a bucket with this worker. */
async function saidFor(t: Parameters<typeof TestServer.start>[0], worker: object): Promise<{ id: string; lines: string[] }> {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const body = await archiveBytes({ "workspace/workers.json": JSON.stringify([worker]) });
  const headers = { "content-type": "application/x-tar" };
  const { body: started } = await server.call("POST", `${bucket.path}/push`, { body, headers });
  const run = await server.ended(bucket.path, started.run_id);
  assert.equal(run.status, "succeeded", run.error);
  const damaged = await server.createBucket();
  await server.stop();
  rmSync(path.join(damaged.folder, "data", "ops.db"));
  server.lines.length = 0;
  await server.open();
  return { id: bucket.id, lines: server.lines.filter((line) => line.startsWith("warning:")) };
}

for (const worker of [{ host: "build-host", connection: "local" }, { host: "127.0.0.1" }])
  test(`CP-511 a server with the worker ${JSON.stringify(worker)} warns that its cookie reaches every port`, async (t) => {
    const { id, lines } = await saidFor(t, worker);
    assert.equal(lines.length, 1, lines.join("\n"));
    const [, host, bucket] = WARNING.exec(lines[0] ?? "") ?? [];
    assert.deepEqual([host, bucket], [worker.host, id]);
  });

test("CP-511 a server whose workers are elsewhere says nothing of it", async (t) => {
  assert.deepEqual((await saidFor(t, { host: "192.0.2.7" })).lines, []);
});

test("CP-511 the warning names the first worker of the first bucket that is on this machine, by connection, name or address", async (t) => {
  const own = Object.values(networkInterfaces()).flatMap((found) => (found ?? []).map(({ address }) => address));
  const { dir, context } = await makeBucket(t, { workers: ["192.0.2.7"], jobs: {} });
  await build(context(), {});
  const [root, elsewhere] = [path.dirname(dir), path.basename(dir)];
  assert.deepEqual([await cookieWarning(root, []), await cookieWarning(root, [elsewhere, "none"])], [undefined, undefined]);
  for (const worker of [{ host: "localhost" }, { host: own[0] }, { host: "somewhere", connection: "local" }]) {
    const bucket = await makeBucket(t, { workers: ["192.0.2.7", worker, { host: "other", connection: "local" }], jobs: {} });
    await build(bucket.context(), {});
    const warning = await cookieWarning("/", ["none", dir.slice(1), bucket.dir.slice(1)]);
    assert.ok(
      warning?.startsWith(`warning: services of worker ${worker.host} in bucket ${bucket.dir.slice(1)} run on this machine, `),
      warning,
    );
  }
});
