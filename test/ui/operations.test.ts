import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { makeKey } from "../../scripts/private-sshd.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { serviceHistory, WORKERS, writeServices } from "../helpers/service.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const base = temporaryFolder();
const source = path.join(base, "source");
const workers = path.join(base, "workers");
const broken = path.join(base, "broken");
let server: LocalServer;
let ui: ConsolePage;
let bucket: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  bucket = await server.createBucket("shop");
  await push("1.0.0");
  ui = await ConsolePage.open(server.url);
  await ui.goTo("");
  await ui.signIn(server.token);
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

/** A version of the services whose start fails while the file `broken` is there. */
async function push(version: string): Promise<void> {
  writeServices(source, workers, { version, before: `\t@test ! -e ${broken}\n` });
  const { code, stderr } = await server.push(bucket, source);
  assert.equal(code, 0, stderr);
}

const dialog = () => ui.page.getByRole("dialog");
const part = (title: string) =>
  ui.page.locator("section.part", { has: ui.page.getByRole("heading", { name: title, exact: true }) });
const last = (host = WORKERS[0] ?? "") => serviceHistory(workers, host, bucket, "base").at(-1);

/** What was asked of the server, what it answered, and how the run has ended where it is one. */
interface Dared {
  path: string | undefined;
  body: unknown;
  code: number;
  status?: string;
  run?: string;
}

/**
 * Starts what is dangerous: first sees that it says what it will do and to what, and that nothing is asked of the server
 * before the very name was typed. Answers how the request and its run ended.
 */
async function dare(label: string, says: RegExp, word: string, action: string): Promise<Dared> {
  await ui.button(label).first().click();
  await dialog().getByText(says).waitFor();
  const button = dialog().getByRole("button", { name: action, exact: true });
  await dialog().getByLabel(/^Type/).fill(`${word}x`);
  assert.equal(await button.isDisabled(), true, `${label} does not wait for the name`);
  const [response] = await Promise.all([
    ui.page.waitForResponse((one) => one.url().includes(bucket) && one.request().method() !== "GET"),
    ui.confirm(action, word),
  ]);
  const request = response.request();
  const [, below] = new URL(response.url()).pathname.split(`${bucket}/`);
  const sent = { path: below, body: request.postDataJSON(), code: response.status() };
  if (sent.code !== 202) return sent;
  const { run_id: run } = (await response.json()) as { run_id: string };
  const { status } = await server.follow(bucket, run);
  await ui.page.locator("#activity .status:not(.running)").waitFor();
  return { ...sent, status, run };
}

test("a plan is deployed as it is shown; where something has moved since, the question says so and stays", async () => {
  const plan = await server.run(bucket, "deploy", { dry_run: true });
  await ui.view(bucket, "deployments");
  const { status, body } = await dare("Deploy this plan …", /Does what this plan shows/, "shop", "Deploy this plan");
  assert.deepEqual([status, body], ["succeeded", { plan: plan.id }]);
  await part("Last deploy").locator("tr", { hasText: "base" }).getByText("changed").first().waitFor();
  assert.equal(last(), "start 1.0.0");
  await ui.button("Deploy this plan …").click();
  await dialog().getByLabel(/^Type/).fill("shop");
  await dialog().getByRole("button", { name: "Deploy this plan", exact: true }).click();
  await dialog().getByRole("alert").getByText(/plan/).waitFor();
  await ui.page.keyboard.press("Escape");
});

test("a job is stopped, started and restarted on the workers that are chosen, by its name", async () => {
  await ui.view(bucket, "jobs/base");
  const stopped = await dare("Stop …", /base, 2 allocations on 127\.0\.0\.1, 127\.0\.0\.2/, "base", "Stop");
  assert.deepEqual([stopped.status, stopped.path, last()], ["succeeded", "jobs/base/stop", "stop"]);
  const started = await dare("Start …", /^Starts it: base/, "base", "Start");
  assert.deepEqual([started.body, last()], [{ health_check: true }, "start 1.0.0"]);
  await ui.page.getByText("Workers and other targets").click();
  await ui.page.getByLabel("127.0.0.2", { exact: true }).check();
  const one = await dare("Restart …", /base, 1 allocation on 127\.0\.0\.2\./, "base", "Restart");
  assert.deepEqual(one.body, { allocations: ["127.0.0.2"], health_check: true });
  assert.deepEqual([last(), last("127.0.0.2")], ["start 1.0.0", "restart 1.0.0"]);
  await ui.page.getByLabel("Health check afterwards").uncheck();
  assert.deepEqual((await dare("Reload …", /^Makes it read/, "base", "Reload")).body, { allocations: ["127.0.0.2"] });
  const forgot = await dare("Stop and forget …", /as if it was new/, "base", "Stop and forget");
  assert.deepEqual(forgot.body, { forget: true, allocations: ["127.0.0.2"] });
  await ui.page.getByLabel(/^Target of its Makefile/).fill("status");
  assert.equal((await dare("Run target …", /Runs make status/, "base", "Run target")).path, "jobs/base/run");
});

