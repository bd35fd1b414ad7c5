import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { patience } from "../../scripts/patience.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { FrozenConnection } from "../helpers/frozen-connection.ts";
import { writeServices } from "../helpers/service.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const HOSTILE = '<img src=x onerror="document.title=1">\u202e';

/** Without an answer for 10 s a page is stale; once its connection works it is live within 3 s. */
const [STALE_MS, BACK_MS] = [11_000, 3_000];

const base = temporaryFolder();
let server: LocalServer;
let ui: ConsolePage;
let alpha: string;
let beta: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
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
  const before = `\t@echo waiting for ${name}\n\t@${wait} || { echo "FATAL no space on ${name}" >&2; exit 2; }\n`;
  const source = path.join(base, "sources", name);
  writeServices(source, path.join(base, "workers", name), { version: "1.0.0", before });
  const pushed = await server.push(id, source);
  assert.equal(pushed.code, 0, pushed.stderr);
  return id;
}

const gateOf = (name: string) => path.join(base, "gates", name);
const openGate = (name: string, word: "ok" | "no") => writeFileSync(gateOf(name), word);
const rows = () => ui.page.locator(".buckets tbody tr:not(.group)");
const at = (view: string) => ui.page.locator("#sections [aria-current]", { hasText: view });
const rowOf = (name: string) => rows().filter({ hasText: name });

test("CP-171 the top bar has a control for the API token, which leads to its field", async () => {
  await ui.goTo("");
  const control = ui.page.locator("header.top").getByRole("button", { name: "API token" });
  await ui.page.getByLabel("API token").fill("half of it");
  await ui.page.getByLabel("API token").blur();
  await control.click();
  await ui.page.locator("#token:focus").waitFor();
  assert.equal(await ui.page.getByLabel("API token").inputValue(), "half of it");
  await ui.page.getByLabel("API token").fill("");
  assert.equal(await ui.page.locator("#go-to").isVisible(), false);
});

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
  await ui.heading("Deploy your first bucket").waitFor();
  await ui.page.reload();
  await ui.heading("Deploy your first bucket").waitFor();
  assert.equal(await ui.page.getByLabel("API token").count(), 0);
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

test("CP-177 an empty server shows three steps, with the commands for this address, and ticks them off as they happen", async () => {
  await ui.checkBarriers("an empty server");
  await ui.button("New bucket …").click();
  const dialog = ui.page.getByRole("dialog");
  await dialog.getByLabel("Project").fill("demo");
  await dialog.getByLabel("Name").fill("first");
  await ui.confirm("Create bucket");
  await ui.heading("Deploy first for the first time").waitFor();
  const [, id] = /buckets\/([0-9a-f-]{36})/.exec(ui.page.url()) as RegExpExecArray;
  const commands = (await ui.page.locator(".commands pre").textContent()) ?? "";
  assert.match(commands, new RegExp(`ops push ${server.url} \\\\\\n  --bucket ${id}$`));
  assert.ok(!commands.includes(server.token));
  const source = path.join(base, "first");
  writeServices(source, path.join(base, "workers", "first"), { version: "1.0.0" });
  assert.equal((await server.push(id as string, source)).code, 0);
  await ui.heading("Not deployed yet").waitFor();
  await server.call("DELETE", `/api/buckets/${id}`);
});

test("CP-173 buckets that need attention come first, with the reason; names are text", async () => {
  [alpha, beta] = [await bucketWithServices("alpha"), await bucketWithServices("beta")];
  await server.call("POST", "/api/buckets", { project: HOSTILE, name: HOSTILE });
  openGate("beta", "no");
  await server.run(beta, "deploy");
  await ui.goTo("#/");
  await ui.heading("1 of 3 buckets needs attention").waitFor();
  assert.match((await rows().first().textContent()) ?? "", /beta.*base failed on .*FATAL no space on beta/s);
  await rowOf("alpha").getByText("Not deployed yet.").waitFor();
  assert.equal(await ui.page.locator("main img").count(), 0);
  assert.equal(await rows().locator(".mark-name", { hasText: "U+202E" }).count(), 2);
  await ui.checkBarriers("buckets");
});

test("the filter and the chips of the buckets leave those that match", async () => {
  await ui.page.keyboard.press("/");
  await ui.page.keyboard.type("alp");
  await rowOf("beta").waitFor({ state: "detached" });
  assert.equal(await rows().count(), 1);
  await ui.page.getByRole("searchbox", { name: "Filter buckets" }).fill("");
  await ui.page.getByRole("button", { name: /^1 failing/ }).click();
  await rowOf("alpha").waitFor({ state: "detached" });
  assert.equal(await rows().count(), 1);
  await ui.page.getByRole("button", { name: /^1 failing/ }).click();
});

