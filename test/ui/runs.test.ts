import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { WORKERS, writeServices } from "../helpers/service.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

/** More runs than the list shows at once. */
const OLDER = 55;
/** How far the orders of the view are from its bottom, whether they are the last thing in it, and how many have no room. */
const AT_BOTTOM = `(() => {
  const [main, orders] = ["main", "main .head .controls"].map((one) => document.querySelector(one).getBoundingClientRect());
  const middle = document.elementFromPoint(orders.left + 20, orders.bottom - 20);
  const cut = [...middle?.closest(".controls")?.children ?? []].filter((one) => one.scrollWidth > one.clientWidth);
  return [Math.round(main.bottom - orders.bottom), middle?.closest(".controls") !== null, cut.length];
})()`;
/** Whether a list is wider than its place, and the orders of its first row are seen all the same. */
const IN_REACH = `(() => {
  const [table, orders] = ["main .table", "main .table td .more"].map((one) => document.querySelector(one));
  const { left, right, top } = orders.getBoundingClientRect();
  return table.scrollWidth > table.clientWidth && orders.contains(document.elementFromPoint((left + right) / 2, top + 4));
})()`;
/** Views with orders in their head, which a phone has at the bottom. */
const WITH_ORDERS = ["", "jobs", "jobs/base", "deployments", "deployments/rollout", "workers", `workers/${WORKERS[0]}`];
const HIDDEN = "\u202e";

const base = temporaryFolder();
const source = path.join(base, "source");
const workers = path.join(base, "workers");
let server: LocalServer;
let ui: ConsolePage;
let bucket: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  bucket = await server.createBucket("shop");
  writeServices(source, workers, { version: "1.0.0" });
  assert.equal((await server.push(bucket, source)).code, 0);
  copyRuns();
  await server.run(bucket, "deploy");
  ui = await ConsolePage.signedIn(server);
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

/** Older runs, each like the push. */
function copyRuns(): void {
  const folder = path.join(base, "root", bucket, "logs", "runs");
  const [first = ""] = readdirSync(folder);
  const record = readFileSync(path.join(folder, first, "server-run.json"), "utf8");
  for (let number = 0; number < OLDER; number++) {
    const id = `${first.slice(0, 24)}${String(number).padStart(12, "0")}`;
    mkdirSync(path.join(folder, id), { mode: 0o700 });
    writeFileSync(path.join(folder, id, "server-run.json"), record.replaceAll(first, id), { mode: 0o600 });
  }
}

const main = () => ui.page.getByRole("main");
const rows = () => main().locator("tbody tr");
const show = async (id: string, tab = "summary") => {
  await ui.goTo(`#/buckets/${bucket}/runs/${id}?tab=${tab}`);
  await main().locator(`a[href*="${id}"][aria-current]`).first().waitFor();
};
const fold = (text: string) => main().locator("details.fold > summary", { hasText: text }).first().locator("..");

test("runs are listed newest first, narrowed by kind and state, and the list says that it is cut", async () => {
  await ui.view(bucket, "runs");
  await main().getByText("The 50 newest are shown.").waitFor();
  await ui.button("Show more").click();
  await main().getByText("The 50 newest are shown.").waitFor({ state: "detached" });
  assert.equal(await rows().count(), OLDER + 2);
  await main().getByLabel("Kind").selectOption("deploy");
  await rows().nth(1).waitFor({ state: "detached" });
  await rows().getByRole("link", { name: "Deploy" }).waitFor();
  await main()
    .getByRole("combobox", { name: /^Status/ })
    .selectOption("failed");
  await main().getByText("No such run.").waitFor();
  await ui.page.reload();
  await main().getByText("No such run.").waitFor();
  await main()
    .getByRole("combobox", { name: /^Status/ })
    .selectOption("");
  await server.run(bucket, "deploy", { dry_run: true });
  await rows().first().getByText("Dry run").waitFor();
  await rows().first().getByText("changes nothing").waitFor();
  await ui.checkBarriers("runs");
});