test("a deploy that failed is retried on what is left, from the deployments and from its own page", async () => {
  await push("1.1.0");
  writeFileSync(broken, "");
  await ui.view(bucket, "deployments");
  const failed = await dare("Deploy …", /all jobs/, "shop", "Deploy");
  assert.equal(failed.status, "failed");
  const retried = await dare("Retry what failed …", /Repeats deploy/, "shop", "Retry what failed");
  assert.deepEqual([retried.status, retried.body], ["failed", { retry_of: failed.run }]);
  rmSync(broken);
  await ui.view(bucket, `runs/${failed.run}`);
  await ui.page.locator(".tabs [aria-current]", { hasText: "Summary" }).waitFor();
  const again = await dare("Retry what failed …", /Repeats deploy/, "shop", "Retry what failed");
  assert.deepEqual([again.status, again.body], ["succeeded", { retry_of: failed.run }]);
  assert.match(last() ?? "", /1\.1\.0$/);
});

test("a run is cancelled from the list, and what was done to a job is done again only by its name", async () => {
  const go = path.join(base, "go");
  const wait = `while [ ! -e ${go} ]; do sleep 0.05; done; exit`;
  const command = `[ $WORKER_IP = 127.0.0.1 ] || trap '${wait}' TERM; echo begun; sleep 60 & wait; sleep 60`;
  const run = await server.startRun(bucket, "run_command", { command, concurrency: 2 });
  await ui.view(bucket, `runs/${run}`);
  await ui.page.locator("#activity .line", { hasText: "begun" }).nth(1).waitFor();
  await ui.view(bucket, "runs");
  await ui.page.getByRole("main").getByRole("button", { name: "Cancel run …" }).click();
  await ui.button("Yes, cancel it").click();
  await ui.view(bucket, `runs/${run}`);
  const told = /^Cancelling: [12] of 2 confirmed; after 10 seconds by force$/;
  for (const place of ["main", "#activity"]) await ui.page.locator(place).getByText(told).waitFor();
  writeFileSync(go, "");
  await ui.page.locator("main .status.cancelled").first().waitFor();
  await ui.view(bucket, "runs");
  assert.equal((await server.follow(bucket, run)).status, "cancelled");
  await ui.page.locator("tr", { hasText: "sleep 60" }).getByText("cancelled").waitFor();
  const stop = await server.run(bucket, "jobs/base/stop", { allocations: ["127.0.0.1"] });
  await ui.view(bucket, `runs/${stop.id}`);
  const again = await dare("Run again …", /^Starts job_stop with .*127\.0\.0\.1/, "base", "Run again");
  const body = { allocations: ["127.0.0.1"], health_check: false, forget: false };
  assert.deepEqual([again.path, again.body], ["jobs/base/stop", body]);
  const start = await server.run(bucket, "jobs/base/start");
  assert.equal(start.status, "succeeded");
});

test("drift shows when it was checked last, and what was changed by hand", async () => {
  await ui.view(bucket, "");
  await part("Drift").getByText("It has not run yet.").waitFor();
  const page = path.join(workers, "127.0.0.1", bucket, "jobs", "base", "static", "page.txt");
  writeFileSync(page, "changed by hand\n");
  await ui.button("Check for drift").click();
  await part("Drift").locator("tr", { hasText: "base" }).getByText("drifted").waitFor();
  await part("Drift").getByText("+changed by hand").waitFor();
  const when = part("Drift").locator("time").first();
  const stamp = Date.parse((await when.getAttribute("datetime")) ?? "");
  assert.ok(Math.abs(Date.now() - stamp) < 600_000, `checked at ${stamp}`);
  await ui.view(bucket, "workers");
  await ui.page.locator("tr", { hasText: "127.0.0.1" }).first().getByText("drifted").waitFor();
});

test("a key is stored, replaced and removed only by the name of the bucket, and is never shown", async () => {
  await ui.view(bucket, "source/ssh_key");
  const text = readFileSync(makeKey(base, "id"), "utf8");
  await ui.button("Upload key …").click();
  await dialog()
    .getByLabel(/^Private key/)
    .fill(text);
  await ui.confirm("Upload key");
  await ui.page.getByText("SHA256:").waitFor();
  await ui.button("Upload key …").click();
  await dialog().getByText("Replaces the private key").waitFor();
  assert.equal(await dialog().getByRole("button", { name: "Upload key" }).isDisabled(), true);
  await ui.page.keyboard.press("Escape");
  assert.equal((await ui.page.content()).includes(text.split("\n")[1] ?? ""), false);
  const removed = await dare("Remove key …", /workers cannot be reached/, "shop", "Remove key");
  assert.deepEqual([removed.path, removed.code], ["secrets/ssh_key", 204]);
  await ui.page.getByText("There is no key").waitFor();
});

test("a snapshot is deleted, and the database initialised or upgraded, by the name of the bucket", async () => {
  await server.run(bucket, "snapshots", { note: "to be deleted" });
  await ui.view(bucket, "source/snapshots");
  const deleted = await dare("Delete …", /Removes the snapshot .* cannot be undone/, "shop", "Delete snapshot");
  assert.equal(deleted.code, 204);
  await ui.page.getByText("There is none yet.").waitFor();
  await ui.view(bucket, "source/schema");
  const upgraded = await dare("Initialise or upgrade …", /Makes or upgrades/, "shop", "Initialise or upgrade");
  assert.equal(upgraded.code, 200);
  ui.checkPeace();
});
