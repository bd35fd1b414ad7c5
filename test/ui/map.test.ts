import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { openDatabase } from "../../lib/bucket/base/database.ts";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { setLastOutcome } from "../../lib/bucket/catalog/info.ts";
import { beginChange, promote, recordSynced } from "../../lib/bucket/catalog/promotions.ts";
import { LocalServer } from "../../scripts/local-server.ts";
// @ts-expect-error: the console is JavaScript.
import * as model from "../../ui/parts/map/model.js";
// @ts-expect-error: the console is JavaScript.
import { manyIn } from "../../ui/run/progress.js";
import { ConsolePage } from "../helpers/browser.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

const [JOBS, WORKERS] = [10, 1_000];
const hostOf = (index: number) => `10.0.${index >> 8}.${index & 255}`;

interface Band {
  label: string;
  size: number;
  columns: { label: string; of: number[] }[];
}
const named = (names: readonly string[], tags: (index: number) => Record<string, string> = () => ({})) =>
  names.map((worker, index) => ({ worker, tags: tags(index) }));
const bandsOf = (names: readonly string[], most?: number): Band[] => model.bandsOf(named(names), "name", most);
const labelsOf = (bands: readonly Band[]) => bands.map(({ label, columns }) => [label, ...columns.map((one) => one.label)]);

test("workers stand in bands by the common part of their names, of which the rest is shown", () => {
  const fleet = Array.from({ length: 12 }, (_, index) => `ams-${"abc"[index % 3]}-${String(index + 1).padStart(3, "0")}`);
  assert.deepEqual(labelsOf(bandsOf(fleet)), [
    ["ams-a", "01", "04", "07", "10"],
    ["ams-b", "02", "05", "08", "11"],
    ["ams-c", "03", "06", "09", "12"],
  ]);
  assert.equal(model.cornerOf(model.cutNames(fleet)), "ams-?-0");
  assert.deepEqual(labelsOf(bandsOf(["127.0.0.1", "127.0.0.2"])), [["127.0.0", "1", "2"]]);
  assert.deepEqual(labelsOf(bandsOf(["db.shop.example", "web.shop.example"])), [["", "db", "web"]]);
  assert.deepEqual(bandsOf([]), []);
});

test("many workers stand in at most so many columns, and each of them in one", () => {
  const racks = Array.from({ length: 1_000 }, (_, index) => `lis-r${String(index % 75).padStart(2, "0")}-${index}`);
  const numbered = Array.from({ length: 1_000 }, (_, index) => `node${index}`);
  const addresses = Array.from({ length: 1_000 }, (_, index) => hostOf(index));
  for (const names of [racks, numbered, addresses])
    for (const most of [28, 6]) {
      const columns = bandsOf(names, most).flatMap((band) => band.columns);
      assert.ok(columns.length <= most + 4 && columns.length > 1, `${columns.length} columns of ${names[0]}`);
      assert.deepEqual(
        columns.flatMap(({ of }) => of).sort((one, other) => one - other),
        names.map((_, index) => index),
      );
    }
});

test("workers can be grouped by each tag with 2 to 40 values", () => {
  const workers = named(
    Array.from({ length: 60 }, (_, index) => `w${index}`),
    (index) => ({ rack: `r${index % 5}`, all: "same", id: String(index) }),
  );
  assert.deepEqual(model.groupings(workers), ["name", "rack"]);
  assert.deepEqual(
    (model.bandsOf(workers, "rack") as Band[]).map(({ label, size }) => [label, size]),
    ["r0", "r1", "r2", "r3", "r4"].map((label) => [label, 12]),
  );
});

test("labels that not all workers have are a tag, and where some workers are is told by the tag that tells most", () => {
  const names = Array.from({ length: 24 }, (_, index) => `w${index}`);
  const tags = (index: number) => ({ rack: `r${index % 6}`, zone: index % 2 === 0 ? "north" : "south" });
  const labels = (index: number) => ["all", ...(index < 4 ? ["db", "ssd"] : [])];
  const workers = model.labelled(named(names, tags).map((one, index) => ({ ...one, labels: labels(index) })));
  assert.deepEqual(model.groupings(workers), ["name", "label", "rack", "zone"]);
  assert.deepEqual(
    (model.bandsOf(workers, "label") as Band[]).map(({ label, size }) => [label, size]),
    [
      ["db + ssd", 4],
      ["none", 20],
    ],
  );
  assert.equal(model.whereabouts(["w1", "w7", "w13", "w2"], workers), "in 2 racks: r1 3, r2 1");
  assert.equal(model.whereabouts(["w4", "w10"], workers), "in rack r4");
  assert.equal(model.whereabouts(names, workers), "");
});

test("rows with trouble come first, then by name; what only an unreachable worker has counts as well", () => {
  const jobs = Object.entries({ b: "oo", a: "ou", w: "ow", r: "ro", f: "fo", d: "dd" }).map(([job, cells]) => ({
    job,
    counts: model.tally(cells),
  }));
  const order = (model.ordered(jobs) as typeof jobs).map(({ job }) => job);
  assert.deepEqual(order, ["f", "r", "w", "a", "b", "d"]);
  assert.deepEqual(
    jobs
      .filter(model.isWell)
      .map(({ job }) => job)
      .sort(),
    ["a", "b", "d"],
  );
  assert.deepEqual(model.tally("oOF d"), { hand: 2, o: 2, f: 1, d: 1 });
});

