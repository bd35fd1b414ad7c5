import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { Parsed, Target } from "../../../lib/cli/base/flags.ts";
import { openClient } from "../../../lib/cli/remote/client.ts";
import { bucketNamed } from "../../../lib/cli/remote/remote-bucket.ts";
import { targetOf } from "../../../lib/cli/remote/target.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { LocalServer } from "../../../scripts/local-server.ts";
import { ops } from "../../helpers/command-line.ts";
import { TestServer, TOKEN } from "../../helpers/server.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

const HERE = "https://of-the-folder.example";

/** The words of a command line in a folder whose ops.conf has this text. */
function typed(t: TestContext, conf: string | undefined, values: Record<string, string> = {}, switches: string[] = []): Parsed {
  const dir = temporaryFolder(t);
  if (conf !== undefined) writeFileSync(path.join(dir, "ops.conf"), conf);
  return { operands: [], values: new Map(Object.entries({ "bucket-dir": dir, ...values })), switches: new Set(switches) };
}

/** The target of a command line in an environment with these variables. */
async function targetWith(input: Parsed, env: Record<string, string>): Promise<Target | undefined> {
  const outer = { ...process.env };
  Object.assign(process.env, { OPS_SERVER: "", OPS_BUCKET: "", ...env });
  try {
    return await targetOf(input);
  } finally {
    process.env = outer;
  }
}

const TABLE = `ssh_user = "agent"\n[server]\nurl = "${HERE}"\nbucket = "shop/live"\n`;

const chosen: [string, string | undefined, Record<string, string>, Record<string, string>, Partial<Target> | undefined][] = [
  ["nothing", undefined, {}, {}, undefined],
  ["an ops.conf without the table", 'ssh_user = "agent"\n', {}, { OPS_SERVE_TOKEN: "x" }, undefined],
  ["no ops.conf that is broken elsewhere", "ssh_user =\n", {}, {}, undefined],
  ["no table of another name", "[other]\nserver = 1\n", {}, {}, undefined],
  ["the table", TABLE, {}, {}, { address: HERE, bucket: "shop/live", fromFolder: true }],
  ["an inline table", `server = { url = "${HERE}" }\n`, {}, {}, { address: HERE, bucket: undefined, fromFolder: true }],
  [
    "OPS_SERVER before the table",
    TABLE,
    {},
    { OPS_SERVER: "https://e" },
    { address: "https://e", bucket: undefined, fromFolder: false },
  ],
  [
    "the flag before both",
    TABLE,
    { server: "https://f" },
    { OPS_SERVER: "https://e", OPS_BUCKET: "e" },
    { address: "https://f", bucket: "e", fromFolder: false },
  ],
  ["an empty OPS_SERVER", TABLE, {}, { OPS_SERVER: "", OPS_BUCKET: "" }, { address: HERE, bucket: "shop/live" }],
  ["--bucket before OPS_BUCKET", TABLE, { bucket: "f" }, { OPS_BUCKET: "e" }, { address: HERE, bucket: "f", fromFolder: true }],
  ["OPS_BUCKET before the table's", TABLE, {}, { OPS_BUCKET: "e" }, { address: HERE, bucket: "e", fromFolder: true }],
];

for (const [what, conf, values, env, expected] of chosen)
  test(`the server and the bucket come from ${what}`, async (t) => {
    const target = await targetWith(typed(t, conf, values), env);
    const found = target && Object.fromEntries(Object.keys(expected ?? {}).map((name) => [name, target[name as keyof Target]]));
    assert.deepEqual(found, expected);
  });

test("--local works here whatever names a server, and takes no flag that is for one", async (t) => {
  assert.equal(await targetWith(typed(t, TABLE, {}, ["local"]), { OPS_SERVER: "https://e", OPS_BUCKET: "e" }), undefined);
  for (const flag of ["server", "bucket", "token-file", "ca-file", "totp"])
    await assert.rejects(targetWith(typed(t, TABLE, { [flag]: "x" }, ["local"]), {}), {
      code: "usage",
      message: `--local does not go with --${flag}`,
    });
});

test("ops push takes one address", async () => {
  const { code, stderr } = await ops(["push", HERE, "--server", HERE]);
  assert.deepEqual([code, stderr], [2, "ops: give base_url or --server, not both\n"]);
});

test("--server without an address means a server of this machine, whatever names another one", async (t) => {
  assert.equal(await targetWith(typed(t, TABLE, {}, ["server"]), { OPS_SERVER: "https://e" }), undefined);
});

