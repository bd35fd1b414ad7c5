import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, mkdir, rm, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { describe, test } from "node:test";
import { compareTrees, readText, type WantedFiles } from "../../../lib/transport/files/compare.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { contentOf, temporaryWorker, USERLANDS } from "../../helpers/worker.ts";

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
