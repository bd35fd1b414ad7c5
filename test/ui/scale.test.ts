import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { openDatabase } from "../../lib/bucket/base/database.ts";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { setLastOutcome } from "../../lib/bucket/catalog/info.ts";
import { beginChange, promote, recordSynced } from "../../lib/bucket/catalog/promotions.ts";
import { LocalServer } from "../../scripts/local-server.ts";
import { patience } from "../../scripts/patience.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

const [JOBS, WORKERS] = [10, 1_000];
/** A task of the page that takes longer is noticed by who types or scrolls. */
const LONGEST_TASK_MS = 200;
const hostOf = (index: number) => `10.0.${index >> 8}.${index & 255}`;

/** All allocations of the first nine jobs are promoted; of them 3 have failed, 2 were unreachable; 4 changes are half-way. */
function deployed(folder: string): void {
  using db = openDatabase(layoutOf(folder).database);
  const rows = db.all<{ alloc_id: string; job: string }>("SELECT alloc_id, job FROM allocations WHERE job <> 'job9'");
  for (const [job, own] of Map.groupBy(rows, (row) => row.job)) {
    const ids = own.map((row) => row.alloc_id);
    beginChange(db, job, ids);
    const updateSeq = 1;
    recordSynced(
      db,
      job,
      ids.map((id) => ({ id, hash: "h", files: {}, updateSeq })),
    );
    db.transaction(() => {
      for (const id of ids) promote(db, { job, id }, "1.0.0");
    });
  }
  const last = (outcome: "failed" | "unreachable") => ({ action: "restart", outcome, reason: "no disk" }) as const;
  for (const { alloc_id } of rows.slice(0, 3)) setLastOutcome(db, alloc_id, "run", last("failed"));
  for (const { alloc_id } of rows.slice(3, 5)) setLastOutcome(db, alloc_id, "run", last("unreachable"));
  beginChange(
    db,
    "job0",
    rows
      .filter(({ job }) => job === "job0")
      .slice(10, 14)
      .map(({ alloc_id }) => alloc_id),
  );
}

test("CP-384 the console opens 10,000 allocations with right counts, and no task of the page is long", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const server = await LocalServer.start(root);
  t.after(() => server.stop());
  const bucket = await server.createBucket("large");
  const job = { version: "1.0.0", selectors: ["worker"] };
  makeWorkspace(path.join(root, bucket), {
    workers: Array.from({ length: WORKERS }, (_, index) => hostOf(index)),
    jobs: Object.fromEntries(Array.from({ length: JOBS }, (_, index) => [`job${index}`, job])),
  });
  await server.run(bucket, "build");
  deployed(path.join(root, bucket));
  const ui = await ConsolePage.open(server.url);
  t.after(() => ui.close());
  await ui.page.addInitScript(`globalThis.tasks = [];
    new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: "longtask" })`);
  await ui.goTo("");
  await ui.signIn(server.token);
  const textOf = async (name: string) => {
    await ui.view(bucket, name);
    return await ui.page.locator("#view").innerText();
  };
  const overview = (await textOf("")).replace(/\s+/g, " ");
  for (const told of ["10000 allocations", "8996 promoted", "3 failed", "2 unreachable", "4 unsettled", "1000 new", "4 update"])
    assert.ok(overview.includes(told), `${told}: ${overview.slice(0, 400)}`);
  const row = async (name: string) => (await ui.page.getByRole("row", { name }).first().innerText()).split("\t");
  await ui.view(bucket, "jobs");
  assert.deepEqual((await row("job9")).slice(0, 3), ["job9", "new", "1000"]);
  await ui.view(bucket, "workers");
  const [, , , jobs] = await row(`${hostOf(5)} `);
  assert.equal(jobs, "10, 1 behind");
  for (const [name, told] of [
    ["catalog/deployments", "10000 rows"],
    ["catalog/jobs", "10 rows"],
    ["jobs/job0", "1000 rows"],
  ] as const)
    assert.match(await textOf(name), new RegExp(told));
  const tasks = await ui.page.evaluate<number[]>("tasks");
  assert.ok(Math.max(0, ...tasks) <= patience(LONGEST_TASK_MS), `tasks of ${tasks.map(Math.round).join(", ")} ms`);
  ui.checkPeace();
});
