import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { adoptTree, syncTree } from "../../../lib/transport/files/sync.ts";
import { answeringWorker, contentOf, syncFile, temporaryWorker } from "../../helpers/worker.ts";

const TREE = { name: "web", folder: "jobs/web", files: ["Makefile", "conf/own", "made"].map((name) => syncFile(name, name)) };
const ADOPTED = { isOwn: (file: string) => file === "conf/own", isBrought: (file: string) => file === "made" };

test("files that lie on a worker are adopted as they are, but for those that are brought; again nothing is written", async (t) => {
  const { transport, folder } = await temporaryWorker(t);
  const place = (name: string) => path.join(folder, "jobs/web", name);
  await mkdir(place("conf"), { recursive: true });
  for (const [name, text] of [
    ["Makefile", "other"],
    ["conf/own", "changed by the job"],
  ] as const)
    await writeFile(place(name), text);
  const before = await contentOf(folder);
  await assert.rejects(adoptTree(transport, TREE, ADOPTED), {
    code: "failed",
    message: "Cannot adopt web on 127.0.0.1: files have changed meanwhile: Makefile",
  });
  assert.deepEqual(await contentOf(folder), before);
  await writeFile(place("Makefile"), "Makefile");
  await adoptTree(transport, TREE, ADOPTED);
  const texts = await Promise.all(["Makefile", "conf/own", "made"].map((name) => readFile(place(name), "utf8")));
  assert.deepEqual(texts, ["Makefile", "changed by the job", "made"]);
  const adopted = await contentOf(folder);
  await adoptTree(transport, TREE, ADOPTED);
  assert.deepEqual(await contentOf(folder), adopted);
  // From now on they are those of a sync.
  assert.deepEqual((await syncTree(transport, { ...TREE, files: [] })).removed, ["Makefile", "conf/own", "made"]);
});

test("a tree that other syncs keep busy is given up after five waits", async () => {
  const { transport, asked } = answeringWorker({ stdout: "unsettled web\n" });
  const message = "Cannot sync web to w1: other syncs of these files keep the worker busy: run the command again";
  await assert.rejects(syncTree(transport, TREE), { code: "failed", message });
  assert.equal(asked.length, 10);
});
