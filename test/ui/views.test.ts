import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { makeKey } from "../../scripts/private-sshd.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { writeServices } from "../helpers/service.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const base = temporaryFolder();
let server: LocalServer;
let ui: ConsolePage;
let bucket: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  bucket = await server.createBucket("shop");
  const source = path.join(base, "source");
  for (const version of ["1.0.0", "1.1.0"]) {
    writeServices(source, path.join(base, "workers"), { version });
    await server.push(bucket, source);
  }
  await server.run(bucket, "deploy");
  ui = await ConsolePage.signedIn(server);
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

const sent = (act: () => Promise<unknown>) => ui.sent(server, bucket, act);
const dialog = () => ui.page.getByRole("dialog");
const row = (text: string) => ui.page.locator("tbody tr", { hasText: text });
/** Opens the menu with the rarer orders of a place and chooses one. */
async function choose(place: ReturnType<ConsolePage["page"]["locator"]>, name: string): Promise<void> {
  await place.locator(".more").click();
  await ui.page.getByRole("menuitem", { name }).click();
}
const head = () => ui.page.locator("main .head");

test("CP-173 a bucket that was never deployed does not count as well", async () => {
  await ui.heading("The bucket is well").waitFor();
  await server.createBucket("fresh");
  await ui.page.reload();
  await ui.heading("1 of 2 buckets is well").waitFor();
});

test("CP-174 CP-175 workers: definitions to read, and each reading starts its run on those chosen", async () => {
  await ui.view(bucket, "workers");
  await row("127.0.0.2").waitFor();
  assert.deepEqual(await ui.page.locator("tbody th").allTextContents(), ["127.0.0.1", "127.0.0.2"]);
  await ui.button("Which workers").click();
  await ui.page.getByRole("checkbox", { name: "127.0.0.1" }).uncheck();
  await ui.page.keyboard.press("Escape");
  const only = { workers: ["127.0.0.2"] };
  assert.deepEqual(await sent(() => ui.button("Read uptime").click()), ["POST", "workers/uptime", only]);
  assert.deepEqual(await sent(() => choose(head(), "Read facts")), ["POST", "workers/facts", only]);
  assert.deepEqual(await sent(() => choose(head(), "Read load")), ["POST", "workers/sysstat", only]);
  await row("127.0.0.2")
    .getByText(/^\d+ %/)
    .first()
    .waitFor();
  const trusted = sent(async () => {
    await ui.button("Trust …").click();
    await ui.confirm("Trust");
  });
  assert.deepEqual(await trusted, ["POST", "workers/trust", only]);
  const forced = sent(async () => {
    await choose(head(), "Trust by force …");
    await dialog()
      .getByText(/^Replaces the known host keys of 1 worker: 127\.0\.0\.2/)
      .waitFor();
    await ui.confirm("Trust by force", "shop");
  });
  assert.deepEqual(await forced, ["POST", "workers/trust", { ...only, force: true }]);
});

test("what is dangerous waits until the name is typed, and is left by Cancel", async () => {
  await ui.view(bucket, "hooks");
  await row("app").getByRole("button", { name: "Run …" }).click();
  const run = dialog().getByRole("button", { name: "Run the hook" });
  assert.equal(await run.isDisabled(), true);
  await dialog().getByLabel(/^Type/).fill("ap");
  assert.equal(await run.isDisabled(), true);
  ui.requests.length = 0;
  await dialog().getByRole("button", { name: "Cancel" }).click();
  await dialog().waitFor({ state: "detached" });
  assert.equal(
    ui.requests.some((request) => request.method() === "POST"),
    false,
  );
});

