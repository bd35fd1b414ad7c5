import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import {
  beginChange,
  forgetPromotion,
  isUnsettled,
  NEVER_PROMOTED,
  promote,
  promotionsOf,
  recordFound,
  recordSynced,
  setGate,
  setStopped,
  startAnew,
  syncedFiles,
} from "../../../lib/bucket/catalog/promotions.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const NOTHING = {
  hash: "",
  synced: "",
  syncedFiles: {},
  version: NEVER_PROMOTED,
  files: {},
  gate: "",
  unfinished: false,
  stopped: false,
  stopping: false,
  updateSeq: 0,
  before: { hash: "", version: NEVER_PROMOTED, files: {} },
};
const tree = (hash: string) => ({ hash, files: { Makefile: hash }, updateSeq: 4 });

async function setUp(t: TestContext) {
  const { db } = await makeBucket(t);
  const deploy = (hash: string, version: string, gate?: "" | "pending") => {
    beginChange(db, "web", ["one"]);
    recordSynced(db, "web", [{ id: "one", ...tree(hash) }]);
    promote(db, { job: "web", id: "one" }, version, gate);
  };
  const of = (id: string, job = "web") => ({ ...promotionsOf(db, job)(id), syncedFiles: syncedFiles(db, job, id) });
  return { db, deploy, of };
}

test("what was never deployed has version 0.0.0 and nothing else", async (t) => {
  const { of } = await setUp(t);
  assert.deepEqual(of("one"), NOTHING);
});

test("HR-109 HR-115 T-39 a change counts from its promotion on, and until then everybody sees that it began", async (t) => {
  const { db, of } = await setUp(t);
  beginChange(db, "web", ["one", "two"]);
  assert.deepEqual(
    [of("one"), of("two")],
    [
      { ...NOTHING, unfinished: true },
      { ...NOTHING, unfinished: true },
    ],
  );
  recordSynced(db, "web", [{ id: "one", ...tree("a") }]);
  const synced = { ...NOTHING, synced: "a", syncedFiles: { Makefile: "a" }, updateSeq: 4 };
  assert.deepEqual(of("one"), { ...synced, unfinished: true }, "a sync is no promotion");
  promote(db, { job: "web", id: "one" }, "1.0.0", "pending");
  const first = { ...synced, hash: "a", version: "1.0.0", files: { Makefile: "a" }, gate: "pending" };
  assert.deepEqual(of("one"), first);
  beginChange(db, "web", ["one"]);
  assert.deepEqual(of("one"), { ...first, synced: "", unfinished: true }, "which files are there is not known");
  recordSynced(db, "web", [{ id: "one", ...tree("b") }]);
  const isB = { synced: "b", syncedFiles: { Makefile: "b" } };
  assert.deepEqual(of("one"), { ...first, ...isB, unfinished: true }, "the promoted tree stays known");
  promote(db, { job: "web", id: "one" }, "2.0.0", "");
  const before = { hash: "a", version: "1.0.0", files: { Makefile: "a" } };
  const second = { ...first, hash: "b", ...isB, version: "2.0.0", files: { Makefile: "b" }, gate: "", before };
  assert.deepEqual(of("one"), second);
  promote(db, { job: "web", id: "one" }, "2.0.0", "");
  assert.deepEqual(of("one"), second, "the same once more takes the place of nothing");
  assert.deepEqual(of("two"), { ...NOTHING, unfinished: true });
});

test("a gate keeps its outcome over a promotion that has none of its own", async (t) => {
  const { db, deploy, of } = await setUp(t);
  deploy("a", "1.0.0", "pending");
  setGate(db, "web", ["one"], "failed");
  deploy("b", "1.1.0");
  assert.deepEqual([of("one").hash, of("one").gate], ["b", "failed"]);
  deploy("c", "1.2.0", "");
  assert.equal(of("one").gate, "");
});

test("stopped comes and goes, a forgotten allocation is as new, other jobs have their own", async (t) => {
  const { db, deploy, of } = await setUp(t);
  deploy("a", "1.0.0", "");
  beginChange(db, "other", ["one"]);
  setStopped(db, "web", "one", "done");
  assert.deepEqual([of("one").stopped, of("one", "other").stopped], [true, false]);
  setStopped(db, "web", "one", "no");
  assert.equal(of("one").stopped, false);
  forgetPromotion(db, "web", "one");
  assert.deepEqual([of("one"), of("one", "other").unfinished], [NOTHING, true]);
});

test("an allocation that starts anew loses its promoted tree, gate and stop mark; its version, its files and all others stay", async (t) => {
  const { db, deploy, of } = await setUp(t);
  deploy("a", "1.0.0", "pending");
  setStopped(db, "web", "one", "done");
  for (const [job, id] of [
    ["web", "two"],
    ["other", "one"],
  ] as const) {
    beginChange(db, job, [id]);
    recordSynced(db, job, [{ id: id, ...tree("b") }]);
    promote(db, { job, id }, "3.0.0");
  }
  startAnew(db, [{ job: "web", id: "one" }]);
  const left = { synced: "a", syncedFiles: { Makefile: "a" }, version: "1.0.0", updateSeq: 4 };
  assert.deepEqual(of("one"), { ...NOTHING, ...left });
  assert.deepEqual([of("two").hash, of("one", "other").hash], ["b", "b"]);
});

test("a tree that ops has not brought is known as one that was synced, and is promoted as such", async (t) => {
  const { db, of } = await setUp(t);
  db.transaction(() => recordFound(db, "web", { id: "one", ...tree("a") }));
  const found = { ...NOTHING, synced: "a", syncedFiles: { Makefile: "a" }, updateSeq: 4 };
  assert.deepEqual(of("one"), found);
  promote(db, { job: "web", id: "one" }, "1.0.0", "passed");
  assert.deepEqual(of("one"), { ...found, hash: "a", files: { Makefile: "a" }, version: "1.0.0", gate: "passed" });
});

test("a stop that has begun is told apart from one that is done", async (t) => {
  const { db, deploy, of } = await setUp(t);
  deploy("a", "1.0.0");
  const stop = (how: "no" | "begun" | "done") => {
    setStopped(db, "web", "one", how);
    const { stopped, stopping } = of("one");
    return [stopped, stopping];
  };
  assert.deepEqual(
    [stop("begun"), stop("done"), stop("no")],
    [
      [true, true],
      [true, false],
      [false, false],
    ],
  );
});

test("files on a worker are in doubt from the beginning of a change until they are what is promoted", async (t) => {
  const { db, of } = await setUp(t);
  const doubt = () => isUnsettled(of("one") as never);
  assert.equal(doubt(), true, "nothing was ever brought");
  beginChange(db, "web", ["one"]);
  assert.equal(doubt(), true);
  recordSynced(db, "web", [{ id: "one", ...tree("a") }]);
  assert.equal(doubt(), true);
  promote(db, { job: "web", id: "one" }, "1.0.0");
  assert.equal(doubt(), false);
  beginChange(db, "web", ["one"]);
  assert.equal(doubt(), true);
  recordSynced(db, "web", [{ id: "one", ...tree("b") }]);
  assert.equal(doubt(), true);
  recordSynced(db, "web", [{ id: "one", ...tree("a") }]);
  assert.equal(doubt(), false, "the promoted files are back");
  startAnew(db, [{ job: "web", id: "one" }]);
  assert.equal(doubt(), true);
});
