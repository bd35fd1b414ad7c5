import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { deployTrouble, deployTroubled, FLEET, writeSource } from "../helpers/troubled.ts";

const base = temporaryFolder();
const [source, workers] = [path.join(base, "source"), path.join(base, "workers")];
let server: LocalServer;
let ui: ConsolePage;
let bucket: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  bucket = await deployTrouble(server, base);
  ui = await ConsolePage.signedIn(server, { width: 1440, height: 900 });
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

const main = () => ui.page.getByRole("main");
const dialog = () => ui.page.getByRole("dialog");
const needs = () => main().locator(".attention li");
const rowOf = (text: string) => needs().filter({ hasText: text });
const cell = (name: string | RegExp) => main().getByRole("gridcell", { name });
const menu = (name: string) => ui.page.getByRole("menuitem", { name, exact: true });

/** The path and the body of what a step sends to the bucket. */
const sent = async (act: () => Promise<unknown>) => (await ui.sent(server, bucket, act)).slice(1);

test("the title says what is the matter, and each cause is one row: what failed, since when, in the worker's own words", async () => {
  await ui.view(bucket, "");
  await main()
    .getByRole("heading", { name: /^4 problems since \d\d:\d\d$/ })
    .waitFor();
  await main()
    .getByText(/^2 jobs failed, 1 worker is unreachable and 1 job changed by hand/)
    .waitFor();
  // First the reason is as the summary has it; its line of the log is read then.
  await rowOf("kafka").locator(".reason", { hasText: "U+202E" }).waitFor();
  assert.match(await rowOf("kafka").innerText(), /^kafka is down on ams-a-002: it did not restart\s+since \d\d:\d\d/);
  assert.match(await rowOf("search").innerText(), /^search failed its gate on ams-b-003: it was put back\s+since/);
  assert.match(await rowOf("ams-b-004").innerText(), /^ams-b-004 cannot be reached.*3 jobs went on regardless/s);
  assert.match(await rowOf("nginx").innerText(), /^nginx was changed by hand on ams-a-001\s+since/);
  const marks = needs().locator("svg.mark:not(button *)");
  const kinds = await marks.evaluateAll((all) => all.map((one) => (one as unknown as { ariaLabel: string }).ariaLabel));
  assert.deepEqual(kinds, ["failed", "failed", "unreachable", "hand"]);
  const reason = await rowOf("kafka").locator(".reason").innerText();
  assert.match(reason, /^FATAL could not open "\/srv\/U\+202Ekafka": No space left on device$/);
  await ui.checkBarriers("a failing overview");
});

test("the question about what failed names first what failed, then what could not be reached", async () => {
  const { body } = await server.call<{ items: { id: string }[] }>("GET", `/api/buckets/${bucket}/runs?kind=deploy&limit=1`);
  await ui.view(bucket, `runs/${body.items[0]?.id}?tab=summary`);
  await ui.button("Retry what failed …").click();
  await dialog().getByText("nginx").waitFor();
  assert.deepEqual(await dialog().locator("tbody th").allTextContents(), ["kafka", "search", "nginx"]);
  await ui.page.keyboard.press("Escape");
  await ui.view(bucket, "");
});

test("the rail tells the last runs, what was changed by hand, and the source", async () => {
  const rail = main().locator(".rail");
  await rail.getByRole("img", { name: /^Last \d runs: \d succeeded, 1 failed$/ }).waitFor();
  await rail.getByRole("link", { name: /nginx on ams-a-001/ }).waitFor();
  await rail.locator("li", { hasText: "nginx on ams-a-001" }).getByText("1 file").waitFor();
  await rail.getByText(/^Built, update sequence \d+$/).waitFor();
  assert.equal(await rail.locator(".runs li").count(), 5);
  assert.equal(await rail.getByRole("link", { name: "All 5" }).count(), 1);
});