test("the back button and a reload show the run of their address, and one that does not exist is said not to", async () => {
  await rows().getByRole("link", { name: "Deploy", exact: true }).click();
  await ui.heading("Deploy done").waitFor();
  await ui.page.goBack();
  await ui.heading("Runs").waitFor();
  await ui.page.goForward();
  await ui.heading("Deploy done").waitFor();
  await ui.page.reload();
  await ui.heading("Deploy done").waitFor();
  await ui.view(bucket, "runs/01a1fb51-bab9-7e78-a3d9-bd6265ef38a9");
  await main().getByRole("alert").getByText("does not exist").waitFor();
});

test("CP-186 CP-449 a run is cancelled from the list, which shows who waits for its end, tells until then what has confirmed, and what was done stays", async () => {
  const [go, begun] = [path.join(base, "go"), path.join(base, "begun")];
  const wait = `while [ ! -e ${go} ]; do sleep 0.05; done; exit`;
  const command = `[ $WORKER_IP = ${WORKERS[0]} ] || trap '${wait}' TERM; : > ${begun}.$WORKER_IP; sleep 60 & wait; sleep 60`;
  const id = await server.startRun(bucket, "run_command", { command, concurrency: 2 });
  await show(id);
  await ui.heading("Run command").waitFor();
  await main()
    .getByText(/of about|^\d/)
    .first()
    .waitFor();
  await ui.view(bucket, "runs");
  const waiting = (method: string, target: string) => {
    const headers = { authorization: `Bearer ${server.token}`, "Idempotency-Key": "waiting-start", "Ops-Wait": "0" };
    return fetch(`${server.url}/api/buckets/${bucket}/${target}`, { method, headers });
  };
  assert.equal((await waiting("POST", "health_check")).status, 409);
  await main()
    .getByText(/^In line: Health check \d/)
    .waitFor();
  assert.equal((await waiting("DELETE", "queue/waiting-start")).status, 204);
  await main().getByText("In line: ").waitFor({ state: "detached" });
  const cancel = rows().getByRole("button", { name: "Cancel …" });
  await cancel.click();
  await ui.button("Keep it running").click();
  for (const worker of WORKERS)
    while (!existsSync(`${begun}.${worker}`)) await ui.page.evaluate("new Promise(requestAnimationFrame)");
  // The record of a slow disk: progress tells of the cancel before the record does.
  await ui.page.route(`**/runs/${id}`, async (route) => {
    const response = await route.fetch();
    const run = await response.json();
    await route.fulfill({ response, json: { ...run, audit: run.audit.slice(0, 1) } });
  });
  await cancel.click();
  await ui.button("Cancel the run").click();
  await show(id);
  await ui.heading("Run command, cancelling").waitFor();
  await main()
    .getByText(/^[01] of 2 confirmed; (by force in \d+ s|ended by force)$/)
    .waitFor();
  assert.equal(await main().getByRole("button", { name: "Cancel …" }).count(), 0);
  await ui.page.unrouteAll({ behavior: "wait" });
  writeFileSync(go, "");
  await ui.heading("Run command cancelled").waitFor();
  await main()
    .getByText(/^What ran when it was cancelled: /)
    .waitFor();
  await show(id, "audit");
  await rows().filter({ hasText: "cancel" }).getByText("session").waitFor();
  await ui.view(bucket, "audit");
  const entry = rows().filter({ hasText: "Cancel" }).first();
  await entry.getByText("session").waitFor();
  await entry.locator(`a[href$="/runs/${id}"]`).waitFor();
  await ui.checkBarriers("audit");
});

