// What happens elsewhere while a page is open: runs that others start, a bucket that is deleted, a session that ends.

import assert from "node:assert/strict";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { writeServices } from "../helpers/service.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const base = temporaryFolder();
let server: LocalServer;
let ui: ConsolePage;
let bucket: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  bucket = await server.createBucket("alpha");
  const source = path.join(base, "source");
  writeServices(source, path.join(base, "workers"), { version: "1.0.0" });
  const pushed = await server.push(bucket, source);
  assert.equal(pushed.code, 0, pushed.stderr);
  ui = await ConsolePage.signedIn(server);
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

const entry = (name: string) => ui.page.getByRole("menuitem", { name, exact: true });

test("CP-173 a bucket that was never deployed is not called well while a run goes on in it", async () => {
  const run = await server.startRun(bucket, "run_command", { command: "sleep 600" });
  await ui.goTo("#/");
  await ui.page.locator("main .going-on").waitFor();
  assert.equal(await ui.heading("The bucket is not deployed").count(), 1);
  await server.call("POST", `/api/buckets/${bucket}/runs/${run}/cancel`);
  await server.follow(bucket, run);
});

test("CP-188 a start in a menu waits like a button: it says why, and what starts no run does not wait", async () => {
  const run = await server.startRun(bucket, "run_command", { command: "sleep 600" });
  await ui.goTo(`#/buckets/${bucket}`);
  await ui.page.locator("main [data-starts][aria-disabled=true]").first().waitFor();
  await ui.button("More orders").click();
  for (const name of ["Build", "Check for drift"]) {
    assert.equal(await entry(name).getAttribute("aria-disabled"), "true", name);
    assert.equal(await entry(name).getAttribute("title"), "Not now: Run command runs in this bucket");
  }
  for (const name of ["Copy as curl", "Rename …", "Delete the bucket …"])
    assert.equal(await entry(name).getAttribute("aria-disabled"), null, name);
  await entry("Build").click({ force: true });
  await ui.page.getByText(/^Not now: Run command runs in this bucket since/).waitFor();
  const { x = 0 } = (await ui.button("Queue after it").boundingBox()) ?? {};
  assert.ok(x > 600, `the reason stands where the menu was, not at ${x}`);
  await ui.button("Queue after it").click();
  await ui.page.getByText("Build starts after the run that goes on.").waitFor();
  await server.call("POST", `/api/buckets/${bucket}/runs/${run}/cancel`);
  await ui.page.locator("#status", { hasText: "Build" }).waitFor();
  await ui.button("More orders").click();
  await ui.page.locator("[data-starts][role=menuitem]:not([aria-disabled])", { hasText: "Build" }).waitFor();
  await ui.page.keyboard.press("Escape");
});

test("a log in the whole window shows the next run there, and the page can be used once it is closed", async () => {
  await ui.goTo(`#/buckets/${bucket}/jobs`);
  await ui.heading("2 jobs").waitFor();
  await ui.page.keyboard.press("Shift+L");
  await ui.page.locator("#activity.whole").waitFor();
  const run = await server.run(bucket, "run_command", { command: "echo from elsewhere" });
  await ui.page.locator(".log-title", { hasText: `…${run.id.slice(-8)}` }).waitFor();
  await ui.page.keyboard.press("Escape");
  await ui.page.locator("#activity:not(.whole)").waitFor({ state: "attached" });
  assert.equal(await ui.page.locator("[inert]").count(), 0);
});

test("a bucket that is deleted elsewhere, or never was, is said not to be there", async () => {
  const gone = await server.createBucket("gone");
  await ui.goTo(`#/buckets/${gone}/workers`);
  await ui.heading("Workers").waitFor();
  await server.call("DELETE", `/api/buckets/${gone}`);
  await ui.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
  await ui.heading("There is no such bucket").waitFor();
  await ui.goTo(`#/buckets/${bucket}/workers`);
  await ui.heading("Workers").waitFor();
  for (const id of [gone, "nobody"]) {
    await ui.goTo(`#/buckets/${id}/jobs`);
    await ui.heading("There is no such bucket").waitFor();
  }
  await ui.link("Go to the buckets").click();
  await ui.page.locator(".buckets").waitFor();
});

test("a page whose server comes back without its session no longer says that the server does not answer", async (t) => {
  const root = path.join(base, "restarted");
  const first = await LocalServer.start(root);
  const other = await ConsolePage.signedIn(first);
  t.after(() => other.close());
  await other.page.locator("#live", { hasText: /^live$/ }).waitFor();
  await first.stop();
  const banner = other.page.getByText(/^The server has not answered since/);
  await banner.waitFor();
  const second = await LocalServer.start(root, { addr: new URL(first.url).host, token: first.token });
  t.after(() => second.stop());
  await other.page.locator("#live", { hasText: "signed out" }).waitFor();
  assert.equal(await banner.isVisible(), false);
});

test("the page has had no complaint", () => {
  ui.checkPeace();
});
