import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer, PROGRAM } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { writeServices } from "../helpers/service.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const base = temporaryFolder();
let server: LocalServer;
let ui: ConsolePage;
let bucket: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  bucket = await server.createBucket("shop");
  const source = path.join(base, "source");
  writeServices(source, path.join(base, "workers"), { version: "1.0.0" });
  await server.push(bucket, source);
  await server.run(bucket, "deploy");
  ui = await ConsolePage.open(server.url);
  await ui.goTo("");
  await ui.signIn(server.token);
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

/** What a step sends to start a run: the last part of its path and its body; waits for the end of the run. */
async function started(act: () => Promise<void>): Promise<[string, unknown]> {
  const [request, response] = await Promise.all([
    ui.page.waitForRequest((one) => one.method() === "POST" && one.url().includes(bucket)),
    ui.page.waitForResponse((one) => one.request().method() === "POST" && one.url().includes(bucket)),
    act(),
  ]);
  if (response.status() === 202) await server.follow(bucket, (await response.json()).run_id);
  await ui.page.locator("#activity .status:not(.running)").waitFor();
  return [new URL(request.url()).pathname.split(`${bucket}/`)[1] ?? "", request.postDataJSON()];
}

test("CP-174 CP-175 workers: definitions to read, and each probe starts its run on those chosen", async () => {
  await ui.view(bucket, "workers");
  assert.deepEqual(await ui.page.locator("table").first().locator("tbody th").allTextContents(), ["127.0.0.1", "127.0.0.2"]);
  await ui.page.getByText("Which workers").click();
  await ui.page.getByRole("checkbox", { name: "127.0.0.2" }).check();
  await ui.page.getByText("Meant: 1 worker (127.0.0.2).").waitFor();
  for (const name of ["Facts", "Uptime", "Sysstat", "Trust"])
    assert.deepEqual(await started(() => ui.button(name).click()), [`workers/${name.toLowerCase()}`, { workers: ["127.0.0.2"] }]);
  await ui.page
    .getByRole("row", { name: /^127\.0\.0\.2 \d+ % \d+ %$/ })
    .getByText(/^\d+ % [▁-█]+$/)
    .last()
    .waitFor();
  const forced = await started(async () => {
    await ui.button("Trust by force …").click();
    await ui.confirm("Trust by force", "shop");
  });
  assert.deepEqual(forced, ["workers/trust", { workers: ["127.0.0.2"], force: true }]);
});

test("what is dangerous waits until the name is typed, and is left by Cancel", async () => {
  await ui.view(bucket, "jobs/base");
  await ui.button("Stop …").click();
  const dialog = ui.page.getByRole("dialog");
  const stop = dialog.getByRole("button", { name: "Stop", exact: true });
  await dialog.getByText("base, 2 allocations on 127.0.0.1, 127.0.0.2").waitFor();
  assert.equal(await stop.isDisabled(), true);
  await dialog.getByLabel(/^Type/).fill("bas");
  assert.equal(await stop.isDisabled(), true);
  ui.requests.length = 0;
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await dialog.waitFor({ state: "hidden" });
  assert.equal(
    ui.requests.some((request) => request.method() === "POST"),
    false,
  );
});

test("CP-179 CP-180 run command carries workers or labels, width, limits and what to do about failures", async () => {
  await ui.view(bucket, "command");
  await ui.page.getByLabel(/^Command/).fill("exit 3");
  await ui.page.getByRole("checkbox", { name: "127.0.0.1" }).check();
  await ui.page.getByRole("checkbox", { name: "all" }).check();
  assert.equal(await ui.page.getByRole("checkbox", { name: "127.0.0.1" }).isChecked(), false);
  await ui.page.getByLabel(/^At a time/).fill("2");
  await ui.page.getByLabel(/^Time limit/).fill("60");
  await ui.page.getByLabel(/^Health check/).check();
  await ui.page.getByLabel(/^Ignore failures/).check();
  const sent = await started(async () => {
    await ui.button("Run command …").click();
    await ui.confirm("Run command", "shop");
  });
  const options = { concurrency: 2, timeout_seconds: 60, health_check: true, ignore_failure: true };
  assert.deepEqual(sent, ["run_command", { command: "exit 3", labels: ["all"], ...options }]);
  const [, fewer] = await started(async () => {
    await ui.button("Run command …").click();
    await ui.page.getByRole("dialog").getByRole("checkbox", { name: "127.0.0.1" }).uncheck();
    await ui.confirm("Run command", "shop");
  });
  assert.deepEqual(fewer, { command: "exit 3", workers: ["127.0.0.2"], ...options });
  await ui.page.getByText("failed (exit code 3)").waitFor();
});