test("a row is tried again by deploying its job, and the question counts what goes along", async () => {
  await rowOf("kafka").getByRole("button", { name: "Retry …" }).click();
  await dialog()
    .getByRole("row", { name: /^kafka 3 workers: 1 failed, 1 unreachable, 1 not started$/ })
    .waitFor();
  await dialog().getByRole("button", { name: "Cancel" }).click();
  await ui.page.keyboard.press("r");
  await dialog()
    .getByRole("row", { name: /^kafka / })
    .waitFor();
  await dialog()
    .getByRole("row", { name: /^search / })
    .waitFor();
  await dialog().getByRole("button", { name: "Cancel" }).click();
  await dialog().waitFor({ state: "hidden" });
});

test("Log of a row opens Activity at the line that tells why", async () => {
  await rowOf("kafka").getByRole("button", { name: "Log" }).click();
  await ui.page.getByRole("log").getByText("FATAL could not open").first().waitFor();
  await ui.page.keyboard.press("l");
});

test("an unreachable worker is asked again, and a command for it can be written", async () => {
  const [asked, body] = await sent(() => rowOf("ams-b-004").getByRole("button", { name: "Try again" }).click());
  assert.deepEqual([asked, body], ["workers/uptime", { workers: ["ams-b-004"] }]);
  await rowOf("ams-b-004").getByRole("button", { name: "More orders for this problem" }).click();
  await menu("Run a command there").click();
  await ui.page.waitForURL(/\/command\?workers=ams-b-004$/);
  await ui.page.locator("#view > .overview").waitFor({ state: "detached" });
});

test("a dismissed row is hidden in this browser until it fails again", async () => {
  await ui.view(bucket, "");
  await rowOf("kafka").getByRole("button", { name: "More orders for this problem" }).click();
  await menu("Dismiss").click();
  await rowOf("kafka").waitFor({ state: "detached" });
  await main()
    .getByRole("heading", { name: /^3 problems since/ })
    .waitFor();
  await ui.page.reload();
  await rowOf("search").waitFor();
  assert.equal(await rowOf("kafka").count(), 0);
  await ui.button("1 dismissed, show").click();
  await rowOf("kafka").waitFor();
  await ui.button("1 dismissed, hide").click();
  await rowOf("kafka").waitFor({ state: "detached" });
  const [path_, body] = await sent(async () => {
    await rowOf("search").getByRole("button", { name: "Retry …" }).click();
    await ui.confirm("Retry");
  });
  assert.deepEqual([path_, body], ["deploy", { jobs: ["search"], force_only: ["search@ams-b-003"] }]);
  assert.equal(await rowOf("kafka").count(), 0, "the failure of another job does not bring it back");
  await server.run(bucket, "deploy", { jobs: ["kafka"] });
  await rowOf("kafka").waitFor();
});

test("the map is one stop of Tab; arrows, Home and End move, and each cell says job, worker, state and since when", async () => {
  await cell(/^kafka on ams-a-002, failed, since \d\d:\d\d$/).waitFor();
  assert.equal(await main().locator(".grid [tabindex='0']").count(), 1);
  await cell(/^kafka on ams-a-001/).focus();
  const focused = () => ui.page.evaluate<string>("document.activeElement.ariaLabel ?? document.activeElement.textContent");
  const press = async (key: string, expected: RegExp) => {
    await ui.page.keyboard.press(key);
    assert.match(await focused(), expected, key);
  };
  await press("ArrowRight", /^kafka on ams-a-002, failed/);
  await press("ArrowDown", /^search on ams-a-002, /);
  await press("End", /^search on ams-b-004, unreachable/);
  await press("ArrowDown", /^nginx on ams-b-004, unreachable/);
  await press("Home", /^nginx$/);
  await press("ArrowRight", /^nginx on ams-a-001, .*changed by hand, since \d\d:\d\d$/);
  assert.equal(await main().locator(".grid [tabindex='0']").count(), 1);
  assert.equal(await main().locator(".grid .trouble").count(), 3, "heads with trouble");
});