test("CP-179 CP-180 run command carries workers, width, limits and what to do about failures; the answers fold", async () => {
  await ui.view(bucket, "command");
  const run = (workers: number) => ui.button(`Run on ${workers} worker${workers === 1 ? "" : "s"} …`);
  await run(2).waitFor();
  assert.equal(await run(2).isDisabled(), true);
  await ui.page.getByLabel(/^Command/).fill("echo out; exit 3");
  await ui.page.getByLabel("At a time").fill("2");
  await ui.page.getByLabel("Time limit in seconds").fill("60");
  await ui.page.getByLabel("Health check after each batch").check();
  await ui.page.getByLabel("Go on after failures").check();
  await ui.page.getByText("in one batch").waitFor();
  const all = sent(async () => {
    await run(2).click();
    await dialog().getByText("Runs on all 2 workers.").waitFor();
    await ui.confirm("Run on 2 workers", "shop");
  });
  const options = { concurrency: 2, timeout_seconds: 60, health_check: true, ignore_failure: true };
  assert.deepEqual(await all, ["POST", "run_command", { command: "echo out; exit 3", ...options }]);
  await ui.page.getByText("exit code 3").or(ui.page.getByText("exit 3")).first().waitFor();
  await ui.button("Last used ▾").click();
  await ui.page.getByRole("menuitem", { name: "echo out; exit 3" }).click();
  await ui.page.getByRole("button", { name: /^all 2$/ }).click();
  await ui.page.getByRole("checkbox", { name: "127.0.0.1" }).uncheck();
  const one = sent(async () => {
    await ui.page.getByLabel(/^Command/).press("Control+Enter");
    await ui.confirm("Run on 1 worker");
  });
  assert.deepEqual((await one)[2], { ...((await one)[2] as object), command: "echo out; exit 3", workers: ["127.0.0.2"] });
  // Until the second run has ended and is read, the last one is the first.
  await until("the one that failed last is chosen", async () => {
    await ui.button("Failed last").click();
    return await run(1).isVisible();
  });
});

test("CP-181 hooks on the event cli are listed and run", async () => {
  await ui.view(bucket, "hooks");
  await row("app").getByText("check of base").waitFor();
  const order = sent(async () => {
    await row("app").getByRole("button", { name: "Run …" }).click();
    await ui.confirm("Run the hook", "app");
  });
  assert.deepEqual(await order, ["POST", "hooks", { hook: "check", job: "app", verbose: true }]);
  await row("app").getByText("succeeded").waitFor();
});

test("CP-178 the catalog is filtered and sorted, and its address keeps both", async () => {
  await ui.view(bucket, "catalog/allocations");
  await ui.page.getByRole("searchbox", { name: "Filter Allocations" }).fill("127.0.0.2");
  const byJob = ui.page.getByRole("columnheader", { name: "Job" }).getByRole("button");
  await byJob.click();
  await byJob.click();
  await ui.page.reload();
  await ui.page.getByText("2 of 4").waitFor();
  assert.match((await ui.page.locator("[aria-sort=descending]").textContent()) ?? "", /^Job/);
  assert.deepEqual(await ui.page.locator("tbody a[href*='/jobs/']").allTextContents(), ["base", "app"]);
});

test("a secret is set without being shown: the catalog has its fingerprint and age", async () => {
  await ui.view(bucket, "catalog/kv");
  const value = "hunter2-hunter2";
  const stored = sent(async () => {
    await ui.button("Set a secret …").click();
    await dialog().getByLabel(/^Job/).fill("base");
    await dialog().getByLabel(/^Key/).fill("password");
    await dialog()
      .getByLabel(/^Value/)
      .fill(value);
    await ui.confirm("Store the secret");
  });
  assert.deepEqual(await stored, ["PUT", "secrets/jobs/base/password", { value }]);
  await ui.page.getByRole("columnheader", { name: "Fingerprint" }).waitFor();
  const secret = ui.page.locator("tr", { hasText: "secrets/job/base" });
  assert.match(await secret.innerText(), /password.*\[encrypted\].*just now|password.*\[encrypted\].*ago/s);
  assert.equal((await ui.page.content()).includes(value), false);
  const removed = sent(async () => {
    await ui.button("Remove a secret …").click();
    await dialog().getByLabel(/^Job/).fill("base");
    await dialog().getByLabel(/^Key/).fill("password");
    await ui.confirm("Remove the secret", "shop");
  });
  assert.deepEqual((await removed).slice(0, 2), ["DELETE", "secrets/jobs/base/password"]);
});