test("CP-181 hooks on the event cli are listed and run", async () => {
  await ui.view(bucket, "hooks");
  const row = ui.page.locator("tr", { hasText: "app" });
  await row.getByText("check of base").waitFor();
  const sent = await started(async () => {
    await row.getByRole("button", { name: "Run …" }).click();
    await ui.confirm("Run hook", "app");
  });
  assert.deepEqual(sent, ["hooks", { hook: "check", job: "app", verbose: true }]);
});

test("CP-182 deployments have the tabs Jobs and Rollout; options are sent as they are ticked", async () => {
  await ui.view(bucket, "deployments");
  await ui.page.getByRole("checkbox", { name: "base" }).check();
  await ui.page.getByLabel(/^Force/).check();
  const planned = await started(() => ui.button("Dry run").click());
  assert.deepEqual(planned, ["deploy", { jobs: ["base"], force: true, dry_run: true }]);
  await ui.page.getByText("1 of 1 job would be rolled out").waitFor();
  await ui.link("Rollout").click();
  await ui.page.getByText("4 rows").waitFor();
});

test("CP-178 the catalog is filtered and sorted, and its address keeps both", async () => {
  await ui.view(bucket, "catalog/allocations");
  await ui.page
    .getByRole("group", { name: "Worker" })
    .getByLabel(/^127\.0\.0\.2/)
    .check();
  await ui.page.getByRole("columnheader", { name: "Job" }).getByRole("button").click();
  await ui.page.getByRole("columnheader", { name: "Job" }).getByRole("button").click();
  await ui.page.reload();
  await ui.page.getByText("2 of 4 rows").waitFor();
  assert.equal(await ui.page.locator("[aria-sort=descending]").textContent(), "Job");
  const jobs = await ui.page.locator("tbody tr td:nth-child(4)").allTextContents();
  assert.deepEqual(jobs, ["base", "app"]);
});

test("the catalog tells how the last action on an allocation went, and leads to its run", async () => {
  await ui.view(bucket, "catalog/deployments");
  const [row] = await ui.page.locator("tbody tr").all();
  assert.equal(await row?.locator(".status.ok", { hasText: "changed" }).count(), 1);
  const run = row?.locator("a[href*='/runs/']");
  assert.match((await run?.textContent()) ?? "", /^[0-9a-f]{8}$/);
  await run?.click();
  await ui.heading("Deploy").waitFor();
});

test("of a secret the catalog shows a fingerprint and the age, not the value", async () => {
  const args = ["kv", "set-secret", "base", "password", "--bucket-dir", path.join(base, "root", bucket)];
  execFileSync(process.execPath, [PROGRAM, ...args], { input: "hunter2-hunter2", stdio: "pipe" });
  await ui.view(bucket, "catalog/kv");
  await ui.page.getByRole("columnheader", { name: "Fingerprint" }).waitFor();
  const row = ui.page.locator("tr", { hasText: "secrets/job/base" });
  assert.match(await row.innerText(), /password\s+\[encrypted\]\s.*just now\s.*\b[0-9a-f]{12}$/s);
});

test("CP-089 CP-176 the source is shown and cannot be edited", async () => {
  await ui.view(bucket, "source/files");
  await ui.link("workspace/jobs/base/static/page.txt").click();
  await ui.page.getByText("page of 1.0.0").waitFor();
  await ui.view(bucket, "source/settings");
  await ui.page.getByText("Variables and ports").waitFor();
  await ui.page.getByRole("heading", { name: "Templates" }).waitFor();
  assert.equal(await ui.page.locator("main textarea, main input:not([type=search]), main [contenteditable]").count(), 0);
});

test("CP-183 jobs are read only; files are those of the catalog", async () => {
  await ui.view(bucket, "jobs");
  await ui.link("base").first().click();
  await ui.link("Makefile").click();
  await ui.page.getByText("start restart:").waitFor();
});