test("Enter opens what is known of a cell, with its last lines and their places; Esc goes back to the cell", async () => {
  await cell(/^kafka on ams-a-002, failed/).focus();
  await ui.page.keyboard.press("Enter");
  const panel = main().getByRole("region", { name: "Allocation" });
  await panel.getByText("1.0.0, to be 1.1.0").waitFor();
  await panel.getByText(/^Restart since \d\d:\d\d/).waitFor();
  await panel.locator(".evidence li", { hasText: "INFO shutting down" }).waitFor();
  assert.equal(await panel.locator(".reason-line").count(), 1);
  await ui.checkBarriers("a map with an open cell");
  await ui.page.keyboard.press("Escape");
  await panel.waitFor({ state: "hidden" });
  assert.match(await ui.page.evaluate("document.activeElement.ariaLabel"), /^kafka on ams-a-002/);
  await ui.page.keyboard.press("ArrowLeft");
  await ui.page.keyboard.press("Enter");
  await panel.locator(".evidence li").first().waitFor();
  assert.equal(await panel.locator(".reason-line").count(), 0, "a line of what went well is none that tells a failure");
  await ui.page.keyboard.press("Escape");
});

test("a cell of every state is seen: it has a ground or a mark", async () => {
  const blank = `(state) => {
    const cell = Object.assign(document.querySelector(".grid .cell").cloneNode(), { className: "cell " + state });
    document.querySelector(".grid .cell").after(cell);
    const { backgroundColor: ground, backgroundImage: mark } = getComputedStyle(cell);
    cell.remove();
    return ground === "rgba(0, 0, 0, 0)" && mark === "none";
  }`;
  const states = ["failed", "unreachable", "running", "waiting", "cancelled", "changed", "ok", "disabled"];
  assert.deepEqual(await ui.page.evaluate(`${JSON.stringify(states)}.filter(${blank})`), []);
});

test("a chip of the legend shows the same allocations as a table", async () => {
  const chip = (name: RegExp) => main().getByRole("group", { name: "Filter by state" }).first().getByRole("button", { name });
  await chip(/^3 unreachable$/).click();
  const rows = main().locator(".map tbody tr");
  await rows.nth(2).waitFor();
  assert.deepEqual(await rows.locator("td:nth-child(2)").allTextContents(), ["ams-b-004", "ams-b-004", "ams-b-004"]);
  await ui.checkBarriers("the allocations of a chip");
  await chip(/^3 unreachable$/).click();
  await main().getByRole("grid").waitFor();
  assert.equal(await chip(/^1 by hand$/).count(), 1);
});

test("columns are grouped by a tag, and the choice is remembered", async () => {
  await ui.button("rack").click();
  const bands = main().locator(".grid .band");
  assert.deepEqual(await bands.allTextContents(), ["a · 2", "b · 2"]);
  await ui.page.reload();
  await bands.nth(1).waitFor();
  assert.deepEqual(await bands.allTextContents(), ["a · 2", "b · 2"]);
  await ui.button("name").click();
  assert.deepEqual(await bands.allTextContents(), ["ams-a · 2", "ams-b · 2"]);
});

test("during a deploy the cells follow the run, in their places; no order is the primary one", async () => {
  writeSource(source, workers, "1.2.0");
  assert.equal((await server.push(bucket, source)).code, 0);
  const first = cell(/^nginx on ams-a-001/);
  await cell(/^nginx on ams-a-001, waiting/).waitFor();
  await ui.page.evaluate(
    "document.querySelector('.grid').dataset.same = [...document.querySelectorAll('.grid .name')].map((one) => one.textContent)",
  );
  await first.evaluate((one) => Object.assign(one, { kept: true }));
  const run = await server.startRun(bucket, "deploy");
  await cell(/^nginx on ams-a-001, running/).waitFor();
  assert.equal(await main().locator(".head .primary").count(), 0);
  await main().getByRole("link", { name: "Deploy goes on" }).waitFor();
  writeFileSync(path.join(workers, "go"), "");
  await cell(/^nginx on ams-a-001, changed/).waitFor();
  await server.follow(bucket, run);
  assert.equal(await first.evaluate((one) => "kept" in one), true, "the cell is still the same element");
  await rowOf("kafka").waitFor({ state: "detached" });
  await main()
    .getByRole("heading", { name: /^1 problem since/ })
    .waitFor();
  assert.equal(await main().locator(".head .primary").textContent(), "Try again");
});

