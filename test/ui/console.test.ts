import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { WORKERS, writeServices } from "../helpers/service.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const HOSTILE = '<img src=x onerror="document.title=1">\u202e';

const base = temporaryFolder();
let server: LocalServer;
let ui: ConsolePage;
let alpha: string;
let beta: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  [alpha, beta] = [await bucketWithServices("alpha"), await bucketWithServices("beta")];
  await server.call("POST", "/api/buckets", { project: HOSTILE, name: HOSTILE });
  ui = await ConsolePage.open(server.url);
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

/** A bucket whose services start only once there is a file to let them: `ok`, or `no` for a failure. */
async function bucketWithServices(name: string): Promise<string> {
  const id = await server.createBucket(name);
  const gate = gateOf(name);
  mkdirSync(path.dirname(gate), { recursive: true });
  const wait = `while [ ! -f ${gate} ]; do sleep 0.02; done; [ "$$(cat ${gate})" = ok ]`;
  const before = `\t@echo waiting for ${name}\n\t@${wait}\n`;
  const source = path.join(base, "sources", name);
  writeServices(source, path.join(base, "workers", name), { version: "1.0.0", before });
  const pushed = await server.push(id, source);
  assert.equal(pushed.code, 0, pushed.stderr);
  return id;
}

const gateOf = (name: string) => path.join(base, "gates", name);
const openGate = (name: string, word: "ok" | "no") => writeFileSync(gateOf(name), word);
const activity = () => ui.page.locator("#activity");
const state = (word: string) => activity().locator(".status", { hasText: word }).waitFor();
const output = (text: string) => activity().locator(".output", { hasText: text }).waitFor();
const queued = () => ui.page.locator("#queue li");
const arrived = (name: string) =>
  ui.page.getByRole("combobox", { name: "Bucket" }).getByText(name).waitFor({ state: "attached" });

test("CP-171 a wrong token is said to be wrong, beside the field, which is empty again", async () => {
  await ui.goTo("");
  await ui.page.getByLabel("API token").fill("wrong");
  await ui.button("Sign in").click();
  await ui.page.getByText("This token is not right.").waitFor();
  assert.equal(await ui.page.getByLabel("API token").inputValue(), "");
});

test("CP-189 CP-190 CP-191 T-89 the token is exchanged once and kept nowhere", async () => {
  ui.requests.length = 0;
  await ui.signIn(server.token);
  await ui.link("alpha").waitFor();
  await ui.page.reload();
  await ui.link("alpha").waitFor();
  assert.equal(await ui.page.getByLabel("API token").isVisible(), false);
  const withToken = ui.requests.filter((request) => JSON.stringify(request.headers()).includes(server.token));
  assert.deepEqual(
    withToken.map((request) => `${request.method()} ${new URL(request.url()).pathname}`),
    ["POST /api/auth/session"],
  );
  const kept: { storage: number[]; cookie: string; fields: string; page: string } = await ui.page.evaluate(`(async () => ({
    storage: [localStorage.length, sessionStorage.length, (await indexedDB.databases()).length],
    cookie: document.cookie,
    fields: [...document.querySelectorAll("input:not([type=checkbox])")].map((input) => input.value).join(""),
    page: document.documentElement.outerHTML,
  }))()`);
  assert.deepEqual([kept.storage, kept.cookie, kept.fields], [[0, 0, 0], "", ""]);
  assert.equal(kept.page.includes(server.token), false);
});

test("CP-173 buckets are listed by project, and what they are called is text", async () => {
  assert.deepEqual(await ui.page.locator("tbody th").allTextContents(), [HOSTILE, "demo", "demo"]);
  assert.deepEqual(await ui.page.locator("tbody a").allTextContents(), [HOSTILE, "alpha", "beta"]);
  assert.equal(await ui.page.locator("main img").count(), 0);
});

test("the filter of the buckets leaves those that match", async () => {
  await ui.page.keyboard.press("/");
  await ui.page.keyboard.type("bet");
  assert.deepEqual(await ui.page.locator("tbody a").allTextContents(), ["beta"]);
});

test("CP-185 the newest run is replayed without a click", async () => {
  await ui.goTo(`#/buckets/${beta}`);
  await ui.page.reload();
  await state("succeeded");
  await output("push succeeded");
  await activity().getByText("push in demo / beta").waitFor();
});

test("CP-184 a run that was started is streamed line by line below the view", async () => {
  await ui.goTo(`#/buckets/${alpha}`);
  await arrived("alpha");
  await ui.button("Deploy …").click();
  await ui.confirm("Deploy", "alpha");
  await state("running");
  await output("waiting for alpha");
  assert.equal(ui.page.url(), `${server.url}/#/buckets/${alpha}`);
  await ui.page.locator("tr", { hasText: "running" }).getByText("Deploy").waitFor();
});

