import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, mkdir, readdir, readFile, rename, rm, stat, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { describe, test } from "node:test";
import { sleep } from "../../../lib/core/async.ts";
import type { Transport } from "../../../lib/transport/base/transport.ts";
import { type SyncFile, type SyncResult, syncTree, WORKER_TREE } from "../../../lib/transport/files/sync.ts";
import { contentOf, processesIn, syncFile, temporaryWorker, USERLANDS } from "../../helpers/worker.ts";

const OWN = [".sync", ".runner"];

function syncJob(transport: Transport, files: SyncFile[], signal?: AbortSignal): Promise<SyncResult> {
  return syncTree(transport, { name: "web", folder: "jobs/web", files }, { signal });
}

/** Counts the scripts that are run, and passes them on. */
function counted(transport: Transport): { transport: Transport; scripts: number } {
  const state = { transport, scripts: 0 };
  state.transport = {
    ...transport,
    script(text, options) {
      state.scripts++;
      return transport.script(text, options);
    },
  };
  return state;
}

async function* failing(): AsyncGenerator<Uint8Array> {
  yield Buffer.from("1");
  throw new Error("no such thing");
}

describe("syncTree", { concurrency: 4 }, () => {
  for (const userland of USERLANDS) {
    test(`a tree is created, changed and emptied on a worker with the ${userland} programs`, async (t) => {
      const { transport, folder } = await temporaryWorker(t, userland);
      const made = await syncJob(transport, [
        syncFile("Makefile", "start:\n", 0o644),
        syncFile("conf/deep/er.conf", "one"),
        syncFile("run.sh", "#!", 0o755),
        syncFile("certs/key", "secret", 0o600),
        syncFile("empty", ""),
      ]);
      assert.deepEqual(made.changed, ["Makefile", "certs/key", "conf/deep/er.conf", "empty", "run.sh"]);
      assert.deepEqual(made.removed, []);
      const modeOf = async (name: string) => (await stat(path.join(folder, "jobs/web", name))).mode & 0o777;
      assert.deepEqual(
        await Promise.all(["Makefile", "run.sh", "certs/key", "conf/deep"].map(modeOf)),
        [0o644, 0o755, 0o600, 0o755],
      );
      assert.ok(Date.now() - (await stat(path.join(folder, "jobs/web/Makefile"))).mtimeMs < 60_000, "make compares times");

      const changed = await syncJob(transport, [syncFile("Makefile", "stop:\n"), syncFile("run.sh", "#!", 0o755)]);
      assert.deepEqual(changed.changed, ["Makefile"]);
      assert.deepEqual(changed.removed.sort(), ["certs/key", "conf/deep/er.conf", "empty"]);
      assert.deepEqual(await contentOf(folder, OWN), { "jobs/web/Makefile": "stop:\n", "jobs/web/run.sh": "#!" });

      await syncJob(transport, []);
      assert.deepEqual(await contentOf(folder, OWN), {});
      assert.deepEqual(await readdir(path.join(folder, ".sync")), ["web.list"]);
    });

    test(`names full of shell characters arrive as they are with the ${userland} programs`, async (t) => {
      const { transport, folder } = await temporaryWorker(t, userland);
      const names = [
        "-rf",
        "--help/-x",
        " ",
        " a  b ",
        "'",
        '"',
        "`id`",
        "$(id)",
        "$HOME",
        "*",
        "?",
        "[a-z]",
        "~",
        "#x",
        "!",
        "a;b",
        "a&b",
        "a|b",
        ">x",
        "\\",
        "a\\nb",
        "\\\\",
        "ü/ß",
        "日本",
        "😀",
        "=",
        "(",
        "{a,b}",
        "%s%n",
        "folder  x",
        `${"long/".repeat(60)}${"n".repeat(200)}`,
      ]; // prettier-ignore
      const files = names.map((name) => syncFile(name, `content of ${name}`));
      assert.equal((await syncJob(transport, files)).changed.length, names.length);
      assert.deepEqual(
        await contentOf(path.join(folder, "jobs/web")),
        Object.fromEntries(names.map((name) => [name, `content of ${name}`])),
      );
      assert.deepEqual(await syncJob(transport, files), { changed: [], removed: [], sentBytes: 0 });
      assert.equal((await syncJob(transport, [])).removed.length, names.length);
      assert.deepEqual(await contentOf(folder, OWN), {});
    });

    test(`more files than one command takes come and go with the ${userland} programs`, async (t) => {
      const { transport, folder } = await temporaryWorker(t, userland);
      const names = Array.from({ length: 205 }, (_, index) => `conf/${index}`);
      const files = [...names, ".env", "conf/.env", "a b"].map((name) => syncFile(name, name));
      assert.equal((await syncJob(transport, files)).changed.length, files.length);
      assert.deepEqual(
        await contentOf(path.join(folder, "jobs/web")),
        Object.fromEntries(files.map((file) => [file.path, file.path])),
      );
      assert.equal((await syncJob(transport, files)).sentBytes, 0);
      assert.equal((await syncJob(transport, files.slice(0, 1))).removed.length, files.length - 1);
      assert.deepEqual(await contentOf(path.join(folder, "jobs/web")), { "conf/0": "conf/0" });
    });

    test(`what a job has made itself is never touched with the ${userland} programs`, async (t) => {
      const { transport, folder } = await temporaryWorker(t, userland);
      const job = path.join(folder, "jobs/web");
      const foreign = ["data/db", "logs/a.log", "bin/tool", "own", "conf/own", "made/own"];
      await syncJob(transport, [syncFile("conf/a", "1"), syncFile("own-too", "1"), syncFile("made/a/b", "1")]);
      for (const name of foreign) {
        await mkdir(path.dirname(path.join(job, name)), { recursive: true });
        await writeFile(path.join(job, name), "mine");
      }
      await mkdir(path.join(job, "was-there"));
      await syncJob(transport, [syncFile("was-there/a", "1")]);
      await syncJob(transport, []);
      assert.deepEqual(await contentOf(job), { ...Object.fromEntries(foreign.map((name) => [name, "mine"])), "was-there/": "" });
    });

    test(`a folder that is gone is made again and stays ours with the ${userland} programs`, async (t) => {
      const { transport, folder } = await temporaryWorker(t, userland);
      const tree = (text: string) => [syncFile("a", text), syncFile("conf/b", text), syncFile("conf/c", "1")];
      const list = () => readFile(path.join(folder, ".sync/web.list"), "utf8");
      await syncJob(transport, tree("1"));
      const [first, ...rest] = (await list()).split("\n");
      await rm(path.join(folder, "jobs/web/conf"), { recursive: true });
      assert.deepEqual((await syncJob(transport, tree("2"))).changed, ["a", "conf/b", "conf/c"]);
      const [next, ...others] = (await list()).split("\n");
      assert.ok(next?.length === first?.length && next !== first, "each sync has a line of its own");
      assert.deepEqual([...new Set(others)].sort(), rest.sort());
      assert.equal((await syncJob(transport, tree("2"))).sentBytes, 0);
      await syncJob(transport, []);
      assert.deepEqual(await contentOf(folder, OWN), {});
    });

    test(`a file may become a folder and a folder a file with the ${userland} programs`, async (t) => {
      const { transport, folder } = await temporaryWorker(t, userland);
      await syncJob(transport, [syncFile("a/b/c", "1"), syncFile("d", "2")]);
      await syncJob(transport, [syncFile("a", "3"), syncFile("d/e/f", "4")]);
      assert.deepEqual(await contentOf(path.join(folder, "jobs/web")), { a: "3", "d/e/f": "4" });
      await syncJob(transport, [syncFile("a/b/c", "1"), syncFile("d", "2")]);
      assert.deepEqual(await contentOf(path.join(folder, "jobs/web")), { "a/b/c": "1", d: "2" });
    });
  }

  test("an unchanged tree costs one script and writes nothing", async (t) => {
    const { transport, folder } = await temporaryWorker(t);
    const files = [syncFile("Makefile", "start:\n"), syncFile("run.sh", "#!", 0o755)];
    await syncJob(transport, files);
    const changeTimes = async () => {
      const entries = await readdir(folder, { recursive: true });
      return Promise.all(["", ...entries].map(async (name) => (await stat(path.join(folder, name))).ctimeMs));
    };
    const before = await changeTimes();
    const watch = counted(transport);
    assert.deepEqual(await syncJob(watch.transport, files), { changed: [], removed: [], sentBytes: 0 });
    assert.equal(watch.scripts, 1);
    assert.deepEqual(await changeTimes(), before);
  });

  for (const [what, spoil] of [
    ["edited", (file: string) => writeFile(file, "by hand")],
    ["removed", (file: string) => rm(file)],
    ["no longer executable", (file: string) => chmod(file, 0o655)],
    [
      "a symbolic link",
      async (file: string) => {
        await rename(file, `${file}.real`);
        await symlink(`${file}.real`, file);
      },
    ],
    [
      "a symbolic link to a folder",
      async (file: string) => {
        await rm(file);
        await symlink(path.dirname(file), file);
      },
    ],
  ] as const) // prettier-ignore
    test(`a file that is ${what} on the worker is put right`, async (t) => {
      const { transport, folder } = await temporaryWorker(t);
      const files = [syncFile("Makefile", "start:\n"), syncFile("run.sh", "#!", 0o755)];
      await syncJob(transport, files);
      const file = path.join(folder, "jobs/web/run.sh");
      await spoil(file);
      assert.deepEqual((await syncJob(transport, files)).changed, ["run.sh"]);
      assert.equal(await readFile(file, "utf8"), "#!");
      assert.equal((await stat(file)).mode & 0o777, 0o755);
      assert.equal((await syncJob(transport, files)).sentBytes, 0);
    });

  test("the mode of a file that is not written stays what it is on the worker", async (t) => {
    const { transport, folder } = await temporaryWorker(t);
    await syncJob(transport, [syncFile("conf", "1", 0o644)]);
    await chmod(path.join(folder, "jobs/web/conf"), 0o600);
    assert.deepEqual((await syncJob(transport, [syncFile("conf", "1", 0o640)])).changed, []);
    assert.equal((await stat(path.join(folder, "jobs/web/conf"))).mode & 0o777, 0o600);
  });

  test("the worker's own files and the trees of two jobs do not disturb each other", async (t) => {
    const { transport, folder } = await temporaryWorker(t);
    const worker = [syncFile("worker.json", "{}"), syncFile("bin/runner", "#!", 0o755)];
    await syncTree(transport, { name: WORKER_TREE, folder: ".", files: worker });
    await syncJob(transport, [syncFile("a", "web")]);
    await syncTree(transport, { name: "db", folder: "jobs/db", files: [syncFile("a", "db")] });
    await syncTree(transport, { name: WORKER_TREE, folder: ".", files: worker.slice(0, 1) });
    await syncJob(transport, []);
    assert.deepEqual(await contentOf(folder, OWN), { "worker.json": "{}", "jobs/db/a": "db" });
  });

  test("many trees can be synced to a fresh worker at once", async (t) => {
    const { transport, folder } = await temporaryWorker(t);
    const jobs = ["a", "b", "c", "d", "e", "f"];
    const trees = jobs.map((name) => ({ name, folder: `jobs/${name}`, files: [syncFile("x", name)] }));
    await Promise.all(trees.map((tree) => syncTree(transport, tree)));
    assert.deepEqual(await contentOf(folder, OWN), Object.fromEntries(jobs.map((name) => [`jobs/${name}/x`, name])));
  });

  test("a list that names other folders makes sync remove nothing there", async (t) => {
    const { transport, folder } = await temporaryWorker(t);
    await syncJob(transport, [syncFile("a", "1")]);
    const foreign = ["jobs/db/x", "outside", "jobs/web/data/db"];
    for (const name of foreign) {
      await mkdir(path.dirname(path.join(folder, name)), { recursive: true });
      await writeFile(path.join(folder, name), "keep");
    }
    const names = [...foreign, "jobs/web/../../outside", "/etc/passwd"];
    await writeFile(path.join(folder, ".sync/web.list"), names.map((name) => `file  ${name}\n`).join(""));
    assert.deepEqual((await syncJob(transport, [])).removed, []);
    const left = await contentOf(folder, OWN);
    assert.deepEqual(Object.keys(left).sort(), [...foreign, "jobs/web/a"].sort());
  });

  test("paths that lead out of the tree, or into what is the job's, are refused", async (t) => {
    const { transport } = await temporaryWorker(t);
    const watch = counted(transport);
    const bad = ["", "/a", "../a", "a/../b", "a//b", "./a", "a/", "a\nb", "a\0b", "data/x", "logs", "bin/tool"];
    for (const name of bad)
      await assert.rejects(syncJob(watch.transport, [syncFile(name, "")]), /^Failure: Cannot sync web: it cannot have/);
    for (const name of ["jobs/web/a", ".sync/web.list", ".runner/x"])
      await assert.rejects(
        syncTree(watch.transport, { name: WORKER_TREE, folder: ".", files: [syncFile(name, "")] }),
        /it cannot have a file/,
      );
    await assert.rejects(syncJob(watch.transport, [syncFile("a", ""), syncFile("a", "")]), /cannot have a file "a"/);
    await assert.rejects(syncJob(watch.transport, [syncFile("a", ""), syncFile("a/b", "")]), /both a file and a folder/);
    for (const [name, folder] of [
      ["web", "jobs/db"],
      ["web", "."],
      ["../x", "jobs/../x"],
    ] as const)
      await assert.rejects(syncTree(watch.transport, { name, folder, files: [] }), /no job is there/);
    assert.equal(watch.scripts, 0);
  });

  for (const [what, block, sentence] of [
    [
      "a folder with files of its own where a file is to go",
      (job: string) => mkdir(path.join(job, "new/sub"), { recursive: true }),
      /jobs\/web\/new is a folder on the worker/,
    ],
    [
      "a file where a folder is to go",
      (job: string) => writeFile(path.join(job, "folder"), ""),
      /jobs\/web\/folder is a file on the worker/,
    ],
  ] as const) // prettier-ignore
    test(`${what} stops the sync before anything has changed`, async (t) => {
      const { transport, folder } = await temporaryWorker(t);
      await syncJob(transport, [syncFile("a", "1")]);
      await block(path.join(folder, "jobs/web"));
      const before = await contentOf(folder);
      const wanted = [syncFile("a", "2"), syncFile("folder/b", "2"), syncFile("new", "2")];
      await assert.rejects(syncJob(transport, wanted), (error: Error) => {
        assert.match(error.message, /^Cannot sync web to 127\.0\.0\.1: /);
        assert.match(error.message, sentence);
        return true;
      });
      assert.deepEqual(await contentOf(folder), before);
    });

  for (const [what, spoiled, sentence] of [
    ["is shorter than announced", { size: 6 }, /"jobs\/web\/a" has changed while it was read/],
    ["is longer than announced", { size: 4 }, /changed/],
    ["has another digest", { sha256: "0".repeat(64) }, /what arrived is not what was sent/],
    ["cannot be read", { open: () => failing() }, /cannot read "jobs\/web\/a": no such thing/],
  ] as const)
    test(`content that ${what} is noticed before anything has changed`, async (t) => {
      const { transport, folder } = await temporaryWorker(t);
      await syncJob(transport, [syncFile("a", "old")]);
      const before = await contentOf(folder);
      await assert.rejects(syncJob(transport, [{ ...syncFile("a", "12345"), ...spoiled }]), sentence);
      assert.deepEqual(await contentOf(folder), before);
    });

  test("a sync that another one has overtaken is refused", async (t) => {
    const { transport, folder } = await temporaryWorker(t);
    const overtaken: Transport = {
      ...transport,
      async script(text, options) {
        const outcome = await transport.script(text, options);
        await syncJob(transport, [syncFile("a", "of the other")]);
        return outcome;
      },
    };
    await assert.rejects(syncJob(overtaken, [syncFile("a", "mine")]), /another sync has changed the files meanwhile/);
    assert.equal(await readFile(path.join(folder, "jobs/web/a"), "utf8"), "of the other");
  });

  test("CP-135 a cancelled sync unwinds, leaves no process, no lock and the old tree", async (t) => {
    const { transport, folder } = await temporaryWorker(t);
    await syncJob(transport, [syncFile("a", "old")]);
    const before = await contentOf(folder);
    const stop = new AbortController();
    async function* stalled() {
      yield Buffer.from("n");
      stop.abort();
      await sleep(600_000, stop.signal).catch(() => {});
      yield Buffer.from("ew");
    }
    await assert.rejects(syncJob(transport, [{ ...syncFile("a", "new"), open: stalled }], stop.signal), { code: "cancelled" });
    assert.deepEqual(processesIn(folder), []);
    assert.deepEqual(await contentOf(folder), before);
    assert.ok(!existsSync(path.join(folder, ".sync/web.lock")));
    await assert.rejects(syncJob(transport, [], AbortSignal.abort()), { code: "cancelled" });
  });

  test("a worker that ends the script early gives one sentence with the worker and the reason", async (t) => {
    const { transport } = await temporaryWorker(t);
    const broken = (script: string): Transport => ({
      ...transport,
      script: (_text, options) => transport.script(script, options),
    });
    await assert.rejects(syncJob(broken("echo one >&2; echo two >&2; exit 1"), []), {
      code: "failed",
      message: "Cannot sync web to 127.0.0.1: one; two",
    });
    await assert.rejects(syncJob(broken("kill -9 $$"), []), { message: "Cannot sync web to 127.0.0.1: ended by SIGKILL" });
    await assert.rejects(syncJob(broken("exit 0"), []), {
      message: "Cannot sync web to 127.0.0.1: the worker's answer was cut off",
    });
    await assert.rejects(syncTree(broken("sleep 600"), { name: "web", folder: "jobs/web", files: [] }, { timeoutMs: 30 }), {
      code: "timeout",
      message: "Cannot sync web to 127.0.0.1: the script still ran after 0.03 s",
    });
  });
});

test("a large file streams: never is more of it in memory than a few chunks", async (t) => {
  const { transport, folder } = await temporaryWorker(t);
  const chunk = Buffer.alloc(64 * 1024, 7);
  const hash = createHash("sha256");
  for (let at = 0; at < 512; at++) hash.update(chunk);
  async function* open() {
    for (let at = 0; at < 512; at++) yield chunk;
  }
  const size = 512 * chunk.length;
  const before = process.memoryUsage().arrayBuffers;
  let most = 0;
  const timer = setInterval(() => (most = Math.max(most, process.memoryUsage().arrayBuffers - before)), 1);
  const result = await syncJob(transport, [{ path: "big", mode: 0o644, sha256: hash.digest("hex"), size, open }]);
  clearInterval(timer);
  assert.ok(result.sentBytes > size && result.sentBytes < size + 20_000);
  assert.equal((await stat(path.join(folder, "jobs/web/big"))).size, size);
  assert.ok(most < size / 4, `${most} bytes of ${size} were held`);
});
