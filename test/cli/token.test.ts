import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { type TestContext, test } from "node:test";
import { ops, PROGRAM } from "../../scripts/local-server.ts";
import { OLD_NODE } from "../helpers/old-node.ts";
import { writeTree } from "../helpers/sources.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const HOOK = (folder: string) => `import os, subprocess, time
child = subprocess.Popen(["sleep", "300"])
open("${folder}/begun", "w").close()
while not os.path.exists("${folder}/go"): time.sleep(0.02)
child.kill()
`;

const SOURCE = (folder: string) => ({
  "ops.conf": "",
  "workspace/workers.json": JSON.stringify([
    { host: "127.0.0.1", connection: "local", root: path.join(folder, "worker") },
  ]),
  "workspace/jobs/web/manifest.json": JSON.stringify({
    ...{ version: "1", selectors: ["worker"], hooks: { wait: { executed_on: ["pre_deploy"] } } },
  }),
  "workspace/jobs/web/Makefile": "start stop restart reload status:\n\t@true\n",
  "workspace/jobs/web/_hooks/wait.py": HOOK(folder),
});

/** Starts a server and answers it with its address. */
async function startServer(
  t: TestContext,
  node: readonly string[],
  args: string[],
  env: Record<string, string>,
): Promise<{ child: ChildProcess; url: string }> {
  const [file, ...options] = node as [string, ...string[]];
  const child = spawn(file, [...options, PROGRAM, "server", "--addr", "127.0.0.1:0", ...args], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "ignore"],
  });
  t.after(() => child.kill("SIGTERM"));
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  const [line] = (await once(lines, "line")) as [string];
  return { child, url: line.replace("listening on ", "") };
}

/** A process and all that it has started, and they. */
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
          return readFileSync(file).includes(text)
            ? [`${file}: ${readFileSync(`/proc/${pid}/cmdline`)}`]
            : [];
        } catch {
          // It has gone, or is somebody else's.
          return [];
        }
      }),
    );
}

type Giving = (token: string, folder: string) => { args: string[]; env: Record<string, string> };
const WAYS: Record<string, Giving> = {
  "in the environment": (token) => ({ args: [], env: { OPS_SERVE_TOKEN: token } }),
  "as --token": (token) => ({ args: ["--token", token], env: {} }),
  "as --token=, beside another one in the environment": (token) => ({
    args: [`--token=${token}`],
    env: { OPS_SERVE_TOKEN: `${token}-not` },
  }),
  "in a file": (token, folder) => {
    writeFileSync(path.join(folder, "token"), token, { mode: 0o600 });
    return { args: ["--token-file", path.join(folder, "token")], env: {} };
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
      const { args, env } = give(token, folder);
      const { child, url } = await startServer(t, node, ["--root", path.join(folder, "root"), ...args], env);
      const pid = child.pid as number;
      const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
      const post = async (route: string, body: unknown) => {
        const answer = await fetch(`${url}/api/buckets${route}`, {
          ...{ method: "POST", headers, body: JSON.stringify(body) },
        });
        assert.ok(answer.ok, `${route}: ${answer.status}`);
        return (await answer.json()) as { id: string };
      };
      const { id } = await post("", { project: "demo", name: "demo" });
      writeTree(path.join(folder, "source"), SOURCE(folder));
      const push = ["push", url, "--bucket", id, "--dir", path.join(folder, "source")];
      const pushed = await ops(push, { env: { OPS_SERVE_TOKEN: token } });
      assert.equal(pushed.code, 0, pushed.stderr);
      await post(`/${id}/deploy`, {});
      await until("the hook to begin", () => existsSync(path.join(folder, "begun")));
      // The server, the run, the shell of the hook, the hook, and what it has started.
      assert.ok(treeOf(pid).length >= 5);
      assert.deepEqual(holding(token), []);
      writeFileSync(path.join(folder, "go"), "");
      const exited = once(child, "exit");
      child.kill("SIGTERM");
      assert.deepEqual(await exited, [0, null]);
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
  assert.equal((await ops(["init", "--bucket-dir", folder], { env })).code, 0);
  await done("build");
  const deployed = done("deploy");
  await until("the hook to begin", () => existsSync(path.join(folder, "begun")));
  const found = holding(token);
  writeFileSync(path.join(folder, "go"), "");
  await deployed;
  assert.deepEqual(found, []);
});