test("CP-187 CP-188 T-91 one stream at a time; starts are blocked only for its bucket", async () => {
  assert.equal(await ui.button("Build").isDisabled(), true);
  assert.match((await ui.button("Build").getAttribute("title")) ?? "", /deploy runs in this bucket/);
  await ui.goTo(`#/buckets/${beta}`);
  await arrived("beta");
  await ui.settled();
  assert.equal(await ui.button("Build").isEnabled(), true);
  assert.equal(await ui.page.locator(".output").count(), 1);
  await activity().getByText("deploy in demo / alpha").waitFor();
});

test("Deployments show a dot for each worker of the job that is rolled out, batch by batch", async () => {
  await ui.view(alpha, "deployments");
  const batch = ui.page.getByRole("list", { name: "start 1" });
  for (const worker of WORKERS) {
    await batch.locator(`[title="${worker}: Running"]`).waitFor();
    await batch
      .getByRole("listitem")
      .filter({ hasText: `${worker}: Running` })
      .waitFor();
  }
  await ui.checkBarriers("a rollout");
  await ui.view(beta, "");
});

test("a start that is refused says why beside the button and leads to the run in the way", async () => {
  const run = await server.startRun(beta, "deploy");
  await ui.button("Build").click();
  await ui.button("Queue after this").click();
  await queued().getByText("Build in beta: queued, starts after this run").waitFor();
  await queued().getByRole("button", { name: "Take back" }).click();
  assert.equal(await queued().count(), 0);
  await ui.button("Build").click();
  await ui.page.getByText(/^Cannot start: bucket busy/).waitFor();
  await ui.link("Show that run").click();
  await output("waiting for beta");
  assert.equal(ui.page.url(), `${server.url}/#/buckets/${beta}/runs/${run}`);
});

test("CP-186 the active run can be cancelled, and tells until then what goes on where", async () => {
  await ui.link("Hosts").click();
  await ui.page.locator("main tr", { hasText: "127.0.0.2" }).getByText("make start").waitFor();
  await activity().getByRole("button", { name: "Cancel run" }).click();
  await ui.button("Keep it running").click();
  await activity().getByRole("button", { name: "Cancel run" }).click();
  await ui.button("Yes, cancel it").click();
  await state("cancelled");
  await ui.page.locator("main .status.cancelled").first().waitFor();
  await ui.page.locator(".tabs").getByText("Audit").click();
  await ui.page.locator("tr", { has: ui.page.getByText("cancel", { exact: true }) }).waitFor();
  await ui.view(beta, "audit");
  await ui.page.locator("tr", { hasText: "cancel" }).getByText("session").waitFor();
});

test("what is started while a run is in the way waits in this page, and starts by itself", async () => {
  const run = await server.startRun(beta, "deploy");
  await ui.goTo(`#/buckets/${beta}/runs/${run}`);
  await state("running");
  await ui.goTo(`#/buckets/${beta}`);
  await arrived("beta");
  assert.equal(await ui.button("Build").isDisabled(), true);
  await ui.page.getByLabel("Queue what is started").check();
  await ui.button("Build").click();
  await queued().waitFor();
  await server.call("POST", `/api/buckets/${beta}/runs/${run}/cancel`, {});
  await activity().getByText("build in demo / beta").waitFor();
  await queued().waitFor({ state: "detached" });
  await state("succeeded");
});

test("what a button asks of the server can be copied as a command", async () => {
  await ui.page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await ui.button("Copy Build as curl").click();
  const copied: string = await ui.page.evaluate("navigator.clipboard.readText()");
  assert.match(copied, new RegExp(`^curl -sS -X POST '${server.url}/api/buckets/${beta}/build'`));
});

test("the back button and a reload show the run of their address", async () => {
  openGate("alpha", "ok");
  await ui.goTo(`#/buckets/${alpha}/runs`);
  await ui.page.locator("tbody a").first().click();
  await ui.heading("Deploy").waitFor();
  await ui.page.goBack();
  await ui.heading("Runs").waitFor();
  await ui.page.goForward();
  await ui.heading("Deploy").waitFor();
  await ui.page.reload();
  await ui.heading("Deploy").waitFor();
  await output("waiting for alpha");
  await output("deploy succeeded");
  await state("succeeded");
});

test("a run that fails says why, in its row and in Activity", async () => {
  openGate("beta", "no");
  await ui.goTo(`#/buckets/${beta}`);
  await arrived("beta");
  await ui.button("Deploy …").click();
  await ui.confirm("Deploy", "beta");
  await state("failed");
  const why = (await activity().locator(".why").textContent()) ?? "";
  assert.match(why, /base/);
  await ui.page.locator("td .why", { hasText: why }).first().waitFor();
});

test("a run that does not exist is said not to", async () => {
  await ui.goTo(`#/buckets/${beta}/runs/01a1fb51-bab9-7e78-a3d9-bd6265ef38a9`);
  await ui.page.locator("main").getByText("does not exist").waitFor();
  await activity().getByText("does not exist").waitFor();
});

test("an address that leads nowhere says so", async () => {
  for (const hash of ["#/nowhere", `#/buckets/${beta}/nowhere`]) {
    await ui.goTo(hash);
    await ui.heading("There is no such page").waitFor();
    await ui.link("Go to the buckets").click();
    await ui.link("alpha").waitFor();
  }
});