test("CP-179 answers of a command are one where they are equal, what failed first, and what cannot be seen is named", async () => {
  const command = `printf 'same ${HIDDEN}<b>here</b>\\n'; [ $WORKER_IP = ${WORKERS[0]} ] || exit 3`;
  const both = await server.run(bucket, "run_command", { command: `printf '${HIDDEN}equal\\n'` });
  await show(both.id);
  await fold("2 workers").getByText("127.0.0.1 and .2").waitFor();
  const { id } = await server.run(bucket, "run_command", { command, concurrency: 2 });
  await show(id);
  await ui.heading("Run command failed").waitFor();
  const first = main().locator("details.fold").first();
  await first.getByText("exit code 3", { exact: true }).waitFor();
  await first.locator("pre", { hasText: "same U+202E<b>here</b>" }).waitFor();
  assert.equal((await main().textContent())?.includes(HIDDEN), false);
  assert.equal(await main().locator("details.fold").nth(1).getAttribute("open"), null);
  await ui.checkBarriers("answers");
});

test("a command that has written nothing says so", async () => {
  const { id } = await server.run(bucket, "run_command", { command: "true" });
  await show(id);
  assert.equal(await main().locator("pre.answer").textContent(), "nothing was written");
});

test("a long command leaves room for the columns beside it", async () => {
  await server.run(bucket, "run_command", { command: `echo ${"a long command ".repeat(20)}` });
  await ui.page.setViewportSize({ width: 1024, height: 768 });
  await ui.view(bucket, "runs");
  await rows().first().getByText("a long command").waitFor();
  const height = (await rows().first().boundingBox())?.height ?? 0;
  await ui.page.setViewportSize({ width: 1280, height: 800 });
  await ui.view(bucket, "audit");
  assert.equal(height < 100, true, `a row is ${height} pixels high`);
});

test("the rows of a wide list are one line each, and the orders at their ends stay in sight", async () => {
  await server.run(bucket, "workers/sysstat");
  await ui.page.setViewportSize({ width: 1024, height: 768 });
  await ui.view(bucket, "workers");
  await rows()
    .first()
    .getByRole("button", { name: /^Orders for / })
    .waitFor();
  const height = (await rows().first().boundingBox())?.height ?? 0;
  const isReached = await ui.page.evaluate(IN_REACH);
  await ui.page.setViewportSize({ width: 1280, height: 800 });
  assert.deepEqual([height < 50, isReached], [true, true], `a row is ${height} pixels high`);
});

test("a build that fails says each problem with its file and line", async () => {
  writeFileSync(path.join(source, "workspace", "jobs", "app", "manifest.json"), '{\n  "version": ');
  await server.push(bucket, source);
  await ui.view(bucket, "runs");
  await rows().first().getByRole("link", { name: "Push" }).click();
  await ui.heading("Build failed").waitFor();
  await main().getByText("workspace/jobs/app/manifest.json").waitFor();
  await main().locator(".error", { hasText: "not valid JSON" }).waitFor();
  await ui.checkBarriers("a build that failed");
  writeServices(source, workers, { version: "1.0.0" });
  assert.equal((await server.push(bucket, source)).code, 0);
});

test("what was changed by hand is shown as differences, and readings, checks, hooks and snapshots as tables", async () => {
  const page = path.join(workers, WORKERS[0] ?? "", bucket, "jobs", "base", "static", "page.txt");
  writeFileSync(page, "changed by hand\n");
  const drift = await server.run(bucket, "drift");
  await show(drift.id);
  await ui.heading("Files differ on 1 worker").waitFor();
  await fold("base on 127.0.0.1").getByText("+changed by hand").waitFor();
  await main().getByText("1 worker as promoted").waitFor();
  const facts = await server.run(bucket, "workers/facts");
  await show(facts.id);
  await rows().filter({ hasText: "127.0.0.2" }).getByText("ok", { exact: true }).waitFor();
  const check = await server.run(bucket, "health_check");
  await show(check.id);
  await fold("app").getByText("it has neither probes nor hooks").waitFor();
  const hooks = await server.run(bucket, "hooks", { hook: "check", job: "base" });
  await show(hooks.id);
  await rows().filter({ hasText: "127.0.0.2" }).getByText("check").waitFor();
  const status = await server.run(bucket, "jobs/base/status");
  await show(status.id);
  await fold("base").getByText("make status: exit code 0").first().waitFor();
  for (const [kind, text] of [
    ["gc", "Purged kv rows"],
    ["snapshots", "Program version"],
  ] as const) {
    const { id } = await server.run(bucket, kind);
    await show(id);
    await main().getByText(text, { exact: true }).waitFor();
  }
});

