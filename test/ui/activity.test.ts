import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { recordRun } from "../helpers/log-runs.ts";
import { writeServices } from "../helpers/service.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const LINES = 100_000;
const [ERROR_EVERY, NEEDLE_EVERY] = [20_000, 1_000];
const HOSTILE = [
  "<script>document.title = 'hacked'</script><img src=x onerror=\"document.title='hacked'\">",
  "\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2J after",
  "nul \0 and \u202eright to left",
  "web@10.0.0.1 | kafka@10.0.0.9 | a place that the text claims",
  `${"x".repeat(1_000_000)}THE END`,
  "last",
];

const base = temporaryFolder();
const root = path.join(base, "root");
let server: LocalServer;
let console: ConsolePage;
let bucket: string;
let long: string;
let hostile: string;
/** The port of the server, which has another one after each start otherwise. */
let addr: string;

before(async () => {
  server = await LocalServer.start(root);
  addr = new URL(server.url).host;
  bucket = await bucketWithSteps();
  hostile = recordRun(root, bucket, `${HOSTILE.join("\n")}\n`);
  const lines = Array.from({ length: LINES }, (_, index) => lineOf(index + 1));
  long = recordRun(root, bucket, `${lines.join("\n")}\n`);
  console = await ConsolePage.open(server.url, { width: 1100, height: 900 });
  await console.goTo("");
  await console.signIn(server.token);
});
after(async () => {
  await console?.close();
  await server?.stop();
});

const textOf = (number: number) =>
  `${number % ERROR_EVERY === 0 ? "fatal: " : ""}line ${number}${number % NEEDLE_EVERY === 0 ? " Needle" : ""}`;
const lineOf = (number: number) => `${number % 2 ? "web" : "db"}@10.0.0.${number % 4} | ${textOf(number)}`;
const step = (name: string) => path.join(base, "steps", name);
const take = (name: string) => writeFileSync(step(name), "");

/** A bucket whose service, when it starts, waits for a file before each part of its output. */
async function bucketWithSteps(): Promise<string> {
  const id = await server.createBucket("alpha");
  const source = path.join(base, "source");
  mkdirSync(path.join(base, "steps"));
  const wait = (name: string) => `\t@while [ ! -f ${step(name)} ]; do sleep 0.02; done\n`;
  const parts = [
    ["one", "seq -f 'first %g' 1 300"],
    ["two", "seq -f 'second %g' 1 200"],
    ["three", "seq -f 'third %g' 1 50"],
    ["end", "true"],
  ];
  const shell = parts.map(([name, command]) => `${wait(name as string)}\t@${command}\n`).join("");
  writeServices(source, path.join(base, "workers"), { version: "1.0.0", before: shell });
  const pushed = await server.push(id, source);
  assert.equal(pushed.code, 0, pushed.stderr);
  return id;
}

const press = (key: string) => console.page.keyboard.press(key);
const show = (run: string, query = "") => console.goTo(`#/buckets/${bucket}/runs/${run}${query}`);
/** Shows a run in a page that knows nothing of what was shown before, with the log open. */
async function showAnew(run: string, query = "") {
  await show(run, query);
  await console.page.reload();
  await bar()
    .getByText(`…${run.slice(-8)}`)
    .waitFor();
  // The log is open where it was open last.
  await until("the log", async () => {
    if (query === "" && !(await output().isVisible())) await bar().click();
    return await output().isVisible();
  });
}
const bar = () => console.page.locator("#status .bar-line");
const log = () => console.page.locator(".log");
const output = () => console.page.locator(".log .output");
const line = (text: string) => output().locator(".line", { has: console.page.locator(".text").getByText(text, { exact: true }) });
const chosen = () => output().locator(".line.chosen");
const numberOf = (text: string) => line(text).first().locator(".number");
const find = () => console.page.getByLabel("Find in the log");
const count = (text: string | RegExp) => log().locator(".count", { hasText: text }).waitFor();
const toggle = (name: string) => log().getByRole("button", { name, exact: true });
const grouped = (number: number) => number.toLocaleString("en-US");
const scroll = (share: number) =>
  console.page.evaluate(
    `(() => { const log = document.querySelector(".log .output"); log.scrollTop = ${share} * log.scrollHeight; })()`,
  );
