import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, beforeEach, type TestContext, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { LocalServer } from "../../scripts/local-server.ts";
import { patience } from "../../scripts/patience.ts";
import { launchChromium } from "../helpers/browser.ts";
import { certificateFor } from "../helpers/http.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";
import { oathtoolCode, SECRET_TEXT } from "../helpers/totp.ts";

const TTL_SECONDS = 6;

const base = temporaryFolder();
const requests: string[] = [];
const complaints: string[] = [];
const ends: Parameters<TestContext["after"]>[0][] = [];
let server: LocalServer;
let browser: Browser;
let page: Page;
/** The step of the last code that this server took: no later one may be older. */
let used = 0;
let roots = 0;
let flags: string[] = [];

/** A server that has not seen a code yet: with a root of its own, where the steps of used codes are kept. */
async function startServer(lifetime = `${TTL_SECONDS}s`): Promise<void> {
  await server?.stop();
  const all = [...flags, "--totp-session-ttl", lifetime];
  server = await LocalServer.start(path.join(base, `root-${roots++}`), { flags: all });
  used = 0;
}

async function signIn(): Promise<void> {
  await page.goto(`${server.url}/`);
  await page.getByLabel("API token").fill(server.token);
  assert.equal(await codeField().isVisible(), false);
  await button("Sign in").click();
  await codeField().waitFor();
}

before(async () => {
  const { certFile, keyFile } = await certificateFor({ after: (end) => ends.push(end) });
  const secretFile = path.join(base, "totp");
  writeFileSync(secretFile, `${SECRET_TEXT}\n`, { mode: 0o600 });
  flags = ["--tls-cert", certFile, "--tls-key", keyFile, "--totp-secret-file", secretFile];
  await startServer();
  browser = await launchChromium();
  page = await browser.newPage({ ignoreHTTPSErrors: true, permissions: ["clipboard-read", "clipboard-write"] });
  page.on("request", (request) => requests.push(`${request.method()} ${new URL(request.url()).pathname}`));
  page.on("pageerror", (error) => complaints.push(error.message));
});
beforeEach(() => page.setDefaultTimeout(patience(40_000)));
after(async () => {
  await browser?.close();
  await server?.stop();
  for (const end of ends) await (end as () => unknown)();
});

const signedIn = () => page.locator("body:not(.signed-out)").waitFor();
const button = (name: string) => page.getByRole("button", { name, exact: true });
const codeField = () => page.getByLabel("Code of your authenticator app");

/**
 * A code that is later than every one used so far: of the step before, this one or the next; else it waits. The step
 * before counts only while this one has some seconds left, for its code ends with them.
 */
async function freshCode(): Promise<string> {
  const step = (aheadMs = 0) => Math.floor((Date.now() + aheadMs) / 30_000);
  await until("the next code", () => step() + 1 > used, 40_000);
  used = Math.max(used + 1, step(10_000) - 1);
  return oathtoolCode(SECRET_TEXT, used * 30_000);
}

/** Keeps the page from asking for a code before the test makes it: what the page asks for by itself gets no answer. */
const holdRequests = () => page.route(/\/api\/(?!auth\/)/, () => {});
const forgetCode = () => page.context().clearCookies({ name: "ops_totp_session" });

/** The sixth digit sends the code. */
async function giveCode(code: string): Promise<void> {
  await codeField().pressSequentially(code);
}

test("CP-172 T-01 after the token the page asks for a code, and says when it is not right", async () => {
  await signIn();
  await giveCode("000000");
  await page.getByText("This code is not right.").waitFor();
  assert.equal(await codeField().inputValue(), "");
  await giveCode(await freshCode());
  await signedIn();
  assert.equal(await codeField().isVisible(), false);
  const posts = requests.filter((one) => one.startsWith("POST "));
  const [session, verify] = ["POST /api/auth/session", "POST /api/auth/totp/verify"];
  assert.deepEqual(posts, [session, verify, verify, session]);
  const kept: unknown = await page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]");
  assert.deepEqual(kept, [0, 0, ""]);
});

test("CP-192 shortly before its TOTP session ends the page asks for the next code, says when that is, and takes one that is pasted", async () => {
  await codeField().waitFor();
  assert.equal(await button("Session").isVisible(), true);
  const cookies = await page.context().cookies();
  assert.equal(
    cookies.some(({ name }) => name === "ops_totp_session"),
    true,
  );
  await page.getByText(/^The code's session ends (in|just)/).waitFor();
  assert.equal(
    await page.evaluate("document.activeElement?.matches('.code-field') ?? false"),
    false,
    "the focus stays where it is",
  );
  await codeField().focus();
  await page.evaluate("navigator.clipboard.writeText(code)".replace("code", JSON.stringify(await freshCode())));
  await page.keyboard.press("Control+V");
  await codeField().waitFor({ state: "hidden" });
});

test("CP-193 T-90 once it has ended, a request waits for a code and is then sent once more", async () => {
  await until(
    "the end of the TOTP session",
    async () => {
      const cookies = await page.context().cookies();
      return !cookies.some(({ name }) => name === "ops_totp_session");
    },
    40_000,
  );
  requests.length = 0;
  await page.reload();
  await codeField().waitFor();
  await giveCode(await freshCode());
  await signedIn();
  const asked = requests.filter((one) => one.includes("/api/auth/"));
  assert.deepEqual(asked, ["GET /api/auth/session", "POST /api/auth/totp/verify", "GET /api/auth/session"]);
});

test("CP-192 a page that was reloaded asks for the next code shortly before the end too", async () => {
  await startServer("30m");
  await signIn();
  await giveCode(await freshCode());
  await signedIn();
  const other = await browser.newPage({ ignoreHTTPSErrors: true });
  await other.context().addCookies(await page.context().cookies());
  await other.clock.install();
  await other.goto(`${server.url}/`);
  await other.locator("body:not(.signed-out)").waitFor();
  await other.clock.fastForward("28:00");
  assert.equal(await other.getByLabel("Code of your authenticator app").count(), 0);
  await other.clock.fastForward("01:30");
  await other.getByText(/^The code's session ends in \d+ s/).waitFor();
  await other.close();
});

test("CP-193 the way to the API reference asks for a code, and so does a request that is tried there", async () => {
  await startServer();
  await signIn();
  await giveCode(await freshCode());
  await signedIn();
  await holdRequests();
  await forgetCode();
  await button("Session").click();
  await page.getByRole("menuitem", { name: "API reference" }).click();
  await giveCode(await freshCode());
  await page.waitForURL("**/docs/");
  await page.unrouteAll();
  await page.locator("#get_buckets summary").first().click();
  await forgetCode();
  await page.locator("#get_buckets").getByRole("button", { name: "Send" }).click();
  await giveCode(await freshCode());
  await page
    .locator("#get_buckets")
    .getByText(/^200 OK/)
    .waitFor();
  await page.goto(`${server.url}/`);
  await signedIn();
});

test("T-03 signing out works without a code, and the page asks for the token again", async () => {
  await holdRequests();
  await forgetCode();
  await button("Session").click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await page.getByLabel("API token").waitFor();
  // A request that was refused may have told of the end before the answer that takes the cookie away.
  await until("the cookie to be gone", async () => (await page.context().cookies()).length === 0);
  await page.unrouteAll();
  await page.reload();
  await page.getByLabel("API token").waitFor();
  assert.equal(await codeField().isVisible(), false);
  assert.deepEqual(complaints, []);
});
