import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { type Browser, chromium, type Page, type Request } from "playwright-core";
import { LocalServer, ops } from "../../scripts/local-server.ts";
import { writeServices } from "../helpers/service.ts";

const HOSTILE = '<img src=x onerror="document.title=1">';
/** Without these, Chromium looks for services on the network. */
const QUIET = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-first-run",
];

const CHROMIUM = execFileSync("sh", ["-c", "command -v chromium"], { encoding: "utf8" }).trim();

const base = mkdtempSync(path.join(tmpdir(), "ops-console-"));
const requests: Request[] = [];
const complaints: string[] = [];
let server: LocalServer;
let browser: Browser;
let page: Page;
let alpha: string;
let beta: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  [alpha, beta] = [await bucketWithServices("alpha"), await bucketWithServices("beta")];
  await server.call("POST", "/api/buckets", { project: HOSTILE, name: HOSTILE });
  browser = await chromium.launch({ executablePath: CHROMIUM, args: QUIET });
  page = await browser.newPage();
  page.on("request", (request) => requests.push(request));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error" && !message.text().startsWith("Failed to load"))
      complaints.push(message.text());
  });
});
beforeEach(() => page.setDefaultTimeout(15_000));
after(async () => {
  await browser?.close();
  await server?.stop();
  rmSync(base, { recursive: true, force: true, maxRetries: 5 });
});

/** A bucket whose services start only once there is a file to let them: `ok`, or `no` for a failure. */
async function bucketWithServices(name: string): Promise<string> {
  const id = await server.createBucket(name);
  const gate = gateOf(name);
  mkdirSync(path.dirname(gate), { recursive: true });
  const wait = `while [ ! -f ${gate} ]; do sleep 0.02; done; [ "$$(cat ${gate})" = ok ]`;
  const before = `\t@echo waiting for ${name}\n\t@${wait}\n`;
  writeServices(path.join(base, "sources", name), path.join(base, "workers", name), {
    version: "1.0.0",
    before,
  });
  const pushed = await ops(["push", server.url, "--bucket", id, "--dir", path.join(base, "sources", name)], {
    env: { OPS_SERVE_TOKEN: server.token },
  });
  assert.equal(pushed.code, 0, pushed.stderr);
  return id;
}

const gateOf = (name: string) => path.join(base, "gates", name);
const openGate = (name: string, word: "ok" | "no") => writeFileSync(gateOf(name), word);
const activity = () => page.locator("#activity");
const button = (name: string) => page.getByRole("button", { name, exact: true });
const state = (word: string) => activity().locator(".status", { hasText: word }).waitFor();
const output = (text: string) => activity().locator(".output", { hasText: text }).waitFor();
const goTo = (hash: string) => page.goto(`${server.url}/${hash}`);

async function signIn(): Promise<void> {
  await page.getByLabel("API token").fill(server.token);
  await button("Sign in").click();
  await button("Sign out").waitFor();
}

test("CP-171 a wrong token is said to be wrong, beside the field, which is empty again", async () => {
  await goTo("");
  await page.getByLabel("API token").fill("wrong");
  await button("Sign in").click();
  await page.getByText("This token is not right.").waitFor();
  assert.equal(await page.getByLabel("API token").inputValue(), "");
});

test("CP-189 CP-190 CP-191 the token is exchanged once and kept nowhere", async () => {
  requests.length = 0;
  await signIn();
  await page.getByRole("link", { name: "alpha" }).waitFor();
  await page.reload();
  await page.getByRole("link", { name: "alpha" }).waitFor();
  assert.equal(await page.getByLabel("API token").isVisible(), false);
  const withToken = requests.filter((request) => JSON.stringify(request.headers()).includes(server.token));
  assert.deepEqual(
    withToken.map((request) => `${request.method()} ${new URL(request.url()).pathname}`),
    ["POST /api/auth/session"],
  );
  const kept: { storage: number[]; cookie: string; fields: string; page: string } =
    await page.evaluate(`(async () => ({
    storage: [localStorage.length, sessionStorage.length, (await indexedDB.databases()).length],
    cookie: document.cookie,
    fields: [...document.querySelectorAll("input:not([type=checkbox])")].map((input) => input.value).join(""),
    page: document.documentElement.outerHTML,
  }))()`);
  assert.deepEqual([kept.storage, kept.cookie, kept.fields], [[0, 0, 0], "", ""]);
  assert.equal(kept.page.includes(server.token), false);
});

test("CP-173 buckets are listed by project, and what they are called is text", async () => {
  assert.deepEqual(await page.locator("main h2").allTextContents(), [HOSTILE, "demo"]);
  assert.deepEqual(await page.locator(".cards a").allTextContents(), [HOSTILE, "alpha", "beta"]);
  assert.equal(await page.locator("main img").count(), 0);
});

test("CP-185 the newest run is replayed without a click", async () => {
  await goTo(`#/buckets/${beta}`);
  await page.reload();
  await state("succeeded");
  await output("push succeeded");
  await page.getByText("push in demo / beta").waitFor();
});