test("what a run has reached stands over what was read, until its job has left the run", () => {
  const hosts = (...states: [string, string][]) => states.map(([worker, state]) => ({ worker, state }));
  const first = model.reached(new Map(), [
    { job: "a", hosts: hosts(["one", "running"], ["two", "not_started"], ["three", "changed"]) },
  ]);
  const workers = ["one", "two", "three"].map((worker) => ({ worker }));
  const shown = (job: string, cells: string, letters: unknown, left: string[] = []): string =>
    model.jobsNow({ workers, jobs: [{ job, cells }] }, letters, new Set(left))[0].cells;
  assert.equal(shown("a", "ooo", first), "rwc");
  const next = model.reached(first, [{ job: "b", hosts: hosts(["one", "unreachable"]) }]);
  assert.equal(shown("a", "cow", next), "coc");
  assert.equal(shown("b", "o", next), "u");
  const off = model.reached(new Map(), [{ job: "a", hosts: hosts(["one", "skipped"], ["two", "unreachable"]) }]);
  assert.equal(shown("a", "dd", off), "du", "what is disabled and skipped stays disabled");
  assert.equal(shown("a", "oCd", new Map(), ["a"]), "wWd", "what a forced deploy has not begun waits");
});

test("waits that are told as one count as many as they are", () => {
  assert.equal(manyIn([{ on: "base: sync, and 38 more", more: 38 }, { on: "app@one: sync" }]), 40);
});

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

test("CP-384 the console shows 10,000 allocations with right counts, and no view has an element for each of them", async (t) => {
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
  const ui = await ConsolePage.open(server.url, { width: 1440, height: 900 });
  t.after(() => ui.close());
  await ui.goTo("");
  await ui.signIn(server.token);
  await ui.view(bucket, "");
  const main = ui.page.getByRole("main");
  await main.getByRole("heading", { name: /^5 problems since/ }).waitFor();
  await main.getByText("8,991 of 10,000 allocations are up to date").waitFor();
  const chips = await main.getByRole("group", { name: "Filter by state" }).first().getByRole("button").allTextContents();
  assert.deepEqual(chips, ["3failed", "2unreachable", "1,004waiting for a deploy", "8,991ok"]);
  assert.ok((await main.getByRole("gridcell").count()) <= 2_400);
  const first = main.getByRole("gridcell", { name: /^job0 on 10\.0\.0 0–39, 1 failed, 1 waiting, 38 ok$/ });
  await first.click();
  await main.getByRole("heading", { name: /^job0 on 10\.0\.0 0–39, 40 workers$/ }).waitFor();
  assert.equal(await main.locator(".places button").count(), 40);
  await ui.view(bucket, "jobs");
  const row = (name: string) => main.getByRole("row", { name: new RegExp(`^${name} `) });
  assert.match(await row("job9").innerText(), /waiting\s+0 of 1,000\s+1,000 waiting/);
  assert.match(await row("job0").innerText(), /failed\s+996 of 1,000\s+1 failed\s*4 waiting\s/);
  await ui.view(bucket, "jobs/job0");
  await main.getByText("1,000 rows").waitFor();
  await ui.view(bucket, "workers");
  await main.getByRole("row", { name: new RegExp(`^${hostOf(5)} `.replaceAll(".", "\\.")) }).waitFor();
  // The rows come over several frames: a place far down is there again all the same.
  const last = main.getByRole("row", { name: new RegExp(`^${hostOf(199)} `.replaceAll(".", "\\.")) });
  await last.scrollIntoViewIfNeeded();
  const place = () => ui.page.evaluate<number>("document.getElementById('view').scrollTop");
  const left = await place();
  assert.ok((await styledWithRow(ui)) < 500, "a new row styles the whole page again");
  await ui.view(bucket, "catalog/deployments");
  await main
    .getByText(/^[\d,]+ rows|rows, cut/)
    .first()
    .waitFor();
  assert.ok((await main.getByRole("row").count()) <= 2_400);
  await ui.page.goBack();
  await last.waitFor();
  await until("the place in the list", async () => (await place()) === left);
  await ui.view(bucket, "");
  await first.click();
  await ui.checkBarriers("a map of 1,000 workers");
  ui.checkPeace();
});

/** The most elements that the browser styles at once because a row comes: a `:has` in a sheet can make it all of them. */
async function styledWithRow({ page }: ConsolePage): Promise<number> {
  const browser = page.context().browser();
  await browser?.startTracing(page, { categories: ["devtools.timeline"] });
  await page.evaluate(`(() => {
    const rows = document.querySelector("main tbody");
    rows.append(rows.lastElementChild.cloneNode(true));
    getComputedStyle(rows.lastElementChild).color;
    rows.lastElementChild.remove();
  })()`);
  const { traceEvents } = JSON.parse(String(await browser?.stopTracing())) as {
    traceEvents: { name: string; args: { elementCount?: number } }[];
  };
  const counts = traceEvents.filter(({ name }) => name === "UpdateLayoutTree").map(({ args }) => args.elementCount ?? 0);
  assert.ok(counts.length > 0, "the trace has no styling");
  return Math.max(...counts);
}