/** Waits until a script of the page answers true. */
const holds = (what: string, script: string) => until(what, () => console.page.evaluate<boolean>(script));
/** Waits until a line is in sight, not only on the page. */
const seen = (text: string) =>
  holds(
    `the line ${text.slice(0, 50)}`,
    `[...document.querySelectorAll(".log .line")].some((line) => {
      const [own, log] = [line, line.closest(".output")].map((one) => one.getBoundingClientRect());
      return line.querySelector(".text").textContent === ${JSON.stringify(text)} && own.top >= log.top - 1 && own.bottom <= log.bottom + 1;
    })`,
  );
/** The line at the middle of the log. */
const MIDDLE = `(() => { const { left, top, height } = document.querySelector('.log .output').getBoundingClientRect();
  const line = document.elementFromPoint(left + 20, top + height / 2).closest(".line");
  return line?.querySelector(".number").dataset.line ?? "-"; })()`;
const middle = () => console.page.evaluate<string>(MIDDLE);

test("CP-185 the newest run of the bucket is replayed by itself: its last line in the status bar, the whole where it was open", async () => {
  await console.goTo(`#/buckets/${bucket}`);
  await bar().getByText(textOf(LINES)).waitFor();
  await bar()
    .getByText(`${grouped(LINES)} lines`)
    .waitFor();
  assert.equal(await log().isVisible(), false);
  await press("l");
  await seen(textOf(LINES));
  assert.equal(await numberOf(textOf(LINES)).textContent(), grouped(LINES));
  assert.ok((await output().locator(".line").count()) <= 600);
  await console.page.reload();
  await seen(textOf(LINES));
  await press("l");
  await log().waitFor({ state: "hidden" });
  assert.equal(await console.page.evaluate("document.activeElement.className"), "bar-line");
});

test("any place of a long log can be scrolled to, with the numbers of its lines", async () => {
  await press("l");
  await seen(textOf(LINES));
  await scroll(0.5);
  await holds("the middle", `Math.abs(${MIDDLE} - ${LINES / 2}) < ${LINES / 50}`);
  await output().focus();
  await press("Home");
  await seen(textOf(1));
  for (let pages = 0; pages < 20; pages++) await press("PageDown");
  await holds("lines far below", `${MIDDLE} > 200`);
  const shown = await console.page.evaluate<[string, string, string][]>(
    `[...document.querySelectorAll(".log .line")].map((line) => [".number", ".place", ".text"].map((one) => line.querySelector(one).textContent))`,
  );
  for (const [number, place, text] of shown) {
    const told = Number(number.replace(",", ""));
    assert.deepEqual([place, text], [`${told % 2 ? "web" : "db"}@${told % 4}`, textOf(told)]);
  }
  assert.ok(shown.length <= 600);
  await press("End");
  await seen(textOf(LINES));
});

test("text is found in the whole log, counted, stepped through, and shown alone", async () => {
  await press("f");
  await find().fill("needle");
  await press("Enter");
  await count(`100 of ${LINES / NEEDLE_EVERY}`);
  await press("Enter");
  await count(`1 of ${LINES / NEEDLE_EVERY}`);
  await seen(textOf(1_000));
  assert.equal(await line(textOf(1_000)).locator("mark").textContent(), "Needle");
  await press("Enter");
  await count(`2 of ${LINES / NEEDLE_EVERY}`);
  await press("Shift+Enter");
  await press("Shift+Enter");
  await count(`100 of ${LINES / NEEDLE_EVERY}`);
  await console.page.getByLabel("Match case").click();
  await count("No match");
  await console.page.getByLabel("Match case").click();
  await count(`of ${LINES / NEEDLE_EVERY}`);
  await output().focus();
  await press("Shift+L");
  await toggle("Only these lines").click();
  await line(textOf(50_000)).waitFor({ state: "attached" });
  assert.equal(await output().locator(".line").count(), LINES / NEEDLE_EVERY);
  assert.equal(await numberOf(textOf(50_000)).textContent(), "50,000");
  await press("n");
  await count(`1 of ${LINES / NEEDLE_EVERY}`);
  await toggle("Only these lines").click();
  await find().focus();
  await press("Escape");
  await until("no count", async () => (await log().locator(".count").textContent()) === "");
  assert.equal(await output().locator("mark").count(), 0);
  await press("Escape");
});

