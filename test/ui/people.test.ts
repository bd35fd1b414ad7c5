import assert from "node:assert/strict";
import path from "node:path";
import { after, before, type TestContext, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage, VIEWS } from "../helpers/browser.ts";
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
  ui = await ConsolePage.signedIn(server);
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

const row = (text: string) => ui.page.locator("tbody tr", { hasText: text });
const dialog = () => ui.page.getByRole("dialog");

async function openFromMenu(name: string): Promise<void> {
  await ui.page.getByRole("button", { name: "Session" }).click();
  await ui.page.getByRole("menuitem", { name, exact: true }).click();
}

/** A token of a role, for the server of this file. */
async function tokenOf(name: string, role: string): Promise<string> {
  const { status, body } = await server.call<{ token: string }>("POST", "/api/tokens", { name, role });
  assert.equal(status, 201, JSON.stringify(body));
  return body.token;
}

async function signInAs(t: TestContext, token: string): Promise<ConsolePage> {
  const page = await ConsolePage.open(server.url);
  t.after(() => page.close());
  await page.goTo("");
  await page.signIn(token);
  return page;
}

test("CP-941 a token is made for a person, shown once, used, and revoked", async (t) => {
  await openFromMenu("People and sessions");
  await ui.page.getByText("You are root, with the role root.").waitFor();
  await ui.page.getByText("There is no token but the server's own.").waitFor();
  await ui.checkBarriers("people without a token");
  await ui.button("New token …").click();
  await dialog().getByLabel("Name").fill("anna");
  await dialog().getByLabel("Role").selectOption("operate");
  await dialog()
    .getByLabel("Bucket")
    .selectOption({ label: `demo/shop …${bucket.slice(-8)}` });
  await dialog().getByLabel("Days until it expires").fill("30");
  await dialog().getByRole("button", { name: "Make the token" }).click();
  await ui.heading("The token of anna").waitFor();
  const token = (await dialog().locator("code").first().textContent()) as string;
  assert.match(token, /^ops_/);
  await dialog().getByRole("button", { name: "I have it" }).click();
  await row("anna").getByText("operate").waitFor();
  assert.match((await row("anna").textContent()) ?? "", /demo\/shop/);
  await row("anna").locator('td[data-label="Expires"]', { hasText: "in 29 days" }).waitFor();
  await ui.checkBarriers("people");
  assert.ok(!(await ui.page.content()).includes(token), "the token is gone from the page");
  const anna = await signInAs(t, token);
  await ui.page.getByRole("link", { name: "Sessions" }).click();
  await row("anna").waitFor();
  await row("root").getByText("(this one)").waitFor();
  await ui.checkBarriers("sessions");
  await ui.page.getByRole("link", { name: "Tokens" }).click();
  await row("anna").getByRole("button", { name: "Revoke …" }).click();
  await ui.confirm("Revoke", "anna");
  await ui.page.getByText("There is no token but the server's own.").waitFor();
  await anna.page.getByText("Your session has ended.").waitFor();
});

test("CP-942 a session is ended, and its browser asks for the token again", async (t) => {
  const other = await signInAs(t, await tokenOf("ben", "read"));
  await openFromMenu("People and sessions");
  await ui.page.getByRole("link", { name: "Sessions" }).click();
  await row("ben").getByRole("button", { name: "End …" }).click();
  await ui.confirm("End the session");
  await row("ben").waitFor({ state: "detached" });
  await other.page.getByText("Your session has ended.").waitFor();
});

test("CP-940 CP-942 who may only read sees every view without orders; the first order of a view says why", async (t) => {
  const reader = await signInAs(t, await tokenOf("cleo", "read"));
  for (const view of VIEWS) {
    await reader.view(bucket, view);
    const orders = reader.page.locator("main button:not([aria-disabled])", {
      hasText: /^(?:Deploy|Plan|Run|Roll back|Restore|Delete|Trust|Initialise|Rename|Set|Remove|Cancel)\b.*…$/,
    });
    assert.deepEqual(await orders.allTextContents(), [], view);
  }
  await reader.view(bucket, "deployments");
  await reader.button("Deploy …").click({ force: true });
  await reader.page.getByText("This needs the role deploy; you are cleo and have read.").waitFor();
  await reader.page.keyboard.press("Escape");
  await reader.page.getByRole("button", { name: "Session" }).click();
  await reader.page.getByText("Orders that need a greater role are hidden.").waitFor();
  const isOneLine = (one: { clientHeight: number }) => one.clientHeight < 30;
  assert.equal(await reader.page.getByText(/^Signed in as /).evaluate(isOneLine), true);
  await reader.page.getByRole("menuitem", { name: "Sessions", exact: true }).click();
  await reader.page.getByText("You are cleo, with the role read.").waitFor();
  await reader.page.locator("tbody th").first().waitFor();
  assert.deepEqual(await reader.page.locator("tbody th").allTextContents(), ["cleo (this one)"]);
  assert.equal(await reader.page.getByRole("link", { name: "Tokens" }).count(), 0);
});

test("CP-940 who may deploy has those orders, and none of an admin", async (t) => {
  const deployer = await signInAs(t, await tokenOf("dora", "deploy"));
  await deployer.view(bucket, "deployments");
  await deployer.button("Deploy …").click();
  await deployer.page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  await deployer.view(bucket, "source/snapshots");
  await deployer.button("Create a snapshot …").click({ force: true });
  await deployer.page.getByText("This needs the role admin; you are dora and have deploy.").waitFor();
  await deployer.page.keyboard.press("Escape");
  await deployer.view(bucket, "workers");
  await deployer.button("Read uptime").waitFor();
  assert.equal(await deployer.button("Trust …").count(), 0);
});
