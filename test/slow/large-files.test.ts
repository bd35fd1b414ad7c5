import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { digestOf, piecesOf } from "../../lib/bucket/base/contents.ts";
import { largeContents, lostContents, openDatabase, openForReading } from "../../lib/bucket/base/database.ts";
import { type Layout, layoutOf } from "../../lib/bucket/base/layout.ts";
import { catalogAllocations, catalogFiles } from "../../lib/bucket/catalog/catalog.ts";
import { keptContent } from "../../lib/bucket/catalog/contents.ts";
import { promotionsOf } from "../../lib/bucket/catalog/promotions.ts";
import { KvStore } from "../../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../../lib/bucket/kv/kv-access.ts";
import { initBucket } from "../../lib/bucket/workspace/init.ts";
import { PROGRAM } from "../../scripts/local-server.ts";
import { assertUpgraded, SCHEMA_4_TROUBLE, schema2Bucket, schema4Bucket } from "../helpers/schemas.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

const DYING_COMMAND = new URL("../fixtures/dying-command.ts", import.meta.url).href;
const MEMORY = new URL("../fixtures/memory-command.ts", import.meta.url).href;

/** Runs a command of ops in a bucket, with a module loaded before; answers how the command ended. */
async function run(layout: Layout, args: string[], module?: string, env: Record<string, string> = {}) {
  const child = spawn(process.execPath, [...(module ? ["--import", module] : []), PROGRAM, ...args], {
    cwd: layout.root,
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (said += text));
  const [code, signal] = await once(child, "close");
  return { code, signal, said };
}

async function succeed(layout: Layout, ...args: string[]): Promise<void> {
  const { code, said } = await run(layout, args);
  assert.equal(code, 0, said);
}

/** Runs a command that kills itself at a fault point. */
async function dieAt(point: string, layout: Layout, ...args: string[]): Promise<void> {
  const { signal, said } = await run(layout, args, DYING_COMMAND, { OPS_TEST_FAULT: point });
  assert.equal(signal, "SIGKILL", `${point}: ${said}`);
}

/** Each content that a row names is there as it was stored; with `exactly`, and nothing else is. */
function assertWhole(layout: Layout, exactly: boolean): void {
  using db = openForReading(layout.database);
  assert.deepEqual(lostContents(db), []);
  for (const { path: name, sha256, content } of catalogFiles(db, "web"))
    assert.equal(
      digestOf(() => piecesOf(content)),
      sha256,
      name,
    );
  const names = existsSync(db.contents) ? readdirSync(db.contents).sort() : [];
  if (exactly) assert.deepEqual(names, [...largeContents(db)].sort());
}

const UPGRADE = [
  ...[1, 2, 3].flatMap((count) => [`content: written ${count}`, `content: named ${count}`]),
  "upgrade: done 1",
  "upgrade: kept 1",
];

test("CP-354 an upgrade from schema 2 that is killed at any step leaves the old database or the new one, and the next init upgrades it", async (parent) => {
  for (const point of UPGRADE)
    await parent.test(point, async (t) => {
      const layout = await schema2Bucket(t);
      await dieAt(point, layout, "init");
      const isUpgraded = point === "upgrade: kept 1";
      const open = () => openForReading(layout.database).close();
      if (isUpgraded) open();
      else assert.throws(open, { code: "schema_upgrade_required" });
      await succeed(layout, "init");
      await assertUpgraded(layout);
      await succeed(layout, "build");
      assertWhole(layout, true);
    });
});

test("CP-354 an upgrade from schema 4 that is killed at any step leaves the old database or the new one, and the next init upgrades it", async (parent) => {
  for (const point of ["upgrade: done 1", "upgrade: kept 1"])
    await parent.test(point, async (t) => {
      const layout = await schema4Bucket(t);
      await dieAt(point, layout, "init");
      const open = () => openForReading(layout.database).close();
      if (point === "upgrade: kept 1") open();
      else assert.throws(open, { code: "schema_upgrade_required" });
      await succeed(layout, "init");
      using db = openForReading(layout.database);
      const sql = "SELECT DISTINCT troubled_since FROM allocations WHERE troubled_since IS NOT NULL";
      assert.deepEqual(db.tuples(sql), [[SCHEMA_4_TROUBLE]]);
    });
});

/** Fails where the job has a file `sick`. */
const CHECK = { checks: [{ type: "ssh", command: "! [ -e jobs/web/sick ]" }], wait: { attempts: 1, interval_seconds: 1 } };

/** A bucket with one job on this machine, whose files are `large` (1.5 MB) and, large too, a template with a secret. */
async function largeBucket(t: Parameters<typeof temporaryFolder>[0], hosts = ["127.0.0.1"]): Promise<Layout> {
  const layout = layoutOf(temporaryFolder(t));
  await initBucket(layout.root, { source: false });
  const root = temporaryFolder(t);
  makeWorkspace(layout.root, {
    workers: hosts.map((host) => ({ host, connection: "local", root: path.join(root, host) })),
    jobs: { web: { version: "1.0.0", selectors: ["worker"], on_failure: "restore", health_check: CHECK } },
  });
  writeVersion(layout, "one");
  return layout;
}

function writeVersion({ jobs }: Layout, version: string): void {
  writeFileSync(path.join(jobs, "web/large"), version.repeat(500_000));
  const padding = `{{ printf "%700000d" 1 }}`.repeat(2);
  writeFileSync(path.join(jobs, "web/conf.tpl"), `${version} {{ getSecret "password" }}${padding}`);
}

async function storeSecret(layout: Layout): Promise<void> {
  const key = await loadKvKey(layout);
  using db = openDatabase(layout.database);
  const kv = new KvStore(db, key);
  kv.put("secrets/job/web", "password", "correct horse battery");
  kv.flush();
}

test("CP-352 HR-314 a build that is killed while it stores a large file leaves the old catalog or the new one, and the next leaves no orphan", async (parent) => {
  for (const point of ["content: written 1", "content: named 1", "build: stored 1"])
    await parent.test(point, async (t) => {
      const layout = await largeBucket(t);
      await succeed(layout, "build");
      writeVersion(layout, "two");
      await dieAt(point, layout, "build");
      assertWhole(layout, false);
      using db = openForReading(layout.database);
      const { content } = catalogFiles(db, "web").find(({ path: name }) => name === "large") as { content: { length: number } };
      assert.equal(content.length, 1_500_000);
      await succeed(layout, "build");
      assertWhole(layout, true);
      assert.equal(largeContents(db).size, 1);
    });
});

test("CP-352 a deploy or gc that is killed beside a large content goes on where it ended", async (parent) => {
  const steps = [
    ["deploy", "content: written 1"],
    ["deploy", "content: named 1"],
    ["gc", "gc: dropped 1"],
  ] as const;
  for (const [command, point] of steps)
    await parent.test(`${command} at ${point}`, async (t) => {
      const layout = await largeBucket(t);
      await succeed(layout, "build");
      await storeSecret(layout);
      for (const version of command === "gc" ? ["one", "two", "three"] : []) {
        writeVersion(layout, version);
        await succeed(layout, "deploy", "--build");
      }
      await dieAt(point, layout, command);
      assertWhole(layout, false);
      await succeed(layout, "deploy");
      await succeed(layout, "gc");
      assertWhole(layout, true);
      using db = openForReading(layout.database);
      const [allocation] = catalogAllocations(db);
      const { files, before } = promotionsOf(db, "web")(allocation?.id ?? "");
      const kv = new KvStore(db, await loadKvKey(layout));
      for (const digest of [files, before.files].flatMap((tree) => Object.values(tree))) {
        const sha256 = digest.slice(digest.indexOf(":") + 1);
        assert.equal(
          digestOf(() => piecesOf(keptContent(db, kv, sha256).content)),
          sha256,
        );
      }
    });
});

/**
 * The most memory that a command may take for a large file over what it takes for a small one, each time that it sends the
 * file: what was sent waits for the collector, which begins at about this much.
 */
const MOST_KIB = 64 * 1024;

test("CP-353 build, plan, deploy, drift and a batch that is put back stream: a file of 128 MiB takes at most 64 MiB of memory each time", async (t) => {
  const layout = await largeBucket(t);
  const report = path.join(temporaryFolder(t), "memory");
  const steps = ["build", "deploy --dry-run", "deploy", "build", "deploy", "drift", "deploy --build"];
  const taken: number[][] = [];
  await succeed(layout, "build");
  await storeSecret(layout);
  for (const size of [10, 128 * 1024 * 1024]) {
    writeFileSync(path.join(layout.jobs, "web/large"), Buffer.alloc(size, "x"));
    const all: number[] = [];
    for (const [index, step] of steps.entries()) {
      const isSick = index === steps.length - 1;
      if (isSick) {
        writeFileSync(path.join(layout.jobs, "web/sick"), "");
        writeFileSync(path.join(layout.jobs, "web/large"), Buffer.alloc(size, "y"));
      }
      const { code, said } = await run(layout, step.split(" "), MEMORY, { OPS_TEST_MEMORY: report });
      assert.equal(code, isSick ? 1 : 0, said);
      if (isSick) assert.match(said, /what was promoted before was put back on 127\.0\.0\.1 and is healthy there/);
      all.push(Number(readFileSync(report, "utf8")));
    }
    taken.push(all);
    rmSync(path.join(layout.jobs, "web/sick"));
  }
  const [small = [], large = []] = taken;
  const over = steps.map((step, index) => [step, (large[index] ?? 0) - (small[index] ?? 0)] as const);
  // The last step sends the file, and then the one that was there before.
  assert.deepEqual(
    over.filter(([, kib], index) => kib > MOST_KIB * (index === steps.length - 1 ? 2 : 1)),
    [],
    JSON.stringify(over),
  );
});