test("errors are counted, marked along the edge, and stepped through from anywhere", async () => {
  await output().focus();
  await press("Home");
  await seen(textOf(1));
  await console.page.locator("main").focus();
  await press("e");
  await seen(textOf(ERROR_EVERY));
  await press("e");
  await seen(textOf(2 * ERROR_EVERY));
  assert.equal(await chosen().locator(".text").textContent(), textOf(2 * ERROR_EVERY));
  assert.match((await chosen().getAttribute("class")) ?? "", /error/);
  await press("Shift+E");
  await seen(textOf(ERROR_EVERY));
  await log()
    .getByText(`${LINES / ERROR_EVERY} errors`)
    .waitFor();
  await press("Shift+L");
  const edge = log().locator(".edge");
  assert.equal(await edge.locator(".errors").count(), LINES / ERROR_EVERY);
  const box = await edge.boundingBox();
  assert.ok(box);
  await edge.click({ position: { x: 10, y: Math.round(box.height * 0.75) } });
  await holds("a place of the edge", `Math.abs(${MIDDLE} - ${0.75 * LINES}) < ${LINES / 100}`);
  await press("Escape");
});

test("the lines of one job on one worker are shown alone, with their numbers", async () => {
  await output().focus();
  await press("Shift+L");
  await log().getByLabel("Only this job").fill("web");
  await log().getByLabel("Only this worker").fill("10.0.0.3");
  await holds(
    "lines of one job on one worker",
    `(() => { const lines = [...document.querySelectorAll(".log .place")].map((one) => one.title);
      return lines.length > 10 && lines.every((one) => one === "web@10.0.0.3"); })()`,
  );
  await output().focus();
  await press("Home");
  await seen(textOf(3));
  assert.equal(await numberOf(textOf(3)).textContent(), "3");
  assert.equal(await numberOf(textOf(7)).textContent(), "7");
  await press("Escape");
});

test("the address of a line leads to it, without what is before it; so does its number", async () => {
  const before = console.requests.length;
  await showAnew(long, "?line=50000");
  await chosen().waitFor();
  await seen(textOf(50_000));
  const reads = console.requests.slice(before).filter((request) => request.url().includes("/logs/lines"));
  assert.ok(reads.length > 0 && reads.length < 8, String(reads.length));
  await output().focus();
  await press(":");
  await console.page.getByLabel(/^Line, 1 to 100,000$/).fill("77777");
  await press("Enter");
  await seen(textOf(77_777));
});

test("a range of lines has an address and is copied; lines that are filtered are downloaded alone", async () => {
  await console.page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await showAnew(long);
  await seen(textOf(LINES));
  await numberOf(textOf(LINES - 2)).click();
  await numberOf(textOf(LINES)).click({ modifiers: ["Shift"] });
  assert.match(console.page.url(), new RegExp(`line=${LINES - 2}-${LINES}$`));
  await console.page.reload();
  await chosen().nth(2).waitFor();
  await console.button("Copy").click();
  await console.page.getByText("Copied").waitFor();
  const pasted = () => console.page.evaluate<string>("navigator.clipboard.readText()");
  assert.equal(await pasted(), `${[LINES - 2, LINES - 1, LINES].map(lineOf).join("\n")}\n`);
  await console.button("Copy link").click();
  await until("the link", async () => (await pasted()) === console.page.url());
  await output().focus();
  await press("Shift+L");
  await log().getByLabel("Only this job").fill("db");
  await find().fill("needle");
  await press("Enter");
  await toggle("Only these lines").click();
  await holds("only these", `document.querySelectorAll(".log .line").length === ${LINES / NEEDLE_EVERY}`);
  await log().locator('a[href*="job=db"][href*="q=needle"]').waitFor();
  await log().getByRole("button", { name: "Off" }).click();
  const [download] = await Promise.all([console.page.waitForEvent("download"), console.link("Download").click()]);
  const lines = readFileSync(await download.path(), "utf8").split("\n");
  assert.deepEqual([lines.length, lines[0]], [LINES / NEEDLE_EVERY + 1, lineOf(1000)]);
  await log().getByRole("button", { name: "Local" }).click();
  await press("Escape");
});

