import assert from "node:assert/strict";
import { test } from "node:test";
import { foldersAbove, isExecutable, isForSync, lookAtFiles } from "../../../lib/transport/files/look.ts";
import { answeringWorker } from "../../helpers/worker.ts";

test("what a job keeps in its own folders is never synced", () => {
  const paths = ["data", "data/x", "logs/a", "bin/run", "conf/data", "database", "binary", "Makefile"];
  assert.deepEqual(paths.filter(isForSync), ["conf/data", "database", "binary", "Makefile"]);
});

test("a file is executable by its owner's bit alone", () => {
  assert.deepEqual([0o755, 0o100, 0o655, 0o011].map(isExecutable), [true, true, false, false]);
});

test("the folders above paths come each before those in it, each once", () => {
  assert.deepEqual([...foldersAbove(["a/b/c", "a/d", "e", "f/g"])], ["a", "a/b", "f"]);
});

test("an answer is whole by its end, or by an unsettled tree where a list was asked for; what is said beside counts for nothing", async () => {
  const look = async (stdout: string, stderr = "", head?: string) => {
    const { transport } = answeringWorker({ stdout, stderr });
    const question = { trees: ["web"], lines: [], ...(head && { head }) };
    return await lookAtFiles(transport, question, "Cannot look", { timeoutMs: 5 });
  };
  const found = await look("entry ./jobs/web/a\nend\n", "other ./jobs/web/b\nlate\n");
  assert.deepEqual([[...found.entry], [...found.other]], [["jobs/web/a"], []]);
  assert.deepEqual([...(await look("unsettled web\n", "", "sync x")).unsettled], ["web"]);
  for (const [stdout, stderr] of [
    ["", ""],
    ["entry ./jobs/web/a\n", "end\n"],
    ["unsettled web\n", ""],
  ] as const)
    await assert.rejects(look(stdout, stderr), { code: "failed", message: "Cannot look: the worker's answer was cut off" });
});