test("CP-089 CP-176 the source is shown and cannot be edited; what must be pushed says how", async () => {
  await ui.view(bucket, "source/files");
  await ui.link("workspace/jobs/base/static/page.txt").click();
  await ui.page.getByText("page of 1.1.0").waitFor();
  await ui.view(bucket, "source/settings");
  await ui.page.getByRole("heading", { name: "workspace/bucket.conf" }).waitFor();
  await ui.page.getByText(`ops push ${server.url} --bucket ${bucket}`).waitFor();
  assert.equal(await ui.page.locator("main textarea, main input:not([type=search]), main [contenteditable]").count(), 0);
});

test("a revision is compared with the current one, and rolled back to by the name of the bucket", async () => {
  await ui.view(bucket, "source");
  const [, old] = await ui.page.locator("tbody th a").all();
  await old?.click();
  await ui.page
    .getByText(/^3 files changed|files changed/)
    .first()
    .waitFor();
  await ui.page
    .locator(".diff .removed", { hasText: '"version":"1.1.0"' })
    .or(ui.page.locator(".diff .added", { hasText: "1.0.0" }))
    .first()
    .waitFor({ state: "attached" });
  const order = sent(async () => {
    await ui.button("Roll back …").click();
    await dialog().getByText("Workers stay as they are until the next deploy.").waitFor();
    await ui.confirm("Roll back", "shop");
  });
  const [method, target] = await order;
  assert.deepEqual([method, target], ["POST", "source/rollback"]);
});

test("a key is stored, replaced and removed only by the name of the bucket, and is never shown", async () => {
  await ui.view(bucket, "source/keys");
  const text = readFileSync(makeKey(base, "id"), "utf8");
  await ui.button("Upload a key …").click();
  await dialog()
    .getByLabel(/^Private key/)
    .fill(text);
  await ui.confirm("Store the key");
  await ui.page.getByText("SHA256:").waitFor();
  await choose(ui.page.locator("main"), "Replace the key …");
  await dialog().getByText("Replaces the private key").waitFor();
  assert.equal(await dialog().getByRole("button", { name: "Replace the key" }).isDisabled(), true);
  await ui.page.keyboard.press("Escape");
  assert.equal((await ui.page.content()).includes(text.split("\n")[1] ?? ""), false);
  const removed = sent(async () => {
    await choose(ui.page.locator("main"), "Remove the key …");
    await ui.confirm("Remove the key", "shop");
  });
  assert.deepEqual((await removed).slice(0, 2), ["DELETE", "secrets/ssh_key"]);
  await ui.page.getByText("There is no key").waitFor();
});

test("a snapshot is made, checked, restored and deleted", async () => {
  await ui.view(bucket, "source/snapshots");
  const made = sent(async () => {
    await ui.button("Create a snapshot …").click();
    await dialog().getByLabel("Note").fill("before the change");
    await ui.confirm("Create a snapshot");
  });
  assert.deepEqual(await made, ["POST", "snapshots", { note: "before the change" }]);
  const snapshot = row("before the change");
  await snapshot.getByRole("button", { name: "Check" }).click();
  await ui.page.getByText(/^The snapshot can be restored: \d+ files/).waitFor();
  const restored = sent(async () => {
    await snapshot.getByRole("button", { name: "Restore …" }).click();
    await ui.confirm("Restore", "shop");
  });
  assert.match((await restored)[1], /^snapshots\/.*\/restore$/);
  const [, deleted] = await sent(async () => {
    await choose(snapshot, "Delete …");
    await ui.confirm("Delete the snapshot", "shop");
  });
  assert.match(deleted, /^snapshots\//);
});

test("CP-177 the database is upgraded, and the bucket renamed and deleted, by its name", async () => {
  await ui.view(bucket, "source/schema");
  const upgraded = sent(async () => {
    await ui.button("Initialise or upgrade …").click();
    await ui.confirm("Initialise or upgrade", "shop");
  });
  assert.deepEqual((await upgraded).slice(0, 2), ["POST", "init"]);
  await ui.button("Rename …").click();
  await dialog().getByLabel("Name", { exact: true }).fill("store");
  await ui.confirm("Rename");
  await ui.page.locator("#where", { hasText: "store" }).waitFor();
  await choose(ui.page.locator("main"), "Delete the bucket …");
  await ui.confirm("Delete the bucket", "store");
  await ui.heading("Deploy fresh for the first time").waitFor();
  ui.checkPeace();
});
