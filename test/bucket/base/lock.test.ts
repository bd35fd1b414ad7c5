import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import promises, { open } from "node:fs/promises";
import { hostname } from "node:os";
import { type TestContext, test } from "node:test";
import { type Layout, layoutOf } from "../../../lib/bucket/base/layout.ts";
import {
  acquireLock,
  busyFailure,
  heldBy,
  isOwned,
  isStale,
  type LockContent,
  readLock,
  takeOver,
} from "../../../lib/bucket/base/lock.ts";
import { bootId, hasMembers, identify, isAlive, type ProcessIdentity, signalProcess } from "../../../lib/core/process.ts";
import { patience } from "../../../scripts/patience.ts";
import { failing } from "../../helpers/faults.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

function bucket(t: Parameters<typeof temporaryFolder>[0]): Layout {
  const layout = layoutOf(temporaryFolder(t));
  mkdirSync(layout.data);
  return layout;
}

function content(change: Partial<LockContent> = {}): LockContent {
  return {
    run_id: "019a0000-0000-7000-8000-000000000000",
    command: "deploy",
    since: "2026-01-02T03:04:05.000Z",
    boot_id: bootId(),
    host: hostname(),
    holders: [identify(process.pid) as ProcessIdentity],
    groups: [],
    ending: false,
    ...change,
  };
}

const gone: ProcessIdentity = { pid: process.pid, start_time: "1" };
const busy = { code: "bucket_busy", message: "bucket busy: another ops operation is in progress" };

test("CP-076 CP-118 the lock is data/ops.lock and names run, command, machine and owner", async (t) => {
  const layout = bucket(t);
  const lock = await acquireLock(layout, "run-1", "build");
  const found = JSON.parse(readFileSync(layout.lock, "utf8")) as LockContent;
  assert.deepEqual(found.holders, [identify(process.pid)]);
  assert.equal(found.run_id, "run-1");
  assert.equal(found.command, "build");
  assert.equal(found.boot_id, bootId());
  await lock.release();
  assert.equal(await readLock(layout), undefined);
});

test("CP-122 a second taker is told the contract's sentence and who holds the lock", async (t) => {
  const layout = bucket(t);
  const lock = await acquireLock(layout, "run-1", "build");
  await assert.rejects(acquireLock(layout, "run-2", "deploy"), (error: Error & { details: { holder: string } }) => {
    assert.equal(error.message, busy.message);
    assert.match(error.details.holder, /held by build \(run run-1\) on .*, process \d+, since \d{4}-/);
    return true;
  });
  await lock.release();
});

test("holders and groups appear in the file, changes at the same time share a write", async (t) => {
  const layout = bucket(t);
  const lock = await acquireLock(layout, "run-1", "build");
  await Promise.all([
    lock.addHolder({ pid: 4242, start_time: "7" }),
    lock.changeGroup("open", { pgid: 1, start_time: "1" }),
    lock.changeGroup("open", { pgid: 2, start_time: "2" }),
    lock.changeGroup("close", { pgid: 1, start_time: "1" }),
  ]);
  const found = (await readLock(layout)) as LockContent;
  assert.deepEqual(found.holders[1], { pid: 4242, start_time: "7" });
  assert.deepEqual(found.groups, [{ pgid: 2, start_time: "2" }]);
  await lock.release();
});

test("T-78 a lock is taken over when it is stale and only then", async (t) => {
  const cases: [name: string, lock: string, free: boolean][] = [
    ["its holder is gone", JSON.stringify(content({ holders: [gone] })), true],
    ["another process has its holder's pid", JSON.stringify(content({ holders: [{ pid: 1, start_time: "9999999" }] })), true],
    ["the machine was restarted", JSON.stringify(content({ boot_id: "another boot" })), true],
    ["it is empty", "", true],
    ["it is cut off", '{"run_id":"', true],
    ["it is not ours", '{"pid": 1}', true],
    ["its owner lives", JSON.stringify(content()), false],
    ["its owner lives and is of a later version", JSON.stringify({ ...content(), more: 1 }), false],
    ["its second holder lives", JSON.stringify(content({ holders: [gone, ...content().holders] })), false],
    ["it is of another machine", JSON.stringify(content({ boot_id: "x", host: "elsewhere", holders: [gone] })), false],
  ];
  for (const [name, text, free] of cases) {
    const layout = bucket(t);
    writeFileSync(layout.lock, text);
    if (free) await (await acquireLock(layout, "run-2", "build")).release();
    else await assert.rejects(acquireLock(layout, "run-2", "build"), busy, name);
    assert.equal((await readLock(layout)) === undefined, free, name);
  }
});

