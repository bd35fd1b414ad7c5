import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer, type Run } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { serviceHistory, WORKERS, writeServices } from "../helpers/service.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const base = temporaryFolder();
const source = path.join(base, "source");
const workers = path.join(base, "workers");
/** While it is there, base cannot start on its second worker; and while the other is there, a start of base waits. */
const [broken, held] = [path.join(base, "broken"), path.join(base, "held")];
const FATAL = 'FATAL could not open "/srv/base": No space left on device';
/** Counts how often the log beside a run is taken out of the page. */
const COUNT_MOVES = `(() => {
  const log = document.querySelector(".run-log");
  const isGone = ({ removedNodes }) => [...removedNodes].some((one) => one.contains(log));
  log.moves = 0;
  new MutationObserver((all) => (log.moves += all.filter(isGone).length)).observe(document, { childList: true, subtree: true });
})()`;
let server: LocalServer;
let ui: ConsolePage;
let bucket: string;
let failed: Run;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  bucket = await server.createBucket("shop");
  await push("1.0.0");
  ui = await ConsolePage.signedIn(server, { width: 1440, height: 900 });
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

async function push(version: string): Promise<void> {
  const fails = `if [ -e ${broken} ] && pwd | grep -q 127.0.0.2; then echo '${FATAL}' >&2; echo shutting down; exit 2; fi`;
  const waits = `while [ -e ${held} ]; do sleep 0.05; done`;
  writeServices(source, workers, { version, before: `\t@echo starting base\n\t@${waits}\n\t@${fails}\n` });
  const { code, stderr } = await server.push(bucket, source);
  assert.equal(code, 0, stderr);
}

const main = () => ui.page.getByRole("main");
const dialog = () => ui.page.getByRole("dialog");
const fold = (text: string) => main().locator("details.fold > summary", { hasText: text }).first().locator("..");
const last = (host = WORKERS[0] ?? "") => serviceHistory(workers, host, bucket, "base").at(-1);

/** Shows a tab of the deploy that failed. */
async function report(tab = "summary"): Promise<void> {
  await ui.goTo(`#/buckets/${bucket}/runs/${failed.id}?tab=${tab}`);
  await ui.heading("Deploy failed").waitFor();
}

/** Gives an order that asks for a name first, and answers what was sent and how its run has ended. */
async function give(label: string, says: RegExp, word: string, action: string): Promise<{ body: unknown; run: Run }> {
  const order = main().getByRole("button", { name: label, exact: true, disabled: false }).first();
  await order.click();
  await dialog().getByText(says).first().waitFor();
  const button = dialog().getByRole("button", { name: action, exact: true });
  await dialog().getByLabel(/^Type/).fill(`${word}x`);
  assert.equal(await button.isDisabled(), true, `${label} does not wait for the name`);
  const [response] = await Promise.all([
    ui.page.waitForResponse((one) => one.url().includes(bucket) && one.request().method() === "POST"),
    ui.confirm(action, word),
  ]);
  assert.equal(response.status(), 202);
  const { run_id: id } = (await response.json()) as { run_id: string };
  return { body: response.request().postDataJSON(), run: await server.follow(bucket, id) };
}

test("CP-182 a plan is made of what is ticked, and its page shows each difference once with its workers", async () => {
  await ui.view(bucket, "deployments");
  await ui.heading("4 allocations to be deployed").waitFor();
  await main().getByRole("checkbox", { name: "base", exact: true }).check();
  await main().getByText("Options").click();
  await main()
    .getByLabel(/^Force/)
    .check();
  const [request] = await Promise.all([
    ui.page.waitForRequest((one) => one.method() === "POST" && one.url().includes(bucket)),
    ui.button("Plan 1 job").click(),
  ]);
  assert.deepEqual(request.postDataJSON(), { jobs: ["base"], force: true, dry_run: true });
  await ui.heading("Plan: 2 changes on 2 workers").waitFor();
  await ui.page.locator("#status").getByText("Dry run", { exact: true }).waitFor();
  await main()
    .getByRole("button", { name: /^2 first start/ })
    .waitFor();
  await fold("static/page.txt").getByText("same on 2 workers").waitFor();
  assert.equal(await main().getByText("+page of 1.0.0").count(), 1, "equal differences are shown once");
  await ui.button("By worker").click();
  await fold("127.0.0.2").locator("summary").first().click();
  await fold("127.0.0.2").getByText("first start").last().waitFor();
  await ui.button("Only differences").click();
  await main().getByText("+page of 1.0.0").waitFor();
  await ui.checkBarriers("a plan");
});

