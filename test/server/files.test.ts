import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { linkSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { Launcher } from "../../lib/core/spawn.ts";
import { exchangeText } from "../helpers/http.ts";
import { TestServer, TOKEN } from "../helpers/server.ts";
import { readTree, writeTree } from "../helpers/sources.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

const SOURCE: Readonly<Record<string, string>> = {
  "ops.conf": 'ssh_user = "agent"\n',
  "workspace/workers.json": '[{"host": "10.0.0.1"}]\n',
  "workspace/disabled.json": '{"workers": ["10.0.0.1"]}\n',
  "workspace/jobs/web/bin/start": "#!/bin/sh\n",
  "workspace/jobs/web/data/logs/x": "in a job, data and logs are names like any other\n",
  "workspace/blank & ünïcödé %41\\back": "odd name\n",
  "templates/web/manifest.json": "{}\n",
  "templates/web/bin/run": "#!/bin/sh\n",
  "templates/empty/": "",
};

async function setUp(t: TestContext, source: Readonly<Record<string, string>> = SOURCE) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  writeTree(bucket.folder, source);
  const get = (rest: string, headers: Record<string, string> = {}) => server.call("GET", `${bucket.path}/${rest}`, { headers });
  return { server, bucket, get };
}

function encoded(name: string): string {
  return name.split("/").map(encodeURIComponent).join("/");
}

test("CP-241 CP-242 CP-243 T-13 each file of the source is read as it is, with a version", async (t) => {
  const { get, bucket } = await setUp(t);
  for (const name of Object.keys(SOURCE).filter((one) => !one.endsWith("/"))) {
    const { status, text, headers } = await get(`files/${encoded(name)}`);
    assert.deepEqual([status, text], [200, readFileSync(path.join(bucket.folder, name), "utf8")], name);
    assert.equal(headers.get("content-type"), "application/octet-stream");
    assert.equal((await get(`files/${encoded(name)}`, { "if-none-match": headers.get("etag") ?? "" })).status, 304);
  }
  const part = await get("files/ops.conf", { range: "bytes=4-7" });
  assert.deepEqual([part.status, part.text], [206, SOURCE["ops.conf"]?.slice(4, 8)]);
});

test("the files of the source are listed by path with size, mode and sum, in pages", async (t) => {
  const { get } = await setUp(t);
  const names = Object.keys(SOURCE).filter((one) => !one.endsWith("/"));
  const all = (await get("files")).body;
  assert.deepEqual(
    all.items.map((one: { path: string }) => one.path),
    names.toSorted(),
  );
  for (const { path: name, size_bytes, mode, sha256 } of all.items) {
    const content = SOURCE[name] ?? "";
    assert.deepEqual(
      [size_bytes, mode, sha256],
      [Buffer.byteLength(content), name.includes("/bin/") ? "0755" : "0644", createHash("sha256").update(content).digest("hex")],
    );
  }
  const paged: string[] = [];
  let cursor: string | null = "";
  do {
    const next: { items: { path: string }[]; next_cursor: string | null } = (
      await get(`files?limit=3${cursor && `&cursor=${encodeURIComponent(cursor)}`}`)
    ).body;
    paged.push(...next.items.map((one) => one.path));
    cursor = next.next_cursor;
  } while (cursor !== null);
  assert.deepEqual(paged, names.toSorted());
});

test("a bucket that was never pushed to has no files, templates and workers", async (t) => {
  const { get } = await setUp(t, {});
  for (const rest of ["files", "templates", "workers"]) assert.deepEqual((await get(rest)).body.items, []);
  assert.equal((await get("workspace/disabled.json")).body.error, "file_not_found");
});