test("a deploy from the overview asks for the name of the bucket", async () => {
  await ui.button("Deploy …").click();
  const order = dialog().getByRole("button", { name: "Deploy", exact: true });
  assert.equal(await order.isDisabled(), true);
  const asked = await sent(() => ui.confirm("Deploy", "trouble"));
  assert.deepEqual(asked, ["deploy", {}]);
});

test("CP-183 jobs are to be read: those with trouble first, with counts that the server made", async () => {
  await deployTroubled(server, bucket, { source, workers, version: "1.1.0" });
  await ui.view(bucket, "jobs");
  await ui.heading("2 of 3 jobs failed").waitFor();
  const row = (name: string) => main().getByRole("row", { name: new RegExp(`^${name} `) });
  assert.match(await row("kafka").innerText(), /failed\s+1 of 4\s+1 failed\s*1 unreachable/);
  assert.match(await row("nginx").innerText(), /unreachable\s+3 of 4/);
  await main()
    .getByRole("button", { name: /^2 failed$/ })
    .click();
  await row("nginx").waitFor({ state: "detached" });
  await ui.checkBarriers("jobs");
});

test("CP-183 a job shows its allocations, its files as they were built, and what its manifest says", async () => {
  await ui.view(bucket, "jobs/kafka");
  await rowOf("kafka is down on ams-a-002").waitFor();
  const row = main().locator("tbody tr", { hasText: "ams-a-002" });
  assert.match(await row.innerText(), /failed\s+1\.0\.0 → 1\.1\.0|failed\s+1\.2\.0 → 1\.1\.0/);
  await ui.checkBarriers("a job");
  await ui.link("Files").click();
  await ui.link("manifest.json").click();
  await main().locator("pre", { hasText: '"version":"1.1.0"' }).waitFor();
  await ui.link("Definition").click();
  await main().getByRole("row", { name: "check cli" }).waitFor();
  await main().getByRole("row", { name: "kafka_tcp 30001" }).waitFor();
  assert.equal(await main().locator("textarea, input:not([type=search]), [contenteditable]").count(), 0);
  await ui.checkBarriers("the definition of a job");
});

test("a job that cannot be read is not said to be missing; one that is missing is", async () => {
  const hidden = /\/cat\/jobs\?jobs=kafka/;
  await ui.page.route(hidden, (route) => route.fulfill({ status: 500, body: "{}" }));
  await ui.view(bucket, "jobs/kafka");
  await main().getByRole("alert").getByText("The server answered with status 500").waitFor();
  assert.equal(await main().getByText("is in the catalog").count(), 0);
  await ui.page.unroute(hidden);
  await ui.view(bucket, "jobs/nothing");
  await main().getByText("No job nothing is in the catalog.").waitFor();
});