test("a plan is deployed as it is shown, and its question counts and names what it changes", async () => {
  const plan = await server.run(bucket, "deploy", { dry_run: true });
  await ui.view(bucket, `runs/${plan.id}`);
  await ui.heading("Plan: 4 changes on 2 workers").waitFor();
  await ui.button("Deploy this plan …").click();
  await dialog()
    .getByRole("row", { name: /base 1\.0\.0 first start on 2 workers/ })
    .waitFor();
  await ui.page.keyboard.press("Escape");
  const { body, run } = await give("Deploy this plan …", /^4 changes on 2 workers/, "shop", "Deploy this plan");
  assert.deepEqual([run.status, body], ["succeeded", { plan: plan.id }]);
  assert.equal(last(), "start 1.0.0");
  await ui.view(bucket, `runs/${run.id}`);
  await ui.heading("Deploy done").waitFor();
  await main()
    .getByRole("link", { name: /^plan …/ })
    .waitFor();
  await fold("2 jobs deployed").waitFor();
});

test("where something has moved since, the question of a plan says so and stays", async () => {
  await ui.view(bucket, "deployments");
  await ui.heading("Everything is deployed").waitFor();
  const plan = await server.run(bucket, "deploy", { dry_run: true, force: true });
  await ui.view(bucket, `runs/${plan.id}`);
  await ui.button("Deploy this plan …").click();
  await dialog().getByLabel(/^Type/).fill("shop");
  await server.run(bucket, "deploy", { force: true });
  await dialog().getByRole("button", { name: "Deploy this plan", exact: true }).click();
  await dialog().getByRole("alert").getByText(/plan/).waitFor();
  await ui.page.keyboard.press("Escape");
  await ui.view(bucket, "deployments");
  await ui.view(bucket, `runs/${plan.id}`);
  await main()
    .getByText(/out of date/)
    .waitFor();
  await ui.button("Plan again").waitFor();
});

test("a deploy that goes on shows its state, its workers batch by batch, and what it waits for", async () => {
  await push("1.1.0");
  writeFileSync(broken, "");
  writeFileSync(held, "");
  const id = await server.startRun(bucket, "deploy");
  await ui.view(bucket, `runs/${id}`);
  await ui.page
    .getByRole("heading", { name: /^Deploy/ })
    .first()
    .waitFor();
  const strip = main()
    .locator("li", { hasText: "base" })
    .getByRole("img", { name: /^2 workers: 1 running, 1 waiting/ });
  await strip.waitFor();
  for (const worker of WORKERS) await strip.locator(`[title^="${worker}: "]`).waitFor();
  await main().locator(".job", { hasText: "batch 1 of 2" }).waitFor();
  await main().locator(".run-log .log").waitFor();
  await ui.page.evaluate(COUNT_MOVES);
  for (let drawn = 0; drawn < 3; drawn++) await ui.page.waitForResponse((one) => one.url().endsWith(`/runs/${id}`));
  assert.equal(
    await ui.page.evaluate("document.querySelector('.run-log').moves"),
    0,
    "the log leaves the page and loses its place",
  );
  await main()
    .locator(".waits")
    .getByText(/make restart/)
    .waitFor();
  await main().getByRole("progressbar").waitFor();
  await ui.checkBarriers("a deploy that goes on");
  assert.equal(await main().getByRole("button", { name: "Retry what failed …" }).count(), 0);
  await ui.goTo("#/");
  await main().getByRole("row", { name: /shop/ }).getByRole("progressbar").waitFor();
  await ui.view(bucket, "deployments");
  await main().getByRole("link", { name: "Deploy", exact: true }).click();
  await main().locator(".tabs").getByText("Workers").click();
  await main().getByRole("grid", { name: "Jobs on workers" }).waitFor();
  assert.equal(await main().locator(".run-log").count(), 0, "the map has the whole width");
  await ui.page
    .locator("#status")
    .getByRole("button", { name: /Deploy.*Log/ })
    .waitFor();
  await main().getByText("As a table").click();
  await main()
    .getByRole("row", { name: /127\.0\.0\.2/ })
    .getByText("not started")
    .waitFor();
  rmSync(held);
  failed = await server.follow(bucket, id);
  await ui.heading("Deploy failed").waitFor();
});