test("T-78 a lock whose owner releases it and ends while another process reads it is left to the next owner", async (t) => {
  const layout = bucket(t);
  const owner = spawn("sleep", ["60"], { stdio: "ignore" });
  t.after(() => owner.kill("SIGKILL"));
  const before = content({ holders: [identify(owner.pid as number) as ProcessIdentity] });
  writeFileSync(layout.lock, JSON.stringify(before));
  await using some = await open(layout.lock);
  const handles = Object.getPrototypeOf(some) as typeof some;
  const { readFile } = handles;
  let reads = 0;
  t.mock.method(handles, "readFile", async function (this: typeof some) {
    const bytes = await readFile.call(this, null);
    if (++reads > 1) return bytes;
    rmSync(layout.lock);
    owner.kill("SIGKILL");
    await once(owner, "exit");
    writeFileSync(layout.lock, JSON.stringify(content({ run_id: "next" })));
    return bytes;
  });
  assert.equal(await takeOver(layout, false), true);
  assert.ok(reads > 0);
  assert.equal(((await readLock(layout)) as LockContent | undefined)?.run_id, "next");
});

test("the sentence for another machine says which file to remove", async (t) => {
  const layout = bucket(t);
  writeFileSync(layout.lock, JSON.stringify(content({ boot_id: "x", host: "elsewhere" })));
  await assert.rejects(acquireLock(layout, "run-2", "build"), (error: Error & { details: { holder: string } }) => {
    assert.ok(error.details.holder.includes("elsewhere"));
    assert.ok(error.details.holder.includes(`remove ${layout.lock}`));
    return true;
  });
});

test("CP-120 the groups that a dead holder left are ended before the lock is free, a daemon is not", async (t) => {
  const layout = bucket(t);
  const leader = spawn("sh", ["-c", "trap '' TERM; echo deaf; sleep 60 & wait; sleep 60"], {
    detached: true,
    stdio: ["ignore", "pipe", "ignore"],
  });
  await once(leader.stdout, "data");
  const daemon = spawn("sleep", ["60"], { detached: true, stdio: "ignore" });
  t.after(() => daemon.kill("SIGKILL"));
  const group = { pgid: leader.pid as number, start_time: identify(leader.pid as number)?.start_time as string };
  const finished = { pgid: daemon.pid as number, start_time: "1" };
  writeFileSync(layout.lock, JSON.stringify(content({ holders: [gone], groups: [group, finished] })));
  const exited = once(leader, "exit");
  await (await acquireLock(layout, "run-2", "build")).release();
  assert.equal((await exited)[1], "SIGKILL");
  assert.ok(identify(daemon.pid as number), "what a finished leader left running is not touched");
});

test("at a server's start a run process that outlived its server is ended, a living owner is left alone", async (t) => {
  const layout = bucket(t);
  const orphan = spawn("sleep", ["60"], { detached: true, stdio: "ignore" });
  const exited = once(orphan, "exit");
  const identity = identify(orphan.pid as number) as ProcessIdentity;
  writeFileSync(layout.lock, JSON.stringify(content({ holders: [content().holders[0] as ProcessIdentity, identity] })));
  await takeOver(layout, true);
  assert.ok(isAlive(identity), "the owner lives: nothing happens");
  writeFileSync(layout.lock, JSON.stringify(content({ holders: [gone, identity] })));
  await takeOver(layout, true);
  await exited;
  assert.equal(await readLock(layout), undefined);
});

/** A process group that ignores TERM, and whose leader is gone, as bash is after a TERM. */
async function leaderlessGroup(t: TestContext): Promise<number> {
  const leader = spawn("sh", ["-c", "trap '' TERM; sleep 60 & echo left"], {
    detached: true,
    stdio: ["ignore", "pipe", "ignore"],
  });
  const pgid = leader.pid as number;
  t.after(() => signalProcess(-pgid, "SIGKILL"));
  await once(leader, "exit");
  return pgid;
}

