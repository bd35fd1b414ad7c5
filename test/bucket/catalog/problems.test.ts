import assert from "node:assert/strict";
import { test } from "node:test";
import { catalogAllocations } from "../../../lib/bucket/catalog/catalog.ts";
import { setLastOutcome } from "../../../lib/bucket/catalog/info.ts";
import { jobMap, mapCell } from "../../../lib/bucket/catalog/map.ts";
import { causeOf, problemsOf } from "../../../lib/bucket/catalog/problems.ts";
import { beginChange, promote, recordSynced } from "../../../lib/bucket/catalog/promotions.ts";
import type { LAST_OUTCOMES } from "../../../lib/bucket/catalog/states.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { makeBucket } from "../../helpers/workspace.ts";

test("reasons of one cause are the same, and those of two causes are not", () => {
  const same = [
    [
      "`make restart` of job web on  failed: exit code 2: pid 4711 cannot bind 10.0.0.7:8080",
      "`make start` of job web on  failed: exit code 3: pid 12 cannot bind 10.2.0.117:443",
    ],
    [
      '/opt/ops/0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70/jobs/web: "conf/a b.json" is missing, see 1f8a09c3',
      '/opt/ops/0198f3a2-7b44-7c02-8e11-2a9d4c6b8f10/jobs/web: "x" is missing, see 22e9aa07c3',
    ],
    ["cannot read 'a.conf': it's not there", "cannot read 'b.conf': it's not there"],
  ];
  for (const [one = "", other = ""] of same) assert.equal(causeOf(one), causeOf(other));
  const causes = same.map(([one = ""]) => causeOf(one));
  assert.equal(new Set([...causes, causeOf("no disk"), causeOf("no space left on the disk"), causeOf("it's full")]).size, 6);
  assert.equal(causeOf("cannot read 'a.conf': it's not there"), "cannot read : it's not there");
  assert.equal(causeOf("x ".repeat(500)).length, 200);
  assert.equal(causeOf("a defaced facade"), "a defaced facade", "words of the letters a to f are no ids");
});

type Outcome = (typeof LAST_OUTCOMES)[number];

/** Two jobs on 30 workers, all of them promoted and well. */
async function deployed(t: Parameters<typeof makeBucket>[0]) {
  const job = { version: "1.0.0", selectors: ["worker"] };
  const hosts = Array.from({ length: 30 }, (_, index) => `10.0.0.${index + 1}`);
  const bucket = await makeBucket(t, { workers: hosts, jobs: { db: job, web: job } });
  await build(bucket.context("build"), {});
  const { db } = bucket;
  const ids = new Map(catalogAllocations(db).map(({ job, worker, id }) => [`${job}@${worker}`, id]));
  const idOf = (place: string) => ids.get(place) ?? "";
  for (const job of ["db", "web"]) {
    const own = hosts.map((host) => idOf(`${job}@${host}`));
    beginChange(db, job, own);
    const synced = own.map((id) => ({ id, hash: "h", files: {}, updateSeq: 1 }));
    recordSynced(db, job, synced);
    for (const id of own) promote(db, { job, id }, "1.0.0");
  }
  const note = (place: string, outcome: Outcome, reason = "", run = "run-1", action = "restart") =>
    setLastOutcome(db, idOf(place), run, { action, outcome, reason });
  const sinceOf = (place: string) => {
    const [job = "", worker = ""] = place.split("@");
    return mapCell(db, job, worker).since;
  };
  const begin = (place: string) => beginChange(db, place.split("@")[0] ?? "", [idOf(place)]);
  const finish = (place: string) => {
    const job = place.split("@")[0] ?? "";
    recordSynced(db, job, [{ id: idOf(place), hash: "i", files: {}, updateSeq: 2 }]);
    promote(db, { job, id: idOf(place) }, "1.0.0");
  };
  return { db, hosts, note, sinceOf, begin, finish };
}