test("orders are for the ticked workers; what is dangerous waits until the name of the job is typed", async () => {
  await ui.view(bucket, "jobs/nginx");
  await main().getByRole("checkbox", { name: "Orders are for ams-a-001" }).check();
  await main().getByText("Orders are for 1 ticked worker of 4.").waitFor();
  await ui.button("Stop …").click();
  await dialog().getByText("Stops nginx: 1 allocation on ams-a-001.").waitFor();
  const stop = dialog().getByRole("button", { name: "Stop", exact: true });
  await dialog().getByLabel(/^Type/).fill("ngin");
  assert.equal(await stop.isDisabled(), true);
  await dialog().getByRole("button", { name: "Cancel" }).click();
  const more = async (name: string) => {
    await main().locator(".head .more").click();
    await menu(name).click();
  };
  const given = async (act: () => Promise<void>, action: string) =>
    await sent(async () => {
      await act();
      await ui.confirm(action, "nginx");
    });
  const only = { allocations: ["ams-a-001"] };
  const healthy = { ...only, health_check: true };
  assert.deepEqual(await given(() => ui.button("Restart …").click(), "Restart"), ["jobs/nginx/restart", healthy]);
  assert.deepEqual(await given(() => ui.button("Reload …").click(), "Reload"), ["jobs/nginx/reload", healthy]);
  assert.deepEqual(await given(() => ui.button("Stop …").click(), "Stop"), ["jobs/nginx/stop", only]);
  assert.deepEqual(await given(() => more("Start …"), "Start"), ["jobs/nginx/start", healthy]);
  assert.deepEqual(await sent(() => more("Status")), ["jobs/nginx/status", only]);
  const target = async () => {
    await more("Run target …");
    await dialog()
      .getByLabel(/^Target/)
      .fill("status");
  };
  assert.deepEqual(await given(target, "Run target"), ["jobs/nginx/run", { ...healthy, target: "status" }]);
  const forgotten = await given(() => more("Stop and forget …"), "Stop and forget");
  assert.deepEqual(forgotten, ["jobs/nginx/stop", { ...only, forget: true }]);
  assert.deepEqual(await sent(() => ui.button("Health check").click()), ["health_check", { jobs: ["nginx"] }]);
  await main().locator(".head .more").click();
  assert.match((await menu("Logs on the workers").getAttribute("href")) ?? "", /\/jobs\/nginx\/logs\?follow=true$/);
});

test("a revision is compared with the current one, or with another one of choice", async () => {
  const path = `/api/buckets/${bucket}/source/revisions`;
  const { body } = await server.call<{ items: { id: string }[] }>("GET", path);
  const [newest, older] = body.items;
  await ui.view(bucket, `source/revisions/${newest?.id}`);
  await main().getByText("0 files added, 0 files removed, 0 files changed.").waitFor();
  await main()
    .getByLabel("Against")
    .selectOption(older?.id ?? "");
  await main()
    .getByText(/^0 files added, 0 files removed, [1-9]\d* files? changed\.$/)
    .waitFor();
});

test("the name of a worker is never broken, and on a phone each reading says of what it is", async () => {
  await server.run(bucket, "workers/sysstat");
  await ui.page.setViewportSize({ width: 800, height: 900 });
  await ui.view(bucket, "workers");
  const row = main().locator("tbody tr").filter({ hasText: "ams-a-001" });
  await row.locator('td[data-label="CPU"]').waitFor();
  assert.equal(await ui.page.evaluate("document.querySelector('main tbody th a').getClientRects().length"), 1);
  await ui.page.setViewportSize({ width: 1440, height: 900 });
});

test("CP-177 a bucket is built, renamed and deleted by its name", async () => {
  await ui.view(bucket, "");
  const more = async (name: string) => {
    await main().locator(".head .more").click();
    await menu(name).click();
  };
  assert.deepEqual(await sent(() => more("Build")), ["build", {}]);
  assert.deepEqual(await sent(() => more("Check for drift")), ["drift", {}]);
  await more("Rename …");
  await dialog().getByLabel("Name").fill("store");
  await ui.confirm("Rename");
  await ui.page.getByRole("button", { name: "Bucket store, switch" }).waitFor();
  await more("Delete the bucket …");
  await ui.confirm("Delete the bucket", "store");
  await ui.page.waitForURL(/#\/$/);
  const { body } = await server.call<{ items: unknown[] }>("GET", "/api/buckets");
  assert.deepEqual(body.items, []);
  assert.equal(FLEET.length, 4);
  ui.checkPeace();
});