test("runs are narrowed by kind and status on the server, and the address keeps that", async () => {
  await ui.view(bucket, "runs");
  await ui.page.getByLabel(/^Kind/).selectOption("deploy");
  await ui.page.getByLabel(/^Status/).selectOption("succeeded");
  await ui.page.getByText("2 rows").waitFor();
  await ui.page.reload();
  await ui.page.getByText("2 rows").waitFor();
});

test("a run tells in tabs how it went on each worker, what was asked for and by whom; the tab is remembered", async () => {
  const { id, revision } = await server.run(bucket, "hooks", { hook: "check", job: "app" });
  await ui.view(bucket, `runs/${id}`);
  await ui.page.getByText(`by bearer from 127.0.0.1, just now, revision ${revision?.slice(0, 8)}`).waitFor();
  await ui.link("Hosts").click();
  const row = ui.page.locator("main tr", { hasText: "127.0.0.2" });
  await row.getByRole("link", { name: "ok" }).click();
  const lines = ui.page.locator("#activity .text");
  await ui.page.locator("#activity .line").nth(1).waitFor({ state: "detached" });
  assert.deepEqual(await lines.allTextContents(), ["app@127.0.0.2 | checked"]);
  await ui.page.reload();
  await ui.page.locator("#activity .line").waitFor();
  assert.deepEqual(await lines.allTextContents(), ["app@127.0.0.2 | checked"]);
  await ui.page.locator(".tabs").getByText("Audit").click();
  await ui.page.locator("main tr", { hasText: "bearer" }).waitFor();
  const command = await server.run(bucket, "run_command", { command: "echo one; echo two >&2" });
  await ui.view(bucket, `runs/${command.id}`);
  await ui.page.locator(".tabs [aria-current]", { hasText: "Audit" }).waitFor();
  await ui.link("Definition").click();
  await ui.page.locator("main pre", { hasText: "echo one; echo two" }).waitFor();
  await ui.view(bucket, `runs/${command.id}/hosts?worker=127.0.0.1`);
  await ui.page.locator("#activity .stderr", { hasText: "127.0.0.1 ! two" }).waitFor();
  await ui.page.locator("#activity .line").nth(2).waitFor({ state: "detached" });
  assert.deepEqual(await lines.allTextContents(), ["127.0.0.1 | one", "127.0.0.1 ! two"]);
});

test("a run is compared with the one of its kind before it, or with another, and only what differs is shown", async () => {
  const [first, second, third] = [
    await server.run(bucket, "run_command", { command: "true" }),
    await server.run(bucket, "run_command", { command: "exit 3", ignore_failure: true }),
    await server.run(bucket, "run_command", { command: "exit 4", ignore_failure: true }),
  ];
  await ui.view(bucket, `runs/${third.id}/compare`);
  const rows = () => ui.page.locator("main tbody tr").allTextContents();
  await ui.page.locator("main tbody tr", { hasText: "exit 4" }).waitFor();
  assert.ok((await rows()).includes('parameter command"exit 3""exit 4"'), String(await rows()));
  assert.equal((await rows()).filter((row) => /ignore_failure|outcome/.test(row)).length, 0);
  await ui.page.getByLabel(/^With/).selectOption(first.id);
  await ui.page.locator("main tbody tr", { hasText: "outcome 127.0.0.2" }).getByText("failed").waitFor();
  await ui.page.reload();
  await ui.page.locator("main tbody tr", { hasText: "outcome 127.0.0.1" }).getByText("ok").waitFor();
  assert.ok((await rows()).includes("parameter ignore_failurefalsetrue"), String(await rows()));
  assert.notEqual(second.id, first.id);
});

test("CP-177 a bucket is renamed and deleted by its name", async () => {
  await ui.view(bucket, "");
  await ui.button("Rename …").click();
  await ui.page.getByRole("dialog").getByLabel("Name").fill("store");
  await ui.confirm("Rename");
  await ui.page.getByRole("combobox", { name: "Bucket" }).getByText("store").waitFor({ state: "attached" });
  await ui.button("Delete …").click();
  await ui.confirm("Delete bucket", "store");
  await ui.page.getByText("There is no bucket yet.").waitFor();
  ui.checkPeace();
});