test("CP-184 T-92 hostile lines stay text of their own place, and long ones are shown whole", async () => {
  await showAnew(hostile);
  await seen("last");
  await output().focus();
  await press("Home");
  await seen(HOSTILE[0] as string);
  assert.equal(await line("nul NUL and U+202Eright to left").locator(".mark-name").count(), 2);
  assert.equal(await output().locator(".fg1").textContent(), "red");
  await line("red ESC]0;titleBELESC[2J after").waitFor();
  const claimed = line("kafka@10.0.0.9 | a place that the text claims");
  assert.equal(await claimed.locator(".place").textContent(), "web@10.0.0.1");
  assert.equal(await output().locator("script, img").count(), 0);
  await output().getByRole("button", { name: "1,000,007 bytes, show all" }).click();
  await line(HOSTILE.at(-2) as string).waitFor({ state: "attached" });
  assert.match(await console.page.title(), /ops$/);
});

test("axe finds no barrier in the panel, in the whole window and on a phone, in both schemes", async () => {
  await showAnew(long, "?line=20000");
  await chosen().waitFor();
  await press("f");
  await find().fill("line 2");
  await count(/ of /);
  for (const colorScheme of ["light", "dark"] as const) {
    await console.page.emulateMedia({ colorScheme });
    await console.checkBarriers(`the panel, ${colorScheme}`);
    await output().focus();
    await press("Shift+L");
    await console.checkBarriers(`the window, ${colorScheme}`);
    await press("Escape");
    await console.page.setViewportSize({ width: 390, height: 800 });
    await console.checkBarriers(`a phone, ${colorScheme}`);
    assert.equal(await console.page.evaluate("document.documentElement.scrollWidth"), 390);
    await console.button("Log in the whole window").click();
    await console.button("Close").click();
    await console.button("Log in the whole window").waitFor();
    await console.page.setViewportSize({ width: 1100, height: 900 });
  }
  await console.page.emulateMedia({ colorScheme: null });
  await find().fill("");
});

test("the panel is made higher by keys and by its edge, and keeps its size; the whole window gives the focus back", async () => {
  const height = async () => Math.round(((await log().boundingBox())?.height ?? 0) / 9);
  const separator = console.page.getByRole("separator", { name: "Height of the log" });
  assert.equal(await separator.getAttribute("aria-valuenow"), "45");
  await separator.focus();
  await press("ArrowUp");
  assert.equal(await separator.getAttribute("aria-valuenow"), "50");
  assert.ok(Math.abs((await height()) - 50) <= 1, String(await height()));
  const box = await separator.boundingBox();
  assert.ok(box);
  await console.page.mouse.move(box.x + 200, box.y + 4);
  await console.page.mouse.down();
  await console.page.mouse.move(box.x + 200, 270);
  await console.page.mouse.up();
  await until("70 %", async () => (await separator.getAttribute("aria-valuenow")) === "70");
  await console.page.reload();
  await chosen().waitFor();
  assert.ok(Math.abs((await height()) - 70) <= 1, String(await height()));
  await separator.focus();
  for (let times = 0; times < 5; times++) await press("ArrowDown");
  await press("Shift+L");
  assert.equal(await height(), 100);
  assert.equal(await console.page.evaluate("document.querySelector('main').inert"), true);
  await press("Escape");
  assert.ok(Math.abs((await height()) - 45) <= 1);
  assert.equal(await console.page.evaluate("document.querySelector('main').inert"), false);
});