test("CP-120 T-77 what ignores TERM in a group that an orphaned run process was ending is gone before the lock", async (t) => {
  const layout = bucket(t);
  // Stands for the run process.
  const orphan = spawn("sleep", ["60"], { detached: true, stdio: "ignore" });
  const pgid = await leaderlessGroup(t);
  const groups = [{ pgid, start_time: "1" }];
  writeFileSync(layout.lock, JSON.stringify(content({ holders: [gone], groups })));
  await takeOver(layout, true);
  assert.ok(hasMembers(pgid), "without that run process it may be a daemon");
  const exited = once(orphan, "exit");
  const holders = [gone, identify(orphan.pid as number) as ProcessIdentity];
  writeFileSync(layout.lock, JSON.stringify(content({ holders, groups })));
  await takeOver(layout, true);
  await exited;
  assert.deepEqual([hasMembers(pgid), await readLock(layout)], [false, undefined]);
});

test("CP-120 T-77 what ignores TERM in a group of a run that was told to stop is gone before the lock, whoever was killed", async (t) => {
  const layout = bucket(t);
  const pgid = await leaderlessGroup(t);
  const lock = await acquireLock(layout, "run-1", "deploy");
  await lock.changeGroup("open", { pgid, start_time: "1" });
  await lock.tellEnding();
  const left = (await readLock(layout)) as LockContent;
  assert.equal(left.ending, true);
  writeFileSync(layout.lock, JSON.stringify({ ...left, holders: [gone] }));
  await (await acquireLock(layout, "run-2", "build")).release();
  assert.equal(hasMembers(pgid), false);
});

test("two who find the same dead holder in one process do not wait for each other", { timeout: patience(10_000) }, async (t) => {
  const layout = bucket(t);
  const leader = spawn("sh", ["-c", "trap '' TERM; echo; sleep 60 & wait; sleep 60"], {
    detached: true,
    stdio: ["ignore", "pipe", "ignore"],
  });
  await once(leader.stdout, "data");
  const group = { pgid: leader.pid as number, start_time: identify(leader.pid as number)?.start_time as string };
  writeFileSync(layout.lock, JSON.stringify(content({ holders: [gone], groups: [group] })));
  const taken = await Promise.allSettled([acquireLock(layout, "run-2", "build"), acquireLock(layout, "run-3", "deploy")]);
  assert.deepEqual(taken.map((one) => one.status).sort(), ["fulfilled", "rejected"]);
  for (const one of taken)
    if (one.status === "fulfilled") {
      assert.equal(one.value.abandoned, "019a0000-0000-7000-8000-000000000000");
      await one.value.release();
    } else assert.equal((one.reason as { code: string }).code, "bucket_busy");
});

test("a lock that somebody removed is made again by the next change", async (t) => {
  const layout = bucket(t);
  const lock = await acquireLock(layout, "run-1", "build");
  rmSync(layout.lock);
  await lock.changeGroup("open", { pgid: 7, start_time: "1" });
  assert.deepEqual(((await readLock(layout)) as LockContent).groups, [{ pgid: 7, start_time: "1" }]);
  await assert.rejects(acquireLock(layout, "run-2", "build"), busy);
  await lock.release();
  assert.equal(await readLock(layout), undefined);
});

test("a lock that somebody removed and another operation took is left to that one", async (t) => {
  const layout = bucket(t);
  const first = await acquireLock(layout, "run-1", "build");
  rmSync(layout.lock);
  const second = await acquireLock(layout, "run-2", "deploy");
  await assert.rejects(first.changeGroup("open", { pgid: 7, start_time: "1" }), { code: "bucket_busy" });
  await first.release();
  assert.equal(((await readLock(layout)) as LockContent).run_id, "run-2");
  await second.release();
});

test("a change that cannot be written is told, and keeps the lock from nothing else; after the release changes do nothing", async (t) => {
  const layout = bucket(t);
  const lock = await acquireLock(layout, "run-1", "build");
  mkdirSync(`${layout.data}/.ops.lock.update`);
  const change = lock.changeGroup("open", { pgid: 7, start_time: "1" });
  await Promise.all([assert.rejects(change, { code: "EISDIR" }), lock.release()]);
  assert.equal(await readLock(layout), undefined);
  await lock.changeGroup("close", { pgid: 7, start_time: "1" });
  assert.equal(await readLock(layout), undefined);
});

