import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, mkdir, rm, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { describe, test } from "node:test";
import { compareTrees, readText, type WantedFiles } from "../../../lib/transport/files/compare.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { answeringWorker, contentOf, temporaryWorker, USERLANDS } from "../../helpers/worker.ts";

const digest = (mode: string, text: string) => `${mode}:${createHash("sha256").update(text).digest("hex")}`;
const { signal } = new AbortController();

describe("compareTrees", { concurrency: 2 }, () => {
  for (const userland of USERLANDS) {
    test(`tells changed, missing and extra files of several jobs with the ${userland} programs, and writes nothing`, async (t) => {
      const { transport, folder } = await temporaryWorker(t, userland);
      const job = path.join(folder, "jobs/web");
      for (const name of ["conf", "data", "own", "conf/sub"]) await mkdir(path.join(job, name), { recursive: true });
      const same = { a: "1", "conf/b c": "2", "conf/back\\slash": "3", run: "#!" };
      for (const [name, text] of Object.entries(same)) await writeFile(path.join(job, name), text);
      await chmod(path.join(job, "run"), 0o755);
      const web = {
        a: digest("644", "1"),
        "conf/b c": digest("644", "2"),
        "conf/back\\slash": digest("644", "3"),
        run: digest("755", "#!"),
      };
      const trees = new Map<string, WantedFiles>([
        ["web", web],
        ["idle", {}],
      ]);
      const none = { files: [], isUnsettled: false };
      assert.deepEqual(Object.fromEntries(await compareTrees(transport, trees, signal)), { web: none, idle: none });

      await writeFile(path.join(job, "a"), "other");
      await chmod(path.join(job, "run"), 0o644);
      await rm(path.join(job, "conf/b c"));
      await rm(path.join(job, "conf/back\\slash"));
      await symlink("../a", path.join(job, "conf/back\\slash"));
      for (const name of ["more", ".hidden", "conf/more\n", "conf/extra", "data/its", "own/its", "conf/sub/its"])
        await writeFile(path.join(job, name), "");
      await mkdir(path.join(folder, ".sync/idle"), { recursive: true });
      const before = await contentOf(folder);
      const found = await compareTrees(transport, trees, signal);
      assert.deepEqual(
        found.get("web")?.files.map((one) => [one.state, one.path, one.hasOtherContent]),
        [
          ["extra", ".hidden", false],
          ["changed", "a", true],
          ["missing", "conf/b c", false],
          ["changed", "conf/back\\slash", false],
          ["extra", "conf/extra", false],
          ["extra", "more", false],
          ["changed", "run", false],
        ],
      );
      assert.deepEqual(found.get("idle"), { files: [], isUnsettled: true });
      assert.deepEqual(await contentOf(folder), before);
    });
  }

  test("on a worker that has nothing all is missing", async (t) => {
    const { transport, folder } = await temporaryWorker(t);
    await rm(folder, { recursive: true });
    const trees = new Map([["web", { a: digest("644", "1") }]]);
    const { files } = (await compareTrees(transport, trees, signal)).get("web") ?? {};
    assert.deepEqual(files, [{ path: "a", state: "missing", sha256: null, mode: null, hasOtherContent: false }]);
    assert.equal(await readText(transport, { job: "web", path: "a", bytes: 10 }, signal), "");
  });

  test("where nothing is expected the folder is not made, and the home is not taken for it", async (t) => {
    const { transport, folder } = await temporaryWorker(t);
    await rm(folder, { recursive: true });
    const home = temporaryFolder(t);
    await mkdir(path.join(home, "jobs/web"), { recursive: true });
    await writeFile(path.join(home, "jobs/web/a"), "");
    const before = process.env.HOME;
    process.env.HOME = home;
    t.after(() => {
      process.env.HOME = before;
    });
    const look = () => compareTrees(transport, new Map([["web", {}]]), signal);
    assert.deepEqual((await look()).get("web"), { files: [], isUnsettled: false });
    assert.equal(existsSync(folder), false);
    await mkdir(path.join(folder, "jobs/web"), { recursive: true });
    await writeFile(path.join(folder, "jobs/web/b"), "");
    assert.deepEqual(
      (await look()).get("web")?.files.map(({ path }) => path),
      ["b"],
    );
  });
});

