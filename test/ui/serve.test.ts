import assert from "node:assert/strict";
import path from "node:path";
import { after, before, test } from "node:test";
import { EARLIER_ROUTES } from "../../lib/server/earlier/table.ts";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const base = temporaryFolder();
let server: LocalServer;
let ui: ConsolePage;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"), { command: "serve" });
  ui = await ConsolePage.open(server.url);
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

const send = async (token: string) => {
  await ui.page.getByLabel("API token").fill(token);
  await ui.button("Sign in").click();
};

test("CP-914 CP-915 the page of serve signs in with a cookie, and its viewer works without a network", async () => {
  await ui.goTo("");
  await ui.checkBarriers("the page of serve");
  await send("wrong");
  await ui.page.getByText("the API token is wrong").waitFor();
  await send(server.token);
  const count = EARLIER_ROUTES.length;
  // A request to another host is a complaint, which ends the test.
  await ui.page.getByText(`${count} of ${count} operations`).waitFor();
  const cookies = await ui.page.context().cookies();
  assert.deepEqual(
    cookies.map(({ name, httpOnly, sameSite }) => [name, httpOnly, sameSite]),
    [["ops_serve_token", true, "Strict"]],
  );
  assert.ok(!cookies[0]?.value.includes(server.token));
  const operation = ui.page.locator("#post_envs");
  await operation.locator("summary").first().click();
  await operation.getByLabel("Body (JSON)").fill('{"project": "shop", "name": "live"}');
  await operation.getByLabel("Really do this on this server").check();
  await operation.getByRole("button", { name: "Send" }).click();
  await operation.locator(".result", { hasText: "201 Created" }).waitFor();
  await ui.goTo("");
  // The page loads again at the same address.
  const left = ui.page.waitForEvent("framenavigated");
  await ui.button("Sign out").click();
  await left;
  assert.equal((await ui.page.goto(`${server.url}/docs/`))?.status(), 401);
});