test("from the front page to the cause of a failed deploy in two clicks", async () => {
  await rowOf("beta").getByRole("link").click();
  await ui.page.locator(".attention").getByRole("button", { name: "Log" }).first().click();
  await ui.page.getByRole("log").getByText("FATAL no space on beta").waitFor();
});

test("CP-187 CP-188 T-91 orders wait only for a run of their own bucket; they say why and can be queued after it", async () => {
  const run = await server.startRun(alpha, "deploy");
  await ui.goTo(`#/buckets/${beta}`);
  await ui.page.locator("main .head").waitFor();
  assert.equal(await ui.page.locator("main [data-starts][aria-disabled]").count(), 0);
  await ui.goTo(`#/buckets/${alpha}/hooks`);
  const order = ui.page.locator("tbody").getByRole("button", { name: "Run …" }).first();
  await ui.page.locator("tbody [data-starts][aria-disabled=true]").first().waitFor();
  assert.match((await order.getAttribute("title")) ?? "", /^Not now: Deploy runs in this bucket/);
  await order.click({ force: true });
  await ui.page.getByText(/^Not now: Deploy runs in this bucket since/).waitFor();
  assert.match((await ui.link("Show that run").getAttribute("href")) ?? "", new RegExp(run));
  await ui.button("Queue after it").click();
  const dialog = ui.page.getByRole("dialog", { name: /^Run check\?/ });
  await dialog.getByLabel(/^Type .* to go on$/).fill("app");
  await dialog.getByRole("button", { name: "Queue after it" }).click();
  await ui.page.getByText("Run starts after the run that goes on.").waitFor();
  openGate("alpha", "ok");
  await server.follow(alpha, run);
  await ui.page.locator("#status", { hasText: "Hooks" }).waitFor();
  const active = async () => (await server.call<{ active_run: string | null }>("GET", `/api/buckets/${alpha}`)).body.active_run;
  await until("the end of the hooks", async () => (await active()) === null);
});

test("the palette goes to a job by its name, and starts a run", async () => {
  await ui.page.keyboard.press("Control+K");
  const box = ui.page.getByRole("combobox", { name: "Go to" });
  await box.fill("base");
  await ui.page.getByRole("option", { name: /^base/ }).waitFor();
  await ui.checkBarriers("the palette");
  await ui.page.keyboard.press("Enter");
  // The mark of its state is part of the heading.
  await ui.page.getByRole("heading", { name: /base$/ }).waitFor();
  await ui.page.keyboard.press("Control+K");
  await box.fill("check for drift");
  await ui.page.keyboard.press("Enter");
  await ui.page.locator("#status", { hasText: "Drift" }).waitFor();
});

test("the back button shows the view of its address, scrolled as it was when it was left", async () => {
  await ui.goTo(`#/buckets/${alpha}/catalog/kv`);
  await ui.heading("Keys and values").waitFor();
  // The view is left in the very frame in which it is scrolled.
  const scrollAndLeave = `(() => {
    const view = document.getElementById("view");
    view.scrollTop = 120;
    if (view.scrollTop !== 120) return false;
    location.hash = "#/buckets/${alpha}/runs";
    return true;
  })()`;
  await until("a view that scrolls", () => ui.page.evaluate<boolean>(scrollAndLeave));
  await ui.heading("Runs").waitFor();
  await ui.page.goBack();
  await ui.heading("Keys and values").waitFor();
  await until(
    "the place in the scroll",
    async () => (await ui.page.evaluate("document.getElementById('view').scrollTop")) === 120,
  );
});

test("an address that leads nowhere says so", async () => {
  for (const hash of ["#/nowhere", `#/buckets/${beta}/nowhere`]) {
    await ui.goTo(hash);
    await ui.heading("There is no such page").waitFor();
    await ui.link("Go to the buckets").click();
    await rowOf("alpha").waitFor();
  }
});