for (const [id, names] of [
  ["CP-093", ["workspace", "workspace/jobs", "templates", "workspace/"]],
  ["CP-097", ["data/ops.db", "workspace/../data/ops.db", "workspace/%2e%2e/data/ops.db", "/data/ops.db"]],
  ["CP-098", ["logs/ops.log", "workspace/../logs/ops.log", "workspace/%2E%2E/logs/ops.log", "//logs/ops.log"]],
  ["CP-099", ["secrets/kv.key", "workspace/../secrets/kv.key", "workspace%2f..%2fsecrets/kv.key", "./secrets/kv.key"]],
  ["CP-100", [".ssh/known_hosts", "templates/../.ssh/known_hosts", "templates/.%2e/.ssh/known_hosts"]],
  ["CP-101", ["tmp/x", "workspace/../tmp/x", "workspace/%2e./tmp/x"]],
  [
    "CP-102 T-12",
    ["bucket.json", ".ops/revisions.json", "ops.conf/x", "ops.conf%00", "ops.conf%20", "OPS.CONF", "Workspace/workers.json"],
  ],
  [
    "CP-102 T-58",
    [
      "",
      "workspace//workers.json",
      "workspace/workers.json%00.txt",
      "workspace/%ff",
      "workspace/%c0%ae%c0%ae/data/ops.db",
      "workspace/%252e%252e/data/ops.db",
      "workspace\\..\\data\\ops.db",
      "workspace/\u2025/data/ops.db",
      `workspace/${"x".repeat(300)}`,
      `workspace/${"x/".repeat(3000)}x`,
      "workspace/none",
      "workspace/workers.json/x",
    ],
  ],
] as const)
  test(`${id} ${names[0] || "an empty path"} and the like are refused`, async (t) => {
    const { server, bucket } = await setUp(t);
    for (const folder of ["data", "logs", "secrets", ".ssh", "tmp", ".ops"])
      for (const name of ["ops.db", "ops.log", "kv.key", "known_hosts", "x", "revisions.json"])
        writeFileSync(path.join(bucket.folder, folder, name), "secret", { flag: "a" });
    const { port } = new URL(server.url);
    for (const name of names) {
      // Sent as it is: an HTTP client would tidy the path up.
      const target = `${bucket.path}/files/${encodeURI(name).replaceAll("%25", "%")}`;
      const head = `GET ${target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${TOKEN}\r\nConnection: close\r\n\r\n`;
      const text = await exchangeText(t, Number(port), head);
      assert.match(text, /^HTTP\/1\.1 404 /, name);
      assert.match(text, /"error":"(file_)?not_found"/, name);
    }
  });

test("CP-094 a FIFO, a socket and a device are refused at once", async (t) => {
  const { get, bucket } = await setUp(t);
  const workspace = path.join(bucket.folder, "workspace");
  await new Launcher(process.env).run(["mkfifo", path.join(workspace, "fifo")]);
  const socket = createServer().listen(path.join(workspace, "socket"));
  t.after(() => socket.close());
  symlinkSync("/dev/zero", path.join(workspace, "zero"));
  for (const name of ["fifo", "socket", "zero"])
    assert.equal((await get(`files/workspace/${name}`)).body.error, "file_not_found", name);
  assert.doesNotMatch((await get("files")).text, /fifo|socket|zero/);
});

