import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { buildFleet, FLEET, type Fleet, holdOf, markPromoted, pushFleet } from "../../scripts/fleet-example.ts";
import { LocalServer, type Run } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const JOBS = 30;
/** What the second state of the source has new versions of. */
const CHANGED = ["kafka", "nginx", "search-api", "orders-api"];
const FATAL = 'FATAL could not open data directory "/srv/kafka/data": No space left on device';

const base = temporaryFolder();
let server: LocalServer;
let ui: ConsolePage;
let fleet: Fleet;
let deploy: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  fleet = await buildFleet(server, base);
  await server.run(fleet.bucket, "deploy", { jobs: ["consul"] });
  markPromoted(layoutOf(path.join(base, "root", fleet.bucket)).database, ["consul"]);
  ui = await ConsolePage.open(server.url, { width: 1440, height: 900 });
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

const main = () => ui.page.getByRole("main");
const cells = (state = "") => main().locator(`.map [role=gridcell]${state}`);
const log = () => ui.page.getByRole("log");
const problems = () => main().locator(".attention li");
const front = async () => {
  await ui.goTo("#/");
  return main().locator("tbody tr", { hasText: "production" });
};

/** Answers the question that is open, and follows the run that this starts. */
async function ordered(action: string, word?: string): Promise<string> {
  const [response] = await Promise.all([
    ui.page.waitForResponse((one) => one.url().includes(fleet.bucket) && one.request().method() === "POST"),
    ui.confirm(action, word),
  ]);
  assert.equal(response.status(), 202, await response.text());
  return ((await response.json()) as { run_id: string }).run_id;
}

test("in the morning all is well: the front page and the overview say so, and 30 × 40 allocations fit on the screen", async () => {
  await ui.goTo("");
  await ui.signIn(server.token);
  await ui.heading("The bucket is well").waitFor();
  await ui.link("platform/production").click();
  await ui.heading("All well").waitFor();
  await cells().first().waitFor();
  assert.equal(await cells().count(), JOBS * FLEET.length);
  assert.equal(await problems().count(), 0);
  await fits();
});

/** The whole map is on the screen, without any scrolling. */
async function fits(): Promise<void> {
  const { bottom, height } = await ui.page.evaluate<{ bottom: number; height: number }>(`({
    bottom: [...document.querySelectorAll('.map [role=gridcell]')].at(-1).getBoundingClientRect().bottom,
    height: document.getElementById('status').getBoundingClientRect().top,
  })`);
  assert.ok(bottom <= height, `the last cell ends at ${bottom} of ${height}`);
}

test("a deploy moves the map: what is at work, what has changed, and first what has failed", async () => {
  await pushFleet(server, fleet, "failing");
  writeFileSync(holdOf(fleet.workers), "");
  await ui.view(fleet.bucket, "deployments");
  for (const job of CHANGED) await main().getByRole("checkbox", { name: job, exact: true }).check();
  await ui.button("Deploy 4 jobs …").click();
  deploy = await ordered("Deploy 4 jobs", "production");
  await ui.view(fleet.bucket, "");
  await until("five workers of nginx are at work", async () => (await cells(".running").count()) === 5);
  await main()
    .getByRole("gridcell", { name: /^kafka on ams-b-007, failed/ })
    .waitFor();
  await ui.view(fleet.bucket, `runs/${deploy}`);
  await ui.button("Cancel …").waitFor();
  await main().locator(".waits").getByText("nginx on 5 workers").waitFor();
  await main().locator("li", { hasText: "kafka" }).locator(".reason.bad", { hasText: FATAL }).waitFor();
  await ui.view(fleet.bucket, "");
  rmSync(holdOf(fleet.workers));
  await cells(".running").first().waitFor({ state: "detached" });
  assert.equal((await run()).status, "failed");
});

const run = (): Promise<Run> => server.follow(fleet.bucket, deploy);

test("what is broken comes first and stays, whatever runs later; from the front page its cause is two clicks away", async () => {
  await server.run(fleet.bucket, "run_command", { command: "true", concurrency: 40 });
  const row = await front();
  await ui.heading("1 of 1 bucket needs attention").waitFor();
  await row.getByText(`kafka@ams-b-007 ${FATAL}`).waitFor();
  await row.getByRole("link").first().click();
  await problems().filter({ hasText: "kafka" }).getByRole("button", { name: "Log" }).click();
  await log().getByText(FATAL).waitFor();
  assert.match(
    (await problems().allInnerTexts()).join("\n"),
    /kafka is down on ams-b-007.*search-api failed its gate on ams-c-011 and ams-a-012.*ams-c-020 cannot be reached/s,
  );
  await ui.page.keyboard.press("Escape");
  const heads = await main().locator(".map [role=rowheader]").allInnerTexts();
  assert.deepEqual(heads.slice(0, 2), ["kafka", "search-api"]);
  await fits();
});

test("one click on a red cell shows the line that tells why", async () => {
  await main()
    .getByRole("gridcell", { name: /^kafka on ams-b-007, failed/ })
    .click();
  const line = main().locator(".opened .reason-line", { hasText: FATAL });
  await line.waitFor();
  await line.getByRole("button", { name: /^Line \d+ in the log$/ }).click();
  await log().getByText(FATAL).waitFor();
});

test("once the trouble is mended, a retry does what is left, and nothing is red any more", async () => {
  await pushFleet(server, fleet, "mended");
  await ui.view(fleet.bucket, `runs/${deploy}`);
  await ui.button("Retry what failed …").click();
  const retry = await server.follow(fleet.bucket, await ordered("Retry what failed", "production"));
  assert.equal(retry.status, "succeeded", retry.error ?? "");
  await ui.view(fleet.bucket, "");
  for (const job of CHANGED)
    await main()
      .getByRole("gridcell", { name: new RegExp(`^${job} on ams-b-007, (ok|changed)`) })
      .waitFor();
  await until("nothing has failed", async () => (await cells(".failed").count()) === 0);
  ui.checkPeace();
});