test("a deploy that failed is a report: what failed first, with the worker's own lines, then what was not started", async () => {
  await report();
  const job = main().locator("details.bad", { hasText: "base" });
  await job.getByText("failed on 127.0.0.2, stopped at batch 2 of 2").waitFor();
  await job.locator(".evidence .reason-line", { hasText: FATAL }).waitFor();
  await job.getByText("last 3 lines, 1 by make left out").waitFor();
  const number = (await job.locator(".reason-line button").textContent()) ?? "";
  await ui.button(`Open log at line ${number}`).click();
  await ui.page.locator("#activity").getByText(FATAL).first().waitFor();
  await ui.page.keyboard.press("Escape");
  await job.getByText("1.1.0 on 1, 1.0.0 on 1").waitFor();
  await job.getByText("may be down on 1").waitFor();
  await job.getByText(/^Nothing was put back/).waitFor();
  await fold("app")
    .getByText(/^not started: job base/)
    .waitFor();
  assert.equal(
    await main()
      .getByRole("button", { name: /^1 failed/ })
      .getAttribute("aria-pressed"),
    "true",
  );
  await ui.checkBarriers("a deploy that failed");
  await job.getByRole("link", { name: "Run a command there" }).click();
  await ui.page.waitForURL(/command\?workers=127\.0\.0\.2$/);
});

test("what failed is retried by itself, from the report by the key r, or one job of it", async () => {
  await report();
  const one = await give("Retry base …", /^Deploys base on 1 worker: 1 failed/, "base", "Retry base");
  assert.deepEqual([one.run.status, one.body], ["failed", { jobs: ["base"] }]);
  rmSync(broken);
  await report();
  await ui.page.locator("[data-key=retry]:not([aria-disabled])").first().waitFor();
  await ui.page.keyboard.press("r");
  await dialog()
    .getByText(/^Repeats Deploy where it is not done: 3 of 4/)
    .waitFor();
  await ui.page.keyboard.press("Escape");
  const { body, run } = await give("Retry what failed …", /^Repeats Deploy/, "shop", "Retry what failed");
  assert.deepEqual([run.status, body], ["succeeded", { retry_of: failed.id }]);
  assert.match(last("127.0.0.2") ?? "", /1\.1\.0$/);
});

test("the source is rolled back from the report to the revision before, by the name of the bucket", async () => {
  await report();
  const { run } = await give("Roll back …", /Workers stay as they are until the next deploy/, "shop", "Roll back");
  assert.deepEqual([run.kind, run.status], ["rollback", "succeeded"]);
  await ui.view(bucket, "deployments/rollout");
  await main().getByText("As a table").click();
  await main().getByText("4 rows").waitFor();
  await main()
    .getByRole("button", { name: /^4 update/ })
    .click();
  await main()
    .getByRole("row", { name: /base 127\.0\.0\.1 1\.1\.0 1\.0\.0/ })
    .waitFor();
  await ui.checkBarriers("the rollout");
});

test("two runs of a kind are compared, and each says what was asked and who did it", async () => {
  await report("compare");
  await main()
    .getByRole("row", { name: /^outcome base@127\.0\.0\.2 .*failed/ })
    .waitFor();
  await main().locator(".tabs").getByText("Definition").click();
  await main().getByText(failed.id.slice(-8)).first().waitFor();
  await main().locator(".tabs").getByText("Audit").click();
  await main().getByRole("row", { name: /start/ }).getByText("bearer").waitFor();
  ui.checkPeace();
});

test("what a person cancelled has no line that tells a failure, and a deploy of one job counts that job alone", async () => {
  writeFileSync(held, "");
  const id = await server.startRun(bucket, "deploy", { jobs: ["base"], force: true });
  await ui.view(bucket, `runs/${id}?tab=summary`);
  await main()
    .getByText(/^1 job, 2 workers$/)
    .waitFor();
  await ui.page.getByRole("log").getByText("starting base").first().waitFor();
  await server.call("POST", `/api/buckets/${bucket}/runs/${id}/cancel`);
  await ui.heading("Deploy cancelled").waitFor();
  rmSync(held);
  await main().locator(".evidence li").first().waitFor();
  assert.equal(await main().locator(".reason-line").count(), 0);
});

test("in a forced deploy the map says of what is not begun that it waits, as the head does", async () => {
  rmSync(broken, { force: true });
  assert.equal((await server.run(bucket, "deploy")).status, "succeeded");
  writeFileSync(held, "");
  const id = await server.startRun(bucket, "deploy", { force: true });
  for (const view of [`runs/${id}?tab=workers`, "deployments/rollout", ""]) {
    await ui.goTo(`#/buckets/${bucket}/${view}`);
    await main().getByRole("gridcell", { name: "base on 127.0.0.1, running" }).waitFor();
    await main().getByRole("gridcell", { name: "app on 127.0.0.1, waiting" }).waitFor();
  }
  rmSync(held);
  await server.follow(bucket, id);
  ui.checkPeace();
});