test("the text of a file comes whole or not at all", async (t) => {
  const { transport, folder } = await temporaryWorker(t);
  await mkdir(path.join(folder, "jobs/web"), { recursive: true });
  const read = async (content: string | Buffer) => {
    await writeFile(path.join(folder, "jobs/web/a"), content);
    return await readText(transport, { job: "web", path: "a", bytes: 10 }, signal);
  };
  assert.equal(await read("ü\n34567890".slice(0, 9)), "ü\n3456789".slice(0, 9));
  assert.equal(await read("12345678901"), undefined);
  assert.equal(await read(Buffer.from([0xff, 0x41])), undefined);
  assert.equal(await read("a\0b"), undefined);
});

/** What a comparison tells of a job where the worker answers these lines. */
async function told(wanted: WantedFiles, ...lines: string[]) {
  const { transport } = answeringWorker({ stdout: [...lines, "end", ""].join("\n") });
  const { files = [], isUnsettled } = (await compareTrees(transport, new Map([["web", wanted]]), signal)).get("web") ?? {};
  return { files: files.map(({ path, state }) => `${state} ${path}`), isUnsettled, all: files };
}

test("a file or a link in the place of a folder is told once, and nothing of what should be in it", async () => {
  const wanted = { "conf/a": digest("644", "1"), "conf/sub/b": digest("644", "2"), c: digest("644", "3"), "data/own": "644:0" };
  for (const [lines, files] of [
    [["entry ./jobs/web/conf"], ["missing c", "changed conf", "missing data/own"]],
    [
      ["link ./jobs/web/conf", "entry ./jobs/web/conf"],
      ["missing c", "link conf", "missing data/own"],
    ],
    [["link ./jobs/web/conf/sub"], ["missing c", "missing conf/a", "link conf/sub", "missing data/own"]],
    [["link ./jobs/web"], ["link ."]],
    [["link ./jobs"], ["link .."]],
    [
      ["entry ./jobs/web/data", "entry ./jobs/web/logs", "entry ./jobs/web/x", "entry ./jobs/db/y"],
      ["missing c", "missing conf/a", "missing conf/sub/b", "changed data", "extra x"],
    ],
  ] as const)
    assert.deepEqual((await told(wanted, ...lines)).files, files, lines.join());
});

test("a promoted file differs by its content, or where its owner may not execute it any more", async () => {
  const [one, other] = [digest("644", "1").slice(4), digest("644", "2").slice(4)];
  const state = async (mode: string, hex: string, sum: string) =>
    (await told({ a: `${mode}:${one}` }, `mode ${hex} ./jobs/web/a`, `${sum}  ./jobs/web/a`)).all;
  const changed = { path: "a", state: "changed" };
  assert.deepEqual(await state("644", "81a4", one), []);
  assert.deepEqual(await state("644", "81ed", one), [], "an execute bit that a job added");
  assert.deepEqual(await state("755", "81ed", one), []);
  assert.deepEqual(await state("755", "81a4", one), [{ ...changed, mode: 0o644, sha256: one, hasOtherContent: false }]);
  assert.deepEqual(await state("644", "89ed", other), [{ ...changed, mode: 0o4755, sha256: other, hasOtherContent: true }]);
  const unread = await told({ a: `644:${one}` }, "mode 81a4 ./jobs/web/a");
  assert.deepEqual(unread.all, [{ ...changed, mode: 0o644, sha256: null, hasOtherContent: true }]);
  assert.deepEqual((await told({ a: `644:${one}` }, "other ./jobs/web/a")).files, ["changed a"]);
});

test("lines of another form tell nothing, and an answer about one job nothing of another", async () => {
  const sum = "0".repeat(64);
  const wanted = { a: `644:${sum}`, "b\\c": `644:${sum}` };
  const noise = [
    "mode 81a4 jobs/web/a",
    "MODE 81a4 ./jobs/web/a",
    "mode 81g4 ./jobs/web/a",
    "mode ./jobs/web/a",
    "unheard ./a",
    "x",
  ];
  assert.deepEqual((await told(wanted, ...noise)).files, ["missing a", "missing b\\c"]);
  const modes = ["mode 81a4 ./jobs/web/a", "mode 81a4 ./jobs/web/b\\c"];
  const sums = [`\\${sum}  ./jobs/web/b\\\\c`, `${sum} *./jobs/web/a`];
  assert.deepEqual(await told(wanted, ...modes, ...sums, "unsettled db"), { files: [], isUnsettled: false, all: [] });
  for (const wrong of [`x${sum}  ./jobs/web/a`, `${sum}0  ./jobs/web/a`, `${sum}  jobs/web/a`, `${sum}x ./jobs/web/a`])
    assert.deepEqual((await told(wanted, ...modes, sums[0] as string, wrong)).files, ["changed a"], wrong);
  assert.equal((await told({}, "unsettled web")).isUnsettled, true);
});