test("keys lead to the views, and ? tells which; they can be changed, turned off and reset", async () => {
  await ui.goTo(`#/buckets/${alpha}/runs`);
  await ui.heading("Runs").waitFor();
  await ui.page.keyboard.press("g");
  await ui.page.keyboard.press("s");
  await ui.heading("Source").waitFor();
  await ui.page.keyboard.press("Shift+ArrowRight");
  await ui.page.locator(".tabs [aria-current]", { hasText: "Files" }).waitFor();
  await ui.page.keyboard.press("?");
  const dialog = ui.page.getByRole("dialog", { name: "Keys" });
  const from = await dialog.evaluate((one) => (one as unknown as { scrollTop: number }).scrollTop);
  assert.equal(from, 0, "a long dialog begins at its beginning");
  const jobs = dialog.getByRole("textbox", { name: "Jobs", exact: true });
  await jobs.fill("r");
  await dialog.getByText("r is taken: Runs").waitFor();
  await jobs.fill("x");
  await ui.page.keyboard.press("Escape");
  await ui.page.reload();
  await ui.heading("Source").waitFor();
  await ui.page.keyboard.press("g");
  await ui.page.keyboard.press("x");
  await at("Jobs").waitFor();
  await ui.page.keyboard.press("?");
  await dialog.getByRole("button", { name: "Reset the keys" }).click();
  assert.equal(await jobs.inputValue(), "j");
  await dialog.getByLabel(/^Keys of one letter/).uncheck();
  await ui.page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
  await ui.page.keyboard.press("g");
  await ui.page.keyboard.press("r");
  await at("Jobs").waitFor();
  await ui.page.keyboard.press("?");
  await dialog.getByLabel(/^Keys of one letter/).check();
  await ui.page.keyboard.press("Escape");
});

test("light or dark is chosen in the menu of the session, and remembered", async () => {
  const ink = () => ui.page.evaluate("getComputedStyle(document.documentElement).color");
  const light = await ink();
  await ui.button("Session").click();
  await ui.page.getByLabel("Colours").selectOption("dark");
  assert.notEqual(await ink(), light);
  await ui.page.reload();
  await at("Jobs").waitFor();
  assert.notEqual(await ink(), light);
  await ui.button("Session").click();
  await ui.page.getByLabel("Colours").selectOption("");
  assert.equal(await ink(), light);
  await ui.page.keyboard.press("Escape");
});

test("a run that begins elsewhere shows by itself", async () => {
  await ui.goTo(`#/buckets/${alpha}/runs`);
  await ui.page.locator("tbody tr").first().waitFor();
  const run = await server.run(alpha, "build");
  await ui.page.locator(`main a[href$="${run.id}"]`).first().waitFor();
});

test("a connection that has died in silence is told by the clock: stale, with its age, and live again by itself", async (t) => {
  const connection = await FrozenConnection.before(server.url, t);
  const other = await ConsolePage.open(connection.url);
  t.after(() => other.close());
  await other.goTo("");
  await other.signIn(server.token);
  const live = (text: RegExp) => other.page.locator("#live", { hasText: text });
  await live(/^live$/).waitFor();
  connection.freeze();
  await live(/^no answer for \d+ s$/).waitFor({ timeout: patience(STALE_MS) });
  await other.page.getByText(/^The server has not answered since/).waitFor();
  assert.match(String(await other.page.evaluate("getComputedStyle(document.body).filter")), /grayscale/);
  connection.thaw();
  await live(/^live$/).waitFor({ timeout: patience(BACK_MS) });
  assert.equal(await other.page.locator("#banner").isVisible(), false);
  other.checkPeace();
});

test("T-90 a session that ended asks for the token over the page; what is typed stays", async () => {
  await ui.goTo(`#/buckets/${alpha}/command`);
  const field = ui.page.getByLabel(/^Command/);
  await field.fill("df -h");
  await ui.page.context().clearCookies();
  const held = Promise.withResolvers<() => Promise<void>>();
  await ui.page.route(
    "**/api/**",
    async (route) => {
      const response = await route.fetch();
      held.resolve(() => route.fulfill({ response }));
    },
    { times: 1 },
  );
  await ui.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
  const card = ui.page.getByRole("dialog", { name: "Sign in" });
  await card.getByText("Your session has ended. What is on this page stays.").waitFor();
  await ui.page.locator("#live", { hasText: "signed out" }).waitFor();
  await card.getByLabel("API token").fill(server.token);
  await card.getByRole("button", { name: "Sign in" }).click();
  await card.waitFor({ state: "detached" });
  assert.equal(await field.inputValue(), "df -h");
  // An answer to a request from before the sign-in comes late.
  const late = ui.page.waitForResponse((response) => response.status() === 401);
  await (await held.promise)();
  await late;
  await ui.page.locator("#live", { hasText: /^live$/ }).waitFor();
  assert.equal(await card.count(), 0);
  await ui.page.reload();
  assert.equal(await field.inputValue(), "df -h");
});

test("signing out ends the session and clears the page", async () => {
  await ui.signOut();
  await ui.page.getByLabel("API token").waitFor();
  for (const id of ["status", "sections", "activity"]) assert.equal(await ui.page.locator(`#${id}`).isVisible(), false, id);
  await ui.page.reload();
  await ui.page.getByLabel("API token").waitFor();
  assert.equal(await ui.page.locator("tbody").count(), 0);
});

test("T-60 the page runs under its content security policy without a complaint, and asks nobody else", () => {
  ui.checkPeace();
});