test("CP-184 a run that was started is streamed line by line, in an address of its own", async () => {
  await goTo(`#/buckets/${alpha}`);
  await button("Deploy").click();
  await state("running");
  await output("base@127.0.0.1 | waiting for alpha");
  assert.match(page.url(), new RegExp(`#/buckets/${alpha}/runs/[0-9a-f-]{36}$`));
  assert.match((await page.locator(".runs li").first().textContent()) ?? "", /^runningdeploy/);
});

test("CP-187 CP-188 one stream at a time; starts are blocked only for its bucket", async () => {
  assert.equal(await button("Build").isDisabled(), true);
  await page.getByText("A run of this bucket is active").waitFor();
  await goTo(`#/buckets/${beta}`);
  await page.getByRole("heading", { name: "beta" }).waitFor();
  await page.locator(".runs li").waitFor();
  assert.equal(await button("Build").isEnabled(), true);
  assert.equal(await page.locator(".output").count(), 1);
  await page.getByText("deploy in demo / alpha").waitFor();
});

test("a start that is refused says why beside the button and leads to the run in the way", async () => {
  const run = await server.startRun(beta, "deploy");
  await button("Build").click();
  await page.getByText(/^Cannot start build: bucket busy/).waitFor();
  await page.getByRole("link", { name: "Show that run" }).click();
  await output("waiting for beta");
  assert.equal(page.url(), `${server.url}/#/buckets/${beta}/runs/${run}`);
});

test("CP-186 the active run can be cancelled", async () => {
  await button("Cancel run").click();
  await button("Keep it running").click();
  await button("Cancel run").click();
  await button("Yes, cancel it").click();
  await state("cancelled");
  assert.equal(await button("Cancel run").isVisible(), false);
  await page.locator(".runs .status.cancelled").first().waitFor();
  assert.equal(await button("Deploy").isEnabled(), true);
});

test("the back button and a reload show the run of their address", async () => {
  openGate("alpha", "ok");
  await page.goBack();
  await page.goBack();
  await page.waitForURL(new RegExp(`#/buckets/${alpha}/runs/`));
  await page.reload();
  await output("waiting for alpha");
  await output("deploy succeeded");
  await state("succeeded");
});

test("a run that fails says why, in its row and in Activity", async () => {
  openGate("beta", "no");
  await goTo(`#/buckets/${beta}`);
  await page.getByRole("heading", { name: "beta" }).waitFor();
  await button("Deploy").click();
  await state("failed");
  const why = await activity().locator(".why").textContent();
  assert.match(why ?? "", /base/);
  await page
    .locator(".runs .why", { hasText: why ?? "" })
    .first()
    .waitFor();
});

test("a run that does not exist is said not to, in Activity", async () => {
  await goTo(`#/buckets/${beta}/runs/01a1fb51-bab9-7e78-a3d9-bd6265ef38a9`);
  await activity().getByText("does not exist").waitFor();
});

test("an address that leads nowhere says so", async () => {
  await goTo("#/nowhere");
  await page.getByRole("heading", { name: "There is no such page" }).waitFor();
  await page.getByRole("link", { name: "Go to the buckets" }).click();
  await page.getByRole("link", { name: "alpha" }).waitFor();
});

test("at 360 pixels nothing is wider than the page", async () => {
  await page.setViewportSize({ width: 360, height: 740 });
  for (const hash of ["#/", `#/buckets/${alpha}`]) {
    await goTo(hash);
    await page.locator(".runs li, .cards li").first().waitFor();
    assert.equal(await page.evaluate("document.documentElement.scrollWidth"), 360);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
});

test("everything can be reached and started by keyboard", async () => {
  await goTo("#/");
  await page.getByRole("link", { name: "beta" }).waitFor();
  await page.reload();
  await page.getByRole("link", { name: "beta" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "beta" }).waitFor();
  assert.equal(await page.evaluate("document.activeElement.id"), "view");
  const reached: unknown[] = [];
  for (let presses = 0; presses < 12; presses++) {
    await page.keyboard.press("Tab");
    reached.push(await page.evaluate("document.activeElement.textContent.slice(0, 6)"));
  }
  for (const name of ["Build", "Deploy"])
    assert.ok(reached.includes(name), `${name} was not reached: ${reached}`);
});

test("a session that ended asks for the token again and goes on where it was", async () => {
  await goTo(`#/buckets/${alpha}`);
  await page.locator(".runs li").first().waitFor();
  await page.context().clearCookies();
  await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
  await page.getByText("Your session has ended. Sign in again.").waitFor();
  assert.equal(await page.locator(".runs li").count(), 0);
  await signIn();
  await page.getByRole("heading", { name: "alpha" }).waitFor();
});

test("signing out ends the session and clears the page", async () => {
  await button("Sign out").click();
  await page.getByLabel("API token").waitFor();
  assert.equal(await activity().isVisible(), false);
  await page.reload();
  await page.getByLabel("API token").waitFor();
  assert.equal(await page.locator(".cards").count(), 0);
});

test("T-60 the page runs under its content security policy without a complaint", () => {
  assert.deepEqual(complaints, []);
});