test("CP-184 CP-185 what is added is followed until somebody scrolls up; a pill counts and leads back", async () => {
  await console.goTo(`#/buckets/${bucket}`);
  await bar().waitFor();
  if (!(await output().isVisible())) await press("l");
  await output().waitFor();
  const run = await server.startRun(bucket, "deploy");
  const hide = (isHidden: boolean) =>
    console.page.evaluate(`(() => { Object.defineProperty(document, "hidden", { value: ${isHidden}, configurable: true });
      document.dispatchEvent(new Event("visibilitychange")); })()`);
  await console.goTo(`#/buckets/${bucket}`);
  await bar()
    .getByText(`…${run.slice(-8)}`)
    .waitFor();
  // The panel was open when a log was closed last, and opens by itself while something runs.
  await until("the log", () => output().isVisible());
  await hide(true);
  take("one");
  await hide(false);
  await seen("first 300");
  await bar().getByText("first 300").waitFor();
  await press("l");
  await bar().getByText("Log").waitFor();
  await press("l");
  await seen("first 300");
  // Neither another size nor another place on the page is a scroll.
  await console.page.setViewportSize({ width: 1100, height: 500 });
  await seen("first 300");
  await console.page.setViewportSize({ width: 1300, height: 900 });
  await seen("first 300");
  await console.page.setViewportSize({ width: 2200, height: 900 });
  await console.page.locator("main .log").waitFor();
  await console.page.locator("#status").getByText("is shown on this page").waitFor();
  await seen("first 300");
  await output().hover();
  const bottom = await middle();
  await console.page.mouse.wheel(0, -1500);
  await until("that it is scrolled up", async () => (await middle()) !== bottom);
  const read = output().locator(`[data-line="${await middle()}"]`);
  const top = (await read.boundingBox())?.y;
  take("two");
  const pill = console.page.getByRole("button", { name: /new lines$/ });
  await pill.waitFor();
  assert.equal((await read.boundingBox())?.y, top, "what was read moved");
  const place = await middle();
  await console.page.evaluate("document.querySelector('main').replaceChildren()");
  await console.page.setViewportSize({ width: 1300, height: 900 });
  await console.page.locator("#activity .log").waitFor();
  await read.waitFor();
  await holds("the place in the log", `Math.abs(${MIDDLE} - ${place}) < 20`);
  await pill.click();
  await seen("second 200");
  assert.equal(await pill.isVisible(), false);
});

test("CP-186 the active run is cancelled from the status bar, and asked about first", async () => {
  await console.button("Cancel …").click();
  await console.button("Keep it running").click();
  await console.button("Cancel …").click();
  await console.confirm("Cancel the run");
  await console.page.locator("#status").getByLabel("cancelled").waitFor();
  assert.equal(await console.button("Cancel …").count(), 0);
});

test("CP-187 one log is shown at a time: the bucket's own", async () => {
  const other = await server.createBucket("beta");
  const run = recordRun(root, other, "ops of beta\n");
  await console.goTo(`#/buckets/${other}`);
  await bar().getByText("ops of beta").waitFor();
  await bar()
    .getByText(`…${run.slice(-8)}`)
    .waitFor();
  assert.equal(await console.page.locator(".log").count(), 1);
  await console.goTo(`#/buckets/${bucket}`);
  await bar().getByText("ops of beta").waitFor({ state: "hidden" });
});

test("a server that goes is said to be gone, and when it is back the log goes on", async () => {
  // Too narrow for a log within the page of its run.
  await console.page.setViewportSize({ width: 1100, height: 900 });
  const run = await server.startRun(bucket, "deploy");
  await show(run);
  await bar()
    .getByText(`…${run.slice(-8)}`)
    .waitFor();
  await server.stop("SIGKILL");
  await bar().getByText("The server cannot be reached. Trying again.").waitFor();
  server = await LocalServer.start(root, { token: server.token, addr });
  await console.page.getByLabel("API token").fill(server.token);
  await console.button("Sign in").click();
  await bar().getByText("Trying again").waitFor({ state: "hidden" });
});

test("no request left for elsewhere, and nothing broke", () => {
  const offline = /ERR_CONNECTION|ERR_EMPTY|ERR_INCOMPLETE|ERR_SOCKET/;
  console.complaints.splice(0, Infinity, ...console.complaints.filter((one) => !offline.test(one)));
  console.checkPeace();
});