test("CP-095 CP-096 a symlink is refused as a file and on the way to one, wherever it leads", async (t) => {
  const { get, bucket } = await setUp(t);
  const at = (...parts: string[]) => path.join(bucket.folder, ...parts);
  symlinkSync("/etc/passwd", at("workspace", "outside"));
  symlinkSync("workers.json", at("workspace", "inside"));
  symlinkSync("../secrets", at("workspace", "secrets"));
  symlinkSync("jobs", at("workspace", "other"));
  symlinkSync("../../workspace", at("templates", "web", "up"));
  for (const name of [
    "workspace/outside",
    "workspace/inside",
    "workspace/secrets/kv.key",
    "workspace/other/web/bin/start",
    "templates/web/up/workers.json",
  ])
    assert.equal((await get(`files/${name}`)).body.error, "file_not_found", name);
  assert.doesNotMatch((await get("files?limit=500")).text, /outside|inside|secrets|other|up\//);
  assert.doesNotMatch((await get("templates")).text, /up\//);
  rmSync(at("workspace"), { recursive: true });
  symlinkSync("secrets", at("workspace"));
  assert.equal((await get("files/workspace/kv.key")).body.error, "file_not_found");
  assert.doesNotMatch((await get("files")).text, /kv\.key/);
});

test("T-83 CP-096 a folder that becomes a symlink during the request never leads outside", async (t) => {
  const { get, bucket } = await setUp(t, { "workspace/d/kv.key": "of the source\n" });
  const at = (...parts: string[]) => path.join(bucket.folder, ...parts);
  symlinkSync("../secrets", at("workspace", "link"));
  const swap = () => {
    renameSync(at("workspace", "d"), at("workspace", "real"));
    renameSync(at("workspace", "link"), at("workspace", "d"));
    renameSync(at("workspace", "d"), at("workspace", "link"));
    renameSync(at("workspace", "real"), at("workspace", "d"));
  };
  let swapping = true;
  const swaps = (async () => {
    while (swapping) {
      swap();
      await new Promise(setImmediate);
    }
  })();
  const seen = new Set<string>();
  for (let round = 0; round < 150; round++) {
    const { status, text } = await get("files/workspace/d/kv.key");
    seen.add(status === 200 ? text : String(status));
    assert.doesNotMatch((await get("files")).text, /link/);
  }
  swapping = false;
  await swaps;
  assert.deepEqual(
    [...seen].filter((one) => one !== "404" && one !== "of the source\n"),
    [],
  );
});

test("a hard link is a file like any other", async (t) => {
  const { get, bucket } = await setUp(t);
  const at = (name: string) => path.join(bucket.folder, "workspace", name);
  linkSync(at("workers.json"), at("same"));
  assert.equal((await get("files/workspace/same")).text, SOURCE["workspace/workers.json"]);
});

test("CP-084 CP-085 CP-086 CP-087 CP-088 CP-109 T-20 nothing of the source can be changed by these paths", async (t) => {
  const { server, bucket } = await setUp(t);
  const before = readTree(bucket.folder);
  for (const rest of [
    ...["files/ops.conf", "files/workspace/x", "files/templates/x", "files", "templates", "templates/web"],
    ...["workspace/disabled.json", "workers", "jobs", "settings/maand", "settings/bucket"],
    "settings/job_resources/default",
  ])
    for (const method of ["PUT", "POST", "PATCH", "DELETE"]) {
      const { status } = await server.call(method, `${bucket.path}/${rest}`, { body: {} });
      assert.ok(status === 405 || status === 404, `${method} ${rest}: ${status}`);
    }
  assert.deepEqual(readTree(bucket.folder), before);
});

test("CP-244 each folder of templates/ is a template with its files", async (t) => {
  const { get } = await setUp(t);
  const { body } = await get("templates");
  assert.deepEqual(body, {
    items: [
      { name: "empty", files: [] },
      {
        name: "web",
        files: [
          { path: "bin/run", size_bytes: 10, mode: "0755" },
          { path: "manifest.json", size_bytes: 3, mode: "0644" },
        ],
      },
    ],
    next_cursor: null,
  });
  const first = (await get("templates?limit=1")).body;
  assert.deepEqual([first.items[0].name, first.next_cursor], ["empty", "empty"]);
  assert.equal((await get("templates?limit=1&cursor=empty")).body.items[0].name, "web");
});

test("CP-245 disabled.json is answered byte for byte, and is a file_not_found where there is none", async (t) => {
  const { get, bucket } = await setUp(t);
  const { text, headers } = await get("workspace/disabled.json");
  assert.deepEqual([text, headers.get("content-type")], [SOURCE["workspace/disabled.json"], "application/json"]);
  assert.ok(headers.has("etag"));
  rmSync(path.join(bucket.folder, "workspace", "disabled.json"));
  const none = await get("workspace/disabled.json");
  assert.deepEqual([none.status, none.body.error], [404, "file_not_found"]);
});

test("CP-279 the files of a job are those that were built, whatever the workspace holds since", async (t) => {
  const { server, bucket, get } = await setUp(t, {});
  makeWorkspace(bucket.folder, {
    workers: ["10.0.0.1"],
    jobs: { web: { version: "1.0.0", selectors: ["worker"] } },
    files: { "workspace/jobs/web/conf/a.txt": "as built\n", "workspace/jobs/web/b.txt": "b\n" },
  });
  const { body } = await server.call("POST", `${bucket.path}/build`);
  assert.equal((await server.ended(bucket.path, body.run_id)).status, "succeeded");
  rmSync(path.join(bucket.folder, "workspace"), { recursive: true });
  const { items } = (await get("jobs/web/files")).body;
  const listed = items.find((one: { path: string }) => one.path === "conf/a.txt");
  const sha256 = createHash("sha256").update("as built\n").digest("hex");
  assert.deepEqual(listed, { path: "conf/a.txt", size_bytes: 9, mode: "0644", sha256 });
  assert.ok(items.some((one: { path: string }) => one.path === "manifest.json"));
  const first = (await get("jobs/web/files?limit=1")).body;
  const rest = (await get(`jobs/web/files?cursor=${encodeURIComponent(first.next_cursor)}`)).body;
  assert.deepEqual([...first.items, ...rest.items], items);
  const { text, headers } = await get("jobs/web/files/conf/a.txt");
  assert.deepEqual([text, headers.get("etag")], ["as built\n", `"${sha256}"`]);
  assert.equal((await get("jobs/web/files/conf/a.txt", { range: "bytes=3-" })).text, "built\n");
  assert.deepEqual((await get("jobs/WEB/files")).body.items, items, "names of jobs compare without case");
  assert.equal((await get("jobs/Web/files/conf/a.txt")).text, text);
  for (const wrong of ["conf", "none", "../web/b.txt", "%2e%2e/b.txt", "conf%2fa.txt", "conf//a.txt", "b.txt%00"])
    assert.equal((await get(`jobs/web/files/${wrong}`)).status, 404, wrong);
  assert.equal((await get("jobs/none/files")).body.error, "not_found");
  assert.equal((await get("jobs/none/files/b.txt")).body.error, "file_not_found");
});

test("CP-279 CP-352 a large file of a job is read over HTTP too, whole and in part", async (t) => {
  const { server, bucket, get } = await setUp(t, {});
  const text = "0123456789".repeat(200_000);
  makeWorkspace(bucket.folder, {
    workers: ["10.0.0.1"],
    jobs: { web: { version: "1.0.0", selectors: ["worker"] } },
    files: { "workspace/jobs/web/large": text },
  });
  const { body } = await server.call("POST", `${bucket.path}/build`);
  assert.equal((await server.ended(bucket.path, body.run_id)).status, "succeeded");
  rmSync(path.join(bucket.folder, "workspace"), { recursive: true });
  const { items } = (await get("jobs/web/files")).body;
  const sha256 = createHash("sha256").update(text).digest("hex");
  const listed = { path: "large", size_bytes: text.length, mode: "0644", sha256 };
  assert.deepEqual(
    items.find((one: { path: string }) => one.path === "large"),
    listed,
  );
  const whole = await get("jobs/web/files/large");
  assert.deepEqual([whole.status, whole.text === text, whole.headers.get("etag")], [200, true, `"${sha256}"`]);
  const part = await get("jobs/web/files/large", { range: "bytes=1500003-1500005" });
  assert.deepEqual([part.status, part.text], [206, "345"]);
  assert.equal((await get("jobs/web/files/large", { "if-none-match": `"${sha256}"` })).status, 304);
  rmSync(path.join(bucket.folder, "data/contents", sha256));
  assert.equal((await get("jobs/web/files/large")).body.error, "file_not_found");
});
