import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { cpSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { before, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { createBucket } from "../../../lib/bucket/source/root.ts";
import { initBucket } from "../../../lib/bucket/workspace/init.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { LocalServer, ops } from "../../../scripts/local-server.ts";
import { OLD_NODE } from "../../helpers/old-node.ts";
import { writeTree } from "../../helpers/sources.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { testBucketIn } from "../../helpers/workspace.ts";

const HOOK = (folder: string) => `import os, subprocess, time
child = subprocess.Popen(["sleep", "300"])
open("${folder}/begun", "w").close()
while not os.path.exists("${folder}/go"): time.sleep(0.02)
child.kill()
`;

const SOURCE = (folder: string) => ({
  "ops.conf": "",
  "workspace/workers.json": JSON.stringify([{ host: "127.0.0.1", connection: "local", root: path.join(folder, "worker") }]),
  "workspace/jobs/web/manifest.json": JSON.stringify({
    version: "1",
    selectors: ["worker"],
    hooks: { wait: { executed_on: ["pre_deploy"] } },
  }),
  "workspace/jobs/web/Makefile": "start stop restart reload status:\n\t@true\n",
  "workspace/jobs/web/_hooks/wait.py": HOOK(folder),
});

/** Where the hook says that it has begun, and is told to go on. */
const SHARED = temporaryFolder();
const [BEGUN, GO] = ["begun", "go"].map((name) => path.join(SHARED, name)) as [string, string];
/** The root of a server with one bucket, which is built. */
const ROOT = path.join(SHARED, "root");
let bucketId = "";

before(async () => {
  const initialise = async (dir: string, id: string) => void (await initBucket(dir, { bucketId: id, source: false }));
  bucketId = (await createBucket(ROOT, { project: "p", name: "n" }, initialise)).id;
  const layout = layoutOf(path.join(ROOT, bucketId));
  writeTree(layout.root, SOURCE(SHARED));
  const closing: (() => unknown)[] = [];
  const bucket = await testBucketIn({ after: (close) => closing.push(close as () => unknown) }, layout);
  await build(bucket.context(), {});
  for (const close of closing) await close();
});

/** A process, what it has started, and what these have started in turn. */
function treeOf(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean);
  return [pid, ...children.flatMap((child) => treeOf(Number(child)))];
}

/** The processes of this host whose environment or arguments hold a text. */
function holding(text: string): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) =>
      ["environ", "cmdline"].flatMap((part) => {
        try {
          const file = `/proc/${pid}/${part}`;
          return readFileSync(file).includes(text) ? [`${file}: ${readFileSync(`/proc/${pid}/cmdline`)}`] : [];
        } catch {
          // The process has gone, or belongs to another user.
          return [];
        }
      }),
    );
}

/** What a server is started with so that it gets the token in a certain way. */
type Giving = (token: string, folder: string) => { flags?: string[]; env: NodeJS.ProcessEnv };
const WAYS: Record<string, Giving> = {
  "in the environment": (token) => ({ env: { OPS_SERVE_TOKEN: token } }),
  "as --token": (token) => ({ flags: ["--token", token], env: { OPS_SERVE_TOKEN: undefined } }),
  "as --token=, beside another one in the environment": (token) => ({
    flags: [`--token=${token}`],
    env: { OPS_SERVE_TOKEN: `${token}-not` },
  }),
  "in a file": (token, folder) => {
    writeFileSync(path.join(folder, "token"), token, { mode: 0o600 });
    return { flags: ["--token-file", path.join(folder, "token")], env: { OPS_SERVE_TOKEN: undefined } };
  },
};

for (const [way, give] of Object.entries(WAYS))
  for (const [which, node] of [
    ["this Node", [process.execPath]],
    ["an older one", OLD_NODE],
  ] as const)
    test(`a token that came ${way} is in no process while hooks run, with ${which}`, async (t) => {
      const folder = temporaryFolder(t);
      const token = randomBytes(24).toString("base64url");
      const root = path.join(folder, "root");
      cpSync(ROOT, root, { recursive: true });
      for (const left of [BEGUN, GO, path.join(SHARED, "worker")]) rmSync(left, { recursive: true, force: true });
      const server = await LocalServer.start(root, { token, node, ...give(token, folder) });
      t.after(() => server.stop());
      await server.startRun(bucketId, "deploy");
      await until("the hook to begin", () => existsSync(BEGUN));
      // The server, the run, the shell of the hook, the hook, and what it has started.
      assert.ok(treeOf(server.process.pid as number).length >= 5);
      assert.deepEqual(holding(token), []);
      writeFileSync(GO, "");
      await server.stop();
      assert.deepEqual([server.process.exitCode, server.process.signalCode], [0, null]);
    });

test("a local command hands the token to nothing that it starts", async (t) => {
  const folder = temporaryFolder(t);
  const token = randomBytes(24).toString("base64url");
  writeTree(folder, SOURCE(folder));
  const env = { OPS_SERVE_TOKEN: token };
  const done = async (...args: string[]) => {
    const { code, stderr } = await ops([...args, "--bucket-dir", folder], { env });
    assert.equal(code, 0, stderr);
  };
  await done("init");
  await done("build");
  const deployed = done("deploy");
  await until("the hook to begin", () => existsSync(path.join(folder, "begun")));
  const found = holding(token);
  writeFileSync(path.join(folder, "go"), "");
  await deployed;
  assert.deepEqual(found, []);
});