test("a bucket, a token, a certificate or a code without a server is refused", async (t) => {
  for (const flag of ["bucket", "token-file", "ca-file", "totp"])
    await assert.rejects(targetWith(typed(t, undefined, { [flag]: "x" }), {}), {
      code: "usage",
      message: `--${flag} is given without a server: give --server, or set OPS_SERVER`,
    });
  await assert.rejects(targetWith(typed(t, ""), { OPS_BUCKET: "x" }), { code: "usage", message: /^OPS_BUCKET is set without/ });
});

for (const [what, conf, message] of [
  ["no url", "[server]\nbucket = 'a'\n", /Cannot use the table \[server\] of .*ops\.conf: .*url is missing$/],
  ["another type", "[server]\nurl = 7\n", /table \[server\] of .*ops\.conf: url expected/],
  ["no TOML", "[server]\nurl =\n", /Cannot use the table \[server\] of .*ops\.conf: /],
] as const)
  test(`a table [server] with ${what} is one sentence, and no command runs`, async (t) => {
    await assert.rejects(targetWith(typed(t, conf), {}), { code: "usage", message });
  });

test("ca_file of the table is relative to its folder", async (t) => {
  const input = typed(t, `${TABLE}ca_file = "tls/ca.crt"\n`);
  assert.equal((await targetWith(input, {}))?.folderCa, path.join(String(input.values.get("bucket-dir")), "tls/ca.crt"));
});

test("a bucket is named by id, name or project/name; what is ambiguous lists the candidates", async (t) => {
  const server = await TestServer.start(t);
  const client = await openClient(new URL(server.url), { token: TOKEN });
  const named = (given?: string) => bucketNamed(client, given);
  await assert.rejects(named(), { code: "usage", message: "the server has no bucket: make one with `ops buckets create`" });
  const { id } = await server.createBucket({ project: "shop", name: "live" });
  assert.equal(await named(), id, "the only one needs no name");
  const { id: other } = await server.createBucket({ project: "blog", name: "live" });
  const { id: third } = await server.createBucket({ project: "blog", name: "test" });
  assert.deepEqual(
    [await named(id), await named(id.toUpperCase()), await named("shop/live"), await named("blog/live"), await named("test")],
    [id, id, id, other, third],
  );
  assert.deepEqual([await named(id.slice(0, 8)), await named(other.slice(-8).toUpperCase())], [id, other], "ends of ids");
  const candidates = (...all: [string, string][]) => all.map(([label, one]) => `\n  ${label}  ${one}`).sort();
  const sentences = async (given?: string) => {
    const error = await named(given).then(assert.fail, (refusal: Error & { code: string }) => refusal);
    const [head, ...rest] = error.message.split(/(?=\n)/);
    return [error.code, head, rest.sort()];
  };
  const live = candidates(["shop/live", id], ["blog/live", other]);
  assert.deepEqual(await sentences("live"), [
    "usage",
    'the name "live" is that of 2 buckets: name it by project/name or id:',
    live,
  ]);
  const all = candidates(["shop/live", id], ["blog/live", other], ["blog/test", third]);
  assert.deepEqual(await sentences(), ["usage", "no bucket is named: name it with --bucket or OPS_BUCKET:", all]);
  assert.deepEqual(await sentences("shop/test"), [
    "bucket_not_found",
    'the server has no bucket "shop/test"; `ops buckets list` shows them',
    [],
  ]);
  const { id: twin } = await server.createBucket({ project: "blog", name: "test" });
  assert.deepEqual(await sentences("blog/test"), [
    "usage",
    'the name "blog/test" is that of 2 buckets: name it by id:',
    candidates(["blog/test", third], ["blog/test", twin]),
  ]);
});

