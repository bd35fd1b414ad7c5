import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readlinkSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { migrate } from "../../lib/bucket/base/database.ts";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { ReadThread } from "../../lib/server/beside.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const PAGE = { name: "jobs", query: {}, page: { limit: 10 } } as const;

function setUp(t: TestContext) {
  const layout = layoutOf(temporaryFolder(t));
  mkdirSync(layout.data);
  migrate(layout.database, "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70");
  const thread = new ReadThread();
  t.after(() => thread.close());
  return { layout, thread };
}

test("reads answer JSON, at the same time and one after the other", async (t) => {
  const { layout, thread } = setUp(t);
  const jobs = () => thread.ask("view", layout, PAGE);
  for (const bytes of [...(await Promise.all([jobs(), jobs()])), await jobs()]) {
    const { items, next_cursor } = JSON.parse(new TextDecoder().decode(bytes));
    assert.deepEqual([items, next_cursor], [[], null]);
  }
});

test("the failures of a read are those of the work; a defect is told with its stack, and the thread goes on", async (t) => {
  const { layout, thread } = setUp(t);
  const unknown = { ...PAGE, query: { jobs: ["web"] } };
  await assert.rejects(thread.ask("view", layout, unknown), { code: "not_found", message: /there is no job "web"/ });
  const empty = layoutOf(temporaryFolder(t));
  await assert.rejects(thread.ask("view", empty, PAGE), { code: "bucket_not_initialized" });
  await assert.rejects(thread.ask("view", layout, { ...PAGE, name: "nothing" as "jobs" }), {
    stack: /TypeError[\s\S]*views\.ts/,
  });
  await thread.ask("view", layout, PAGE);
});

test("what waits when the thread ends fails, and a thread that is closed starts no more", async (t) => {
  const { layout, thread } = setUp(t);
  const waiting = [thread.ask("view", layout, PAGE), thread.ask("facts", layout, { limit: 1 })];
  const rejected = waiting.map((read) => assert.rejects(read, { code: "shutting_down" }));
  const closed = thread.close();
  await Promise.all(rejected);
  await closed;
  await assert.rejects(thread.ask("view", layout, PAGE), { code: "shutting_down" });
});

test("a read of 60 seconds is given up with its thread, and the end of that disturbs no later read", async (t) => {
  const { layout, thread } = setUp(t);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const first = assert.rejects(thread.ask("view", layout, PAGE), { code: "database_busy" });
  t.mock.timers.tick(60_000);
  const second = thread.ask("view", layout, PAGE);
  await first;
  assert.deepEqual(JSON.parse(new TextDecoder().decode(await second)).items, []);
});

test("a thread that was closed holds no database any more", async (t) => {
  const { layout, thread } = setUp(t);
  const open = () => readdirSync("/proc/self/fd").filter((fd) => isOpen(fd, layout.database));
  await thread.ask("view", layout, PAGE);
  assert.equal(open().length, 1);
  await thread.close();
  assert.deepEqual(open(), []);
});

function isOpen(descriptor: string, file: string): boolean {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`) === file;
  } catch {
    return false;
  }
}
