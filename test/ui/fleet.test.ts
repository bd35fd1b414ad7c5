import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { deployFleet, FLEET, type Fleet, holdOf, pushFleet } from "../../scripts/fleet-example.ts";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const JOBS = 30;
const FATAL = 'FATAL could not open data directory "/srv/kafka/data": No space left on device';

const base = temporaryFolder();
let server: LocalServer;
let ui: ConsolePage;
let fleet: Fleet;
let deploy: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  fleet = await deployFleet(server, base);
  ui = await ConsolePage.open(server.url, { width: 1440, height: 900 });
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

const main = () => ui.page.getByRole("main");
const dialog = () => ui.page.getByRole("dialog");
const cells = (state = "") => main().locator(`.map [role=gridcell]${state}`);
const fold = (text: string) => main().locator("details.fold > summary", { hasText: text }).first().locator("..");
const heightOfHead = () =>
  main()
    .locator(".run-head")
    .evaluate((head) => (head as unknown as { offsetHeight: number }).offsetHeight);

/** Answers the question that is open with the name of the bucket, and answers the run that this has started. */
async function order(action: string): Promise<string> {
  const [response] = await Promise.all([
    ui.page.waitForResponse((one) => one.url().includes(fleet.bucket) && one.request().method() === "POST"),
    ui.confirm(action, "production"),
  ]);
  assert.equal(response.status(), 202, await response.text());
  return ((await response.json()) as { run_id: string }).run_id;
}

test("in the morning all is well: the front page and the overview say so, with all 30 × 40 allocations in sight", async () => {
  await ui.goTo("");
  await ui.signIn(server.token);
  await ui.heading("The bucket is well").waitFor();
  await ui.link("platform/production").click();
  await ui.heading("All well").waitFor();
  await cells().first().waitFor();
  assert.equal(await cells().count(), JOBS * FLEET.length);
  assert.equal(await cells(".failed").count(), 0);
  assert.equal(await main().locator(".attention").count(), 0);
  const { bottom, height } = await ui.page.evaluate<{ bottom: number; height: number }>(
    "({ bottom: [...document.querySelectorAll('.map [role=gridcell]')].at(-1).getBoundingClientRect().bottom, height: innerHeight })",
  );
  assert.ok(bottom <= height, `the last cell ends at ${bottom} of ${height}`);
});

test("a plan of all jobs is short: equal differences are one, and its question counts what it does", async () => {
  await pushFleet(server, fleet, "failing");
  await ui.view(fleet.bucket, "deployments");
  await ui.button("Plan").click();
  await ui.heading("Plan: 182 changes on 39 workers").waitFor();
  await main().getByText("still valid").waitFor();
  for (const chip of [/^30 jobs roll out/, /^156 restart/, /^26 first start/, /^1 gave no answer/])
    await main().getByRole("button", { name: chip }).waitFor();
  await main().getByText("ams-c-020 gave no answer").waitFor();
  const kafka = fold("kafka");
  await kafka.getByText("3.8.0 → 3.8.1").waitFor();
  await kafka.getByText("same on 39 workers").first().waitFor();
  await kafka.locator(".diff", { hasText: FATAL }).waitFor();
  assert.equal(await fold("orders-api").getAttribute("open"), null, "only the first job is open");
  await ui.button("Deploy this plan …").click();
  await dialog()
    .getByText(/^182 changes on 39 workers/)
    .waitFor();
  writeFileSync(holdOf(fleet.workers), "");
  deploy = await order("Deploy this plan");
});

test("a deploy is steered from a head that keeps its height, and the map moves with it", async () => {
  await ui.view(fleet.bucket, `runs/${deploy}`);
  await ui.button("Cancel …").waitFor();
  await main().locator(".waits").getByText(/make/).first().waitFor();
  const height = await heightOfHead();
  await main().locator(".waits div", { hasText: "nginx on 5 workers" }).waitFor();
  await main()
    .locator(".job", { hasText: "kafka" })
    .getByText(/failed on 1/)
    .waitFor();
  assert.equal(await heightOfHead(), height);
  assert.equal(await main().getByRole("progressbar").count(), 1);
  await ui.button("Cancel …").click();
  await ui.button("Keep it running").click();
  await ui.view(fleet.bucket, "");
  await cells(".running").first().waitFor();
  assert.equal(await cells(".running").count(), 5);
  rmSync(holdOf(fleet.workers));
  await cells(".running").first().waitFor({ state: "detached" });
});

test("the report says what failed, why, what was put back and what was not started", async () => {
  const run = await server.follow(fleet.bucket, deploy);
  assert.equal(run.status, "failed");
  await ui.view(fleet.bucket, `runs/${deploy}`);
  await ui.heading("Deploy failed").waitFor();
  const kafka = main().locator("details.bad", { hasText: "kafka" });
  await kafka.locator(".reason-line", { hasText: FATAL }).waitFor();
  assert.equal((await kafka.locator(".evidence li").count()) > 5, true);
  await kafka.getByText("may be down on 1").waitFor();
  const search = main().locator("details.bad", { hasText: "search-api" });
  await search.locator("summary").first().click();
  await search.getByText("put back").first().waitFor();
  await search.getByText("ECONNREFUSED").first().waitFor();
  await fold("orders-api")
    .getByText(/^not started: job search-api/)
    .waitFor();
  await ui.button("Retry what failed …").waitFor();
});

test("what is broken stays in sight whatever runs later, and its cause is two clicks from the front page", async () => {
  await server.run(fleet.bucket, "run_command", { command: "true", concurrency: 40 });
  await ui.goTo("#/");
  await ui.heading("1 of 1 bucket needs attention").waitFor();
  await main().getByText(`kafka@ams-b-007 ${FATAL}`).waitFor();
  await ui.link("platform/production").click();
  await main().locator(".attention li", { hasText: "kafka" }).getByRole("button", { name: "Log" }).click();
  await ui.page.getByRole("log").getByText(FATAL).waitFor();
  await main()
    .getByRole("heading", { name: /^3 problems since \d\d:\d\d/ })
    .waitFor();
  const rows = await main().locator(".attention li").allInnerTexts();
  assert.match(
    rows.join("\n"),
    /kafka is down on ams-b-007.*search-api failed its gate on ams-a-012 and ams-c-011.*ams-c-020 cannot be reached/s,
  );
  assert.ok((await cells(".failed").count()) >= 3);
});

test("once the trouble is mended, a retry does what is left and the bucket is well again", async () => {
  await pushFleet(server, fleet, "mended");
  await ui.view(fleet.bucket, `runs/${deploy}`);
  await ui.button("Retry what failed …").click();
  const retry = await server.follow(fleet.bucket, await order("Retry what failed"));
  assert.equal(retry.status, "succeeded", retry.error ?? "");
  await ui.view(fleet.bucket, "");
  await ui.heading("All well").waitFor();
  await until("every allocation is up to date", async () => (await cells(".ok, .changed").count()) === (FLEET.length - 1) * JOBS);
  ui.checkPeace();
});

test("in the evening one signs out", async () => {
  await ui.signOut();
  await ui.page.getByLabel("API token").waitFor();
});