test("CP-985 the list of workers tells of the last drift run of all, without what was put right since, and of the last word about each", async () => {
  const shown = async () => {
    await ui.view(bucket, "jobs");
    await ui.view(bucket, "workers");
  };
  const drifts = async () => {
    await shown();
    const found = await rows().locator("td:nth-child(6)").allInnerTexts();
    return found.map((text) => text.trim());
  };
  assert.deepEqual(await drifts(), ["drifted", "in sync"]);
  const [, other] = WORKERS;
  await server.run(bucket, "drift", { workers: [other] });
  assert.deepEqual(await drifts(), ["drifted", "in sync"], "a drift run of one worker says nothing of the others");
  await server.run(bucket, "deploy", { force: true });
  assert.deepEqual(await drifts(), ["in sync", "in sync"]);
  await server.run(bucket, "workers/uptime");
  await server.run(bucket, "workers/uptime", { workers: [other] });
  await shown();
  assert.equal(await rows().filter({ hasText: /, up / }).count(), 2, "a reading of one worker takes nothing from the others");
});

test("what was done to a job is done again only by its name", async () => {
  const stop = await server.run(bucket, "jobs/base/stop", { allocations: [WORKERS[0]] });
  await show(stop.id);
  await main().getByRole("button", { name: "More orders of this run" }).click();
  await ui.page.getByRole("menuitem", { name: "Run again …" }).click();
  const [request] = await Promise.all([
    ui.page.waitForRequest((one) => one.method() === "POST" && one.url().includes(bucket)),
    ui.confirm("Run again", "base"),
  ]);
  assert.equal(new URL(request.url()).pathname.endsWith("/jobs/base/stop"), true);
  assert.deepEqual(request.postDataJSON(), { allocations: [WORKERS[0]], health_check: false, forget: false });
});

test("on a phone nothing scrolls sideways, and orders are at the bottom, those of a run once it has ended, in both schemes", async () => {
  await ui.page.setViewportSize({ width: 390, height: 844 });
  const wide = "document.querySelector('main').scrollWidth > document.querySelector('main').clientWidth";
  const runs = (await server.call<{ items: { id: string }[] }>("GET", `/api/buckets/${bucket}/runs?limit=15`)).body.items;
  for (const colorScheme of ["dark", "light"] as const) {
    await ui.page.emulateMedia({ colorScheme });
    for (const view of [...WITH_ORDERS, "runs", "audit", ...runs.map(({ id }) => `runs/${id}`)]) {
      await ui.view(bucket, view);
      await main().locator("h1").first().waitFor();
      await ui.settled();
      assert.equal(await ui.page.evaluate(wide), false, `${view} scrolls sideways`);
      const hasOrders = WITH_ORDERS.includes(view) || view.startsWith("runs/");
      if (hasOrders) assert.deepEqual(await ui.page.evaluate(AT_BOTTOM), [0, true, 0], `orders of ${view}`);
    }
    await ui.checkBarriers(`a run on a phone, ${colorScheme}`);
  }
  await ui.page.setViewportSize({ width: 300, height: 844 });
  await ui.view(bucket, "jobs/base");
  await main().locator("h1").first().waitFor();
  assert.deepEqual(await ui.page.evaluate(AT_BOTTOM), [0, true, 0], "orders that do not fit scroll");
  ui.checkPeace();
});