test("CP-433 allocations that failed for one cause are one problem, an unreachable worker is one, in the order of worth", async (t) => {
  const { db, hosts, note, begin } = await deployed(t);
  assert.deepEqual(problemsOf(db, null), []);
  const failed = (place: string, port: number, run = "run-1") =>
    note(place, "failed", `\`make restart\` of job web on ${place.slice(4)} failed: port ${port} is taken`, run);
  for (const [index, host] of hosts.slice(0, 25).entries()) failed(`web@${host}`, index);
  failed("web@10.0.0.3", 99, "run-2");
  note("web@10.0.0.26", "failed", "no disk");
  note("db@10.0.0.1", "failed", "no disk");
  for (const job of ["db", "web"]) note(`${job}@10.0.0.30`, "unreachable", `10.0.0.30: connecting took too long (${job})`);
  for (const host of ["10.0.0.28", "10.0.0.29"]) {
    note(`db@${host}`, "changed", "", "run-3", "sync");
    begin(`db@${host}`);
  }
  db.run("UPDATE allocations SET troubled_since = ? WHERE job = 'db'", new Date(Date.now() + 1_000).toISOString());
  const problems = problemsOf(db, null);
  const shown = problems.map(({ kind, job, action, worker_count, allocation_count, job_count, run_id }) => {
    return [kind, job, action, worker_count, allocation_count, job_count, run_id];
  });
  assert.deepEqual(shown, [
    ["failed", "web", "restart", 25, 25, 1, "run-2"],
    ["failed", "web", "restart", 1, 1, 1, "run-1"],
    ["failed", "db", "restart", 1, 1, 1, "run-1"],
    ["unreachable", null, "restart", 1, 2, 2, "run-1"],
    ["unsettled", "db", "sync", 2, 2, 1, "run-3"],
  ]);
  const [first, , , lost, half] = problems;
  assert.deepEqual(first?.workers, hosts.slice(0, 20), "the first by position");
  assert.equal(first?.reason, "`make restart` of job web on 10.0.0.3 failed: port 99 is taken", "of the newest run");
  assert.deepEqual([lost?.workers, lost?.jobs], [["10.0.0.30"], ["db", "web"]]);
  assert.deepEqual(half?.workers, ["10.0.0.28", "10.0.0.29"]);
  assert.ok(problems.every(({ since }) => Math.abs(Date.now() - Date.parse(since)) < 600_000));
  assert.deepEqual(
    problemsOf(db, "run-3").map(({ kind }) => kind),
    ["failed", "failed", "failed", "unreachable"],
    "what the active run has begun is no problem yet",
  );
  db.run("UPDATE allocations SET removed = 1");
  assert.deepEqual(problemsOf(db, null), []);
});

test("CP-434 trouble is dated from its beginning, whatever runs in between, until an action succeeds", async (t) => {
  const { db, note, sinceOf, begin, finish } = await deployed(t);
  const place = "web@10.0.0.1";
  const old = "2026-01-01T00:00:00.000Z";
  const age = () => {
    assert.notEqual(sinceOf(place), null);
    db.run("UPDATE allocations SET troubled_since = ? WHERE job = 'web' AND worker_ip = '10.0.0.1'", old);
  };
  const outlasts = (...outcomes: Outcome[]) => {
    for (const outcome of outcomes) {
      note(place, outcome);
      assert.equal(sinceOf(place), old, outcome);
    }
  };
  assert.equal(sinceOf(place), null);
  for (const outcome of ["unknown", "cancelled"] as const) {
    note(place, outcome);
    assert.equal(sinceOf(place), null, "an action that began is no trouble");
  }
  for (const bad of ["failed", "unreachable"] as const) {
    note(place, bad);
    age();
    outlasts("unknown", "failed", "cancelled", "unreachable", "unknown");
    note(place, "ok");
    assert.equal(sinceOf(place), null);
  }
  begin(place);
  age();
  outlasts("unknown", "changed", "ok");
  note(place, "unknown");
  finish(place);
  assert.equal(sinceOf(place), old, "promoted, and the gate is still to come");
  note(place, "changed");
  assert.equal(sinceOf(place), null);
  assert.equal(sinceOf("web@10.0.0.2"), null, "others have nothing to do with it");
});

test("CP-435 the map has a letter for each job on each worker", async (t) => {
  const { db, hosts, note, begin } = await deployed(t);
  const notes: [string, Outcome, string][] = [
    ["1", "failed", "deploy"],
    ["2", "unreachable", "deploy"],
    ["3", "changed", "deploy"],
    ["4", "changed", "older"],
    ["5", "cancelled", "deploy"],
    ["6", "ok", "deploy"],
    ["7", "changed", "deploy"],
  ];
  for (const [host, outcome, run] of notes) note(`web@10.0.0.${host}`, outcome, "", run);
  begin("web@10.0.0.7");
  const set = (host: string, what: string) =>
    db.run(`UPDATE allocations SET ${what} WHERE job = 'web' AND worker_ip = '10.0.0.${host}'`);
  set("8", "rollout = 'update'");
  set("9", "rollout = 'disabled'");
  set("10", "removed = 1");
  set("11", "rollout = 'stop'");
  const drifted = ["3", "6"].map((host) => ({ job: "web", worker: `10.0.0.${host}` }));
  const unknown = { job: "gone", worker: "10.0.0.1" };
  const { workers, jobs, cut, letters } = jobMap(db, "deploy", [...drifted, unknown]);
  assert.deepEqual(
    jobs.map(({ job, version, wave, cells }) => [job, version, wave, cells]),
    [
      ["db", "1.0.0", 0, "o".repeat(30)],
      ["web", "1.0.0", 0, `fuCoxOwwd d${"o".repeat(19)}`],
    ],
  );
  for (const { cells } of jobs) for (const letter of cells) assert.ok(Object.hasOwn(letters, letter.toLowerCase()), letter);
  assert.deepEqual(
    workers.map(({ worker }) => worker),
    hosts,
  );
  assert.deepEqual([workers[0]?.labels, workers[0]?.tags, cut], [["worker"], {}, { workers: 0, jobs: 0 }]);
  const { since, ...cell } = mapCell(db, "web", "10.0.0.1");
  assert.ok(since);
  assert.deepEqual(
    [cell.state, cell.action, cell.outcome, cell.run_id, cell.current_version, cell.new_version, cell.wave],
    ["promoted", "restart", "failed", "deploy", "1.0.0", "1.0.0", 0],
  );
  assert.equal(mapCell(db, "web", "10.0.0.7").state, "unsettled");
  assert.throws(() => mapCell(db, "web", "10.0.0.99"), { code: "not_found" });
});