test("half-written lock files of killed processes are removed with a stale lock, once they are a minute old", async (t) => {
  const layout = bucket(t);
  const minutesAgo = (count: number) => new Date(Date.now() - count * 60_000);
  for (const [name, age] of [
    [".ops.lock.old.tmp", 2],
    [".ops.lock.new.tmp", 0],
    [".ops.lock.old", 2],
    ["ops.old.tmp", 2],
  ] as const) {
    writeFileSync(`${layout.data}/${name}`, "");
    utimesSync(`${layout.data}/${name}`, minutesAgo(age), minutesAgo(age));
  }
  writeFileSync(layout.lock, JSON.stringify(content({ holders: [gone] })));
  await takeOver(layout, false);
  assert.deepEqual(
    readdirSync(layout.data)
      .filter((name) => name.includes("old") || name.includes("new"))
      .sort(),
    [".ops.lock.new.tmp", ".ops.lock.old", "ops.old.tmp"],
  );
});

test("a link in the place of the lock is refused, and is no lock that could be taken over", async (t) => {
  const layout = bucket(t);
  writeFileSync(`${layout.data}/elsewhere`, JSON.stringify(content()));
  symlinkSync("elsewhere", layout.lock);
  await assert.rejects(readLock(layout), { code: "file_not_found" });
  await assert.rejects(acquireLock(layout, "r", "build"), { code: "file_not_found" });
});

test("a lock that can neither be made nor be found is not tried for without an end", async (t) => {
  failing(t, promises, "link", "EEXIST");
  await assert.rejects(acquireLock(bucket(t), "r", "build"), { code: "bucket_busy" });
});

test("who holds a lock is told as long as somebody may; a lock is owned as long as its first holder may live", async (t) => {
  const elsewhere = { boot_id: "another boot", host: "elsewhere" };
  const cases: [change: Partial<LockContent>, stale: boolean, owned: boolean][] = [
    [{}, false, true],
    [{ holders: [gone] }, true, false],
    [{ holders: [gone, ...content().holders] }, false, false],
    [{ holders: [...content().holders, gone] }, false, true],
    [{ holders: [] }, true, false],
    [{ boot_id: "another boot" }, true, false],
    [{ ...elsewhere, holders: [gone] }, false, true],
  ];
  for (const [change, stale, owned] of cases) {
    const layout = bucket(t);
    const lock = content(change);
    assert.deepEqual([isStale(lock), isOwned(lock)], [stale, owned], JSON.stringify(change));
    writeFileSync(layout.lock, JSON.stringify(lock));
    assert.equal((await heldBy(layout)) === undefined, stale, JSON.stringify(change));
  }
  const layout = bucket(t);
  assert.equal(await heldBy(layout), undefined);
  writeFileSync(layout.lock, "no lock");
  assert.deepEqual([await heldBy(layout), await readLock(layout)], [undefined, "unreadable"]);
  const own = content();
  writeFileSync(layout.lock, JSON.stringify(own));
  const { run_id, command, since, host } = own;
  const holder = `held by deploy (run ${run_id}) on ${host}, process ${process.pid}, since ${since}`;
  assert.deepEqual(await heldBy(layout), { run_id, command, since, host, pid: process.pid, holder });
  const { details, ...failure } = busyFailure({ a: 1 });
  assert.deepEqual([failure.code, details, busyFailure().details], ["bucket_busy", { a: 1 }, undefined]);
});

test("where there is no lock there is nothing to take over", async (t) => {
  for (const endHolders of [false, true]) assert.equal(await takeOver(bucket(t), endHolders), true);
});

test("what is no lock in its fields is none: it can be taken over", async (t) => {
  const layout = bucket(t);
  const read = async (change: object) => {
    writeFileSync(layout.lock, JSON.stringify({ ...content(), ...change }));
    return (await readLock(layout)) === "unreadable";
  };
  const right = [{ later: 1 }, { ending: undefined }, { groups: [{ pgid: 1, start_time: "", later: 1 }] }];
  const wrong = [
    ...["run_id", "command", "since", "boot_id", "host", "holders", "groups"].map((name) => ({ [name]: undefined })),
    ...[
      { ending: 1 },
      { holders: [{ pid: 0, start_time: "" }] },
      { groups: [{ pgid: 0, start_time: "" }] },
      { groups: [{ pgid: 1 }] },
    ],
  ];
  for (const change of right) assert.equal(await read(change), false, JSON.stringify(change));
  for (const change of wrong) assert.equal(await read(change), true, JSON.stringify(change));
});