test("everything can be reached and started by keyboard", async () => {
  await ui.link("beta").focus();
  await ui.page.keyboard.press("Enter");
  await arrived("beta");
  assert.equal(await ui.page.evaluate("document.activeElement.id"), "view");
  const reached: unknown[] = [];
  for (let presses = 0; presses < 6; presses++) {
    await ui.page.keyboard.press("Tab");
    reached.push(await ui.page.evaluate("document.activeElement.textContent.slice(0, 6)"));
  }
  for (const name of ["Build", "Deploy"]) assert.ok(reached.includes(name), `${name} was not reached: ${reached}`);
});

test("keys lead to the views, and ? tells which; Escape closes that again", async () => {
  await ui.page.keyboard.press("g");
  await ui.page.keyboard.press("d");
  await ui.heading("Deployments").waitFor();
  await ui.page.keyboard.press("Shift+ArrowRight");
  await ui.page.locator(".tabs [aria-current]", { hasText: "Rollout" }).waitFor();
  await ui.page.keyboard.press("Shift+ArrowDown");
  await ui.heading("Jobs").waitFor();
  await ui.page.keyboard.press("g");
  await ui.page.keyboard.press("r");
  await ui.heading("Runs").waitFor();
  await ui.page.keyboard.press("?");
  const dialog = ui.page.getByRole("dialog", { name: "Keys" });
  await dialog.getByText("Run command").waitFor();
  const ground = () => ui.page.evaluate("getComputedStyle(document.body).color");
  const light = await ground();
  await dialog.getByLabel("Colours").selectOption("dark");
  assert.notEqual(await ground(), light);
  await ui.page.reload();
  assert.notEqual(await ground(), light, "the colours are remembered");
  await ui.heading("Runs").waitFor();
  await ui.page.keyboard.press("?");
  await dialog.getByLabel("Colours").selectOption("system");
  assert.equal(await ground(), light);
  const jobs = dialog.getByRole("textbox", { name: "Jobs", exact: true });
  await jobs.fill("r");
  await jobs.press("Tab");
  await dialog.getByText("r is taken: Runs").waitFor();
  await jobs.fill("x");
  await ui.page.keyboard.press("Escape");
  await ui.page.reload();
  await ui.page.locator("tbody tr").first().waitFor();
  await ui.page.keyboard.press("g");
  await ui.page.keyboard.press("x");
  await ui.heading("Jobs").waitFor();
  await ui.page.locator("tbody tr").first().waitFor();
  await ui.page.keyboard.down("Shift");
  const numbers = ui.page.locator("tbody [data-number]");
  assert.deepEqual(await numbers.allTextContents(), ["app", "base"]);
  await ui.page.keyboard.press("Digit2");
  await ui.page.keyboard.up("Shift");
  await ui.heading("base").waitFor();
  assert.equal(await numbers.count(), 0);
  await ui.page.keyboard.press("?");
  await dialog.getByRole("button", { name: "Reset" }).click();
  assert.equal(await jobs.inputValue(), "j");
  await dialog.getByLabel(/^Keys of one letter/).uncheck();
  await ui.page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
  await ui.page.reload();
  await ui.heading("base").waitFor();
  await ui.page.keyboard.press("g");
  await ui.page.keyboard.press("r");
  await ui.heading("base").waitFor();
});

test("a run that begins elsewhere shows by itself", async () => {
  await ui.goTo(`#/buckets/${alpha}/runs`);
  await ui.page.locator("tbody tr").first().waitFor();
  const run = await server.run(alpha, "build");
  await ui.page.locator(`main a[href$="${run.id}"]`).waitFor();
});

test("while the server is away the top bar says so, and it goes on by itself", async () => {
  await ui.page.route("**/api/events*", (route) => route.abort());
  await server.run(alpha, "build");
  await ui.page.getByText("reconnecting").waitFor();
  await ui.page.unroute("**/api/events*");
  await ui.page.locator("#live", { hasText: "live" }).waitFor();
  ui.complaints.length = 0;
});

test("a session that ended asks for the token again and goes on where it was", async () => {
  await ui.goTo(`#/buckets/${alpha}/jobs`);
  await ui.heading("Jobs").waitFor();
  await ui.page.context().clearCookies();
  await ui.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
  await ui.page.getByText("Your session has ended. Sign in again.").waitFor();
  assert.equal(await ui.page.locator("main table").count(), 0);
  await ui.signIn(server.token);
  await ui.heading("Jobs").waitFor();
});

test("signing out ends the session and clears the page", async () => {
  await ui.button("Sign out").click();
  await ui.page.getByLabel("API token").waitFor();
  assert.equal(await activity().isVisible(), false);
  assert.equal(await ui.page.locator("#sections").isVisible(), false);
  await ui.page.reload();
  await ui.page.getByLabel("API token").waitFor();
  assert.equal(await ui.page.locator("tbody").count(), 0);
});

test("T-60 the page runs under its content security policy without a complaint, and asks nobody else", () => {
  ui.checkPeace();
});