test("of a long reason a problem keeps the first line and the line that tells most", async (t) => {
  const { db, note } = await deployed(t);
  const output = ["INFO  stopping", "FATAL no space left on device", ...Array.from({ length: 40 }, (_, n) => `INFO  step ${n}`)];
  note("web@10.0.0.1", "failed", ["`make restart` of job web failed: exit code 1:", ...output].join("\n"));
  const [problem] = problemsOf(db, null);
  assert.equal(problem?.reason, "`make restart` of job web failed: exit code 1:\nFATAL no space left on device");
});

test("a reason of 300 characters is told whole, and one more is cut; of more than 20 workers the first are named", async (t) => {
  const { db, hosts, note } = await deployed(t);
  const told = (reason: string) => {
    note("web@10.0.0.1", "failed", reason);
    return problemsOf(db, null)[0]?.reason;
  };
  for (const reason of ["x".repeat(300), `${"x".repeat(100)}\n${"y".repeat(199)}`]) assert.equal(told(reason), reason);
  assert.equal(told("x".repeat(301)), `${"x".repeat(299)}…`);
  assert.equal(told(`${"x".repeat(298)}😀y`), `${"x".repeat(298)}\ufffd…`, "no half of a character");
  const workers = (count: number) => {
    for (const host of hosts.slice(0, count)) note(`db@${host}`, "failed", "no disk");
    const { workers = [], worker_count } = problemsOf(db, null).find(({ job }) => job === "db") ?? {};
    return [workers.length, worker_count];
  };
  assert.deepEqual(
    [workers(20), workers(21)],
    [
      [20, 20],
      [20, 21],
    ],
  );
});

test("one cause is one problem for each job and action, and each unreachable worker is one", async (t) => {
  const { db, note } = await deployed(t);
  note("web@10.0.0.1", "failed", "no disk", "run-1", "start");
  note("web@10.0.0.2", "failed", "no disk", "run-1", "restart");
  note("db@10.0.0.2", "failed", "no disk", "run-1", "restart");
  note("web@10.0.0.3", "failed", "no room", "run-1", "restart");
  for (const host of ["4", "5"]) note(`web@10.0.0.${host}`, "unreachable", "no route");
  const found = problemsOf(db, null).map(({ kind, job, jobs, action, workers }) => [kind, job, jobs, action, workers].flat());
  assert.deepEqual(found.map((one) => one.join(" ")).sort(), [
    "failed db db restart 10.0.0.2",
    "failed web web restart 10.0.0.2",
    "failed web web restart 10.0.0.3",
    "failed web web start 10.0.0.1",
    "unreachable  web restart 10.0.0.4",
    "unreachable  web restart 10.0.0.5",
  ]);
  note("web@10.0.0.6", "failed", "no room", "run-1", "restart");
  const at = (day: number) => `2026-01-0${day}T00:00:00.000Z`;
  for (const [host, day] of [
    ["1", 4],
    ["2", 3],
    ["3", 2],
    ["6", 1],
    ["4", 1],
    ["5", 1],
  ] as const)
    db.run("UPDATE allocations SET troubled_since = ? WHERE worker_ip = ?", at(day), `10.0.0.${host}`);
  const order = problemsOf(db, null).map(
    ({ kind, since, allocation_count }) => `${kind} ${since.slice(8, 10)} ${allocation_count}`,
  );
  assert.deepEqual(
    order,
    ["failed 01 2", "failed 03 1", "failed 03 1", "failed 04 1", "unreachable 01 1", "unreachable 01 1"],
    "since the first of its allocations had trouble",
  );
});

test("a long reason is that of the newest run, as the problem's run is", async (t) => {
  const { db, note } = await deployed(t);
  const steps = Array.from({ length: 40 }, (_, n) => `INFO  step ${n}`);
  const failed = (place: string, last: string, run: string) =>
    note(place, "failed", ["`make restart` of job web failed: exit code 1:", ...steps, last].join("\n"), run);
  failed("web@10.0.0.1", "FATAL no space left on device", "run-1");
  failed("web@10.0.0.2", "FATAL out of memory", "run-2");
  const [problem] = problemsOf(db, null);
  assert.deepEqual([problem?.allocation_count, problem?.run_id], [2, "run-2"]);
  assert.equal(problem?.reason, "`make restart` of job web failed: exit code 1:\nFATAL out of memory");
});
