import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { TestServer } from "../helpers/server.ts";
import { writeTree } from "../helpers/sources.ts";

async function setUp(t: TestContext, source: Record<string, string>) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  writeTree(bucket.folder, source);
  return async (rest: string) => await server.call("GET", `${bucket.path}/${rest}`);
}

test("CP-238 CP-239 CP-240 the settings are shown as text and as values", async (t) => {
  const files = {
    "ops.conf": 'ssh_user = "agent"\nssh_port = 2222\nssh_options = { Compression = "yes" }\n',
    "workspace/bucket.conf": "port_min = 31000\nratio = 1.50\nname = 'x'\n",
    "workspace/bucket.jobs.conf": "[web]\nmemory = 64\n",
    "workspace/bucket.jobs.live.conf": "[web]\nmemory = 128\n",
  };
  const get = await setUp(t, files);
  for (const [rest, path, values] of [
    ["maand", "ops.conf", { ssh_user: "agent", ssh_port: 2222, ssh_options: { Compression: "yes" } }],
    ["bucket", "workspace/bucket.conf", { port_min: 31000, ratio: 1.5, name: "x" }],
    ["job_resources/default", "workspace/bucket.jobs.conf", { web: { memory: 64 } }],
    ["job_resources/live", "workspace/bucket.jobs.live.conf", { web: { memory: 128 } }],
  ] as const) {
    const { status, body } = await get(`settings/${rest}`);
    assert.equal(status, 200);
    assert.deepEqual(body, { path, content: files[path], values, problem: null });
  }
});

test("settings that nobody wrote are empty, a selector that nobody has is not there", async (t) => {
  const get = await setUp(t, {});
  for (const rest of ["maand", "bucket", "job_resources/default"]) {
    const { content, values, problem } = (await get(`settings/${rest}`)).body;
    assert.deepEqual([content, values, problem], ["", {}, null]);
  }
  for (const selector of ["live", "x".repeat(300), "%2e%2e", "..%2f..%2fsecrets"]) {
    const { status, body } = await get(`settings/job_resources/${selector}`);
    assert.equal(status, 404, selector);
    assert.match(body.error, /^(file_)?not_found$/);
  }
});

for (const [file, rest, content, problem] of [
  ["ops.conf", "maand", "ssh_port = ", /^ops\.conf: .*line 1/],
  ["ops.conf", "maand", 'ssh_port = "x"\n', /^ops\.conf: ssh_port: expected an integer/],
  ["workspace/bucket.conf", "bucket", "port_min = 9\nport_max = 1\n", /^workspace\/bucket\.conf: port_min/],
  ["workspace/bucket.conf", "bucket", "a = [1]\n", /^workspace\/bucket\.conf: a: expected text/],
  ["workspace/bucket.jobs.conf", "job_resources/default", "web = 1\n", /^workspace\/bucket\.jobs\.conf: web: /],
  ["workspace/bucket.conf", "bucket", `a = "${"x".repeat(1024 * 1024)}"`, /more than 1048576 bytes/],
] as const)
  test(`a settings file with a mistake is shown with what is wrong (${problem})`, async (t) => {
    const get = await setUp(t, { [file]: content });
    const { body } = await get(`settings/${rest}`);
    assert.deepEqual([body.path, body.values, content.startsWith(body.content.slice(0, 1000))], [file, null, true]);
    assert.match(body.problem, problem);
  });

test("values that JSON has no form for are text", async (t) => {
  const get = await setUp(t, { "workspace/bucket.jobs.conf": "[web]\na = inf\nb = 9223372036854775807\nc = -0.0\n" });
  const { values } = (await get("settings/job_resources/default")).body;
  assert.deepEqual([values.web.a, values.web.b], ["inf", "9223372036854775807"]);
});

test("CP-251 the workers are those of workers.json with the defaults of ops.conf, in pages", async (t) => {
  const get = await setUp(t, {
    "ops.conf": 'ssh_user = "deploy"\n',
    "workspace/workers.json": JSON.stringify([
      { host: "10.0.0.2", labels: ["db"], memory: "2 GB", tags: { Zone: "A" }, ssh_port: 2222 },
      { host: "10.0.0.1", connection: "local", hostname: "one" },
    ]),
  });
  const { body } = await get("workers");
  const [first, second] = body.items;
  assert.deepEqual([body.problems, body.next_cursor], [[], null]);
  assert.deepEqual(
    [first.host, first.ssh_user, first.ssh_port, first.labels, first.memory_mb, first.tags],
    ["10.0.0.2", "deploy", 2222, ["db", "worker"], 2048, { zone: "a" }],
  );
  assert.deepEqual([second.host, second.connection, second.hostname, second.ssh_user], ["10.0.0.1", "local", "one", null]);
  const page = (await get("workers?limit=1")).body;
  assert.deepEqual([page.items, (await get(`workers?cursor=${page.next_cursor}`)).body.items], [[first], [second]]);
  assert.equal((await get("workers?cursor=x")).status, 400);
});

test("workers with a mistake are told by what is wrong", async (t) => {
  const get = await setUp(t, { "workspace/workers.json": '[{"host": ""}]', "ops.conf": "nonsense" });
  const { status, body } = await get("workers");
  assert.deepEqual([status, body.items], [200, []]);
  assert.deepEqual(
    body.problems.map(({ code }: { code: string }) => code),
    ["ErrInvalidOpsConf", "ErrInvalidWorkerJSON"],
  );
});