/** A program that answers each request as a server with one bucket and notes what came with it. */
async function listener(t: TestContext): Promise<{ url: string; seen: IncomingHttpHeaders[] }> {
  const seen: IncomingHttpHeaders[] = [];
  const server = createServer((request, response) => {
    seen.push(request.headers);
    response.writeHead(200, { "Content-Type": "application/json", "Set-Cookie": "ops_server_session=of-this-address; Path=/" });
    const [id, at] = [uuidV7(), "2099-01-01T00:00:00Z"];
    const info = { project: "p", name: "n", bucket_id: id, built_at: null, update_seq: 0, schema_version: 1 };
    const counts = { workers: 0, jobs: 0, allocations: 0 };
    response.end(JSON.stringify({ expires_at: at, items: [{ id, project: "p", name: "n" }], ...info, ...counts }));
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  t.after(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

test("an address of an ops.conf never gets a token: only the session that ops login has opened for that very address", async (t) => {
  const { url, seen } = await listener(t);
  const cwd = temporaryFolder(t);
  const tokenFile = path.join(cwd, "token");
  writeFileSync(tokenFile, TOKEN, { mode: 0o600 });
  const conf = (address: string) => writeFileSync(path.join(cwd, "ops.conf"), `[server]\nurl = "${address}"\n`);
  const env = { XDG_STATE_HOME: path.join(cwd, "state"), OPS_SERVE_TOKEN: TOKEN, OPS_SERVER: "", OPS_BUCKET: "" };
  const run = (...args: string[]) => ops(args, { cwd, env });
  conf(url);
  const withVariable = await run("info");
  assert.deepEqual(
    [withVariable.code, /is named by ops\.conf only, and a token goes to no/.test(withVariable.stderr)],
    [2, true],
  );
  const withFile = await run("info", "--token-file", tokenFile);
  assert.deepEqual([withFile.code, /--token-file goes with --server or OPS_SERVER/.test(withFile.stderr)], [2, true]);
  assert.deepEqual([(await run("push")).code, (await run("login")).code, seen.length], [2, 2, 0]);
  // A session with another address of the same host is none with this one.
  assert.equal((await run("login", `${url}/other`)).code, 0);
  assert.equal((await run("info")).code, 2);
  assert.equal(seen.length, 1);
  assert.equal((await run("login", url)).code, 0);
  assert.equal(seen.at(-1)?.authorization, `Bearer ${TOKEN}`, "an address that was typed gets it");
  assert.equal((await run("info")).code, 0);
  assert.equal(seen.length, 4);
  for (const { authorization, cookie } of seen.slice(2))
    assert.deepEqual([authorization, cookie], [undefined, "ops_server_session=of-this-address"]);
  assert.equal((await run("info", "--server", url)).code, 0);
  assert.equal(seen.at(-1)?.authorization, `Bearer ${TOKEN}`);
});

test("commands and hooks, here and of a server, see no server, no bucket and no token", async (t) => {
  const folder = temporaryFolder(t);
  const [here, source] = [path.join(folder, "here"), path.join(folder, "source")];
  const spec = {
    jobs: { web: { version: "1.0.0", selectors: ["worker"], hooks: { look: { executed_on: ["cli"] } } } },
    workers: [{ host: "127.0.0.1", connection: "local", root: path.join(folder, "worker") }],
    files: { "workspace/jobs/web/_hooks/look.py": "import os\nprint(sorted(os.environ))\n" },
  };
  const secrets = {
    ...{ OPS_SERVER: "https://secret.example", OPS_BUCKET: "secret-bucket", OPS_SERVE_TOKEN: "secret-token-of-the-test" },
    OPS_SERVE_ADDRESS: "secret",
  };
  for (const dir of [here, source]) makeWorkspace(dir, spec);
  const server = await LocalServer.start(path.join(folder, "root"), { token: secrets.OPS_SERVE_TOKEN, env: secrets });
  t.after(() => server.stop("SIGKILL"));
  const bucket = await server.createBucket();
  assert.equal((await server.push(bucket, source)).code, 0);
  const places = [
    ["--local", "--bucket-dir", here],
    ["--server", server.url, "--bucket", bucket],
  ];
  assert.equal((await ops(["init", "--bucket-dir", here])).code, 0);
  assert.equal((await ops(["build", "--local", "--bucket-dir", here], { env: secrets })).code, 0);
  for (const place of places)
    for (const command of [
      ["run_command", "env"],
      ["hooks", "look"],
    ]) {
      const { code, stdout, stderr } = await ops([...command, ...place], { env: secrets });
      assert.equal(code, 0, stderr);
      assert.match(stdout, /PATH/);
      assert.doesNotMatch(stdout, /secret|\bOPS_(SERVE|BUCKET\b)/);
    }
});

test("a command that works only here is refused where a server is named", async (t) => {
  const { code, stderr } = await ops(["kv", "export", "--bucket-dir", temporaryFolder(t)], { env: { OPS_SERVER: HERE } });
  const told = "ops: ops kv export works only here: give --local to mean the bucket of this folder\n";
  assert.deepEqual([code, stderr], [2, told]);
});
