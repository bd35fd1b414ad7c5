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
const HOSTILE = [
  "<script>document.title = 'hacked'</script><img src=x onerror=\"document.title='hacked'\">",
  "\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2J after",
  "nul \0 and \u202eright to left",
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
let coloured: string;
/** The port of the server, which has another one after each start otherwise. */
let addr: string;

before(async () => {
  server = await LocalServer.start(root);
  addr = new URL(server.url).host;
  bucket = await bucketWithSteps();
  const lines = Array.from({ length: LINES }, (_, index) => lineOf(index + 1));
  long = recordRun(root, bucket, `${lines.join("\n")}\n`);
  hostile = recordRun(root, bucket, `${HOSTILE.join("\n")}\n`);
  const colours = Array.from({ length: 108 }, (_, code) => `\x1b[${code}mSGR ${code}\x1b[0m`);
  coloured = recordRun(root, bucket, `${colours.join("\n")}\n`);
  console = await ConsolePage.open(server.url, { width: 1280, height: 900 });
  await console.goTo("");
  await console.signIn(server.token);
});
after(async () => {
  await console?.close();
  await server?.stop();
});

const lineOf = (number: number) =>
  `${number % 2 ? "web" : "db"}@10.0.0.${number % 4} | line ${number}${number % 1000 === 0 ? " Needle" : ""}`;
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
    ["end", "true"],
  ];
  const shell = parts.map(([name, command]) => `${wait(name as string)}\t@${command}\n`).join("");
  writeServices(source, path.join(base, "workers"), { version: "1.0.0", before: shell });
  const pushed = await server.push(id, source);
  assert.equal(pushed.code, 0, pushed.stderr);
  return id;
}

const show = (run: string, query = "") => console.goTo(`#/buckets/${bucket}/runs/${run}${query}`);
const output = () => console.page.locator("#activity .output");
const line = (text: string) => output().locator(".line", { hasText: text });
const numberOf = (text: string) => line(text).first().locator(".number");
const find = () => console.page.getByLabel("Find in the log");
const count = (text: string | RegExp) => console.page.locator("#activity .count", { hasText: text }).waitFor();
const scroll = (share: number) =>
  console.page.evaluate(
    `(() => { const log = document.querySelector("#activity .output"); log.scrollTop = ${share} * log.scrollHeight; })()`,
  );
/** Waits until a script of the page answers true. */
const holds = (what: string, script: string) => until(what, () => console.page.evaluate<boolean>(script), 20_000);
/** Waits until the log has stayed where it is for two frames: a key scrolls it only later. */
const rested = () =>
  console.page.evaluate(
    `new Promise((resolve) => {
      const look = (before) => {
        const { scrollTop } = document.querySelector("#activity .output");
        if (scrollTop === before) resolve();
        else requestAnimationFrame(() => requestAnimationFrame(() => look(scrollTop)));
      };
      look();
    })`,
  );
/** Waits until a line is in sight, not only on the page. */
const seen = (text: string) =>
  holds(
    `the line ${text.slice(0, 50)}`,
    `[...document.querySelectorAll("#activity .line")].some((line) => {
      const [own, log] = [line, line.closest(".output")].map((one) => one.getBoundingClientRect());
      return line.lastChild.textContent.endsWith(${JSON.stringify(text)}) && own.top >= log.top - 1 && own.bottom <= log.bottom + 1;
    })`,
  );

test("CP-185 a long log is shown from its end, and only a window of it is on the page", async () => {
  await show(long);
  await seen(`line ${LINES}  Needle`.replace("  ", " "));
  await until("its number", async () => (await numberOf(lineOf(LINES)).textContent()) === String(LINES));
  assert.ok((await output().locator(".line").count()) < 700);
});

test("any place of a long log can be scrolled to, with its line numbers", async () => {
  await scroll(0.5);
  await holds(
    "line numbers",
    `[...document.querySelectorAll("#activity .number")].some((one) => Math.abs(Number(one.textContent) - ${LINES / 2}) < ${LINES / 20})`,
  );
  await output().focus();
  await console.page.keyboard.press("Home");
  await seen("line 1");
  assert.equal(await numberOf("line 1").textContent(), "1");
  for (let pages = 0; pages < 20; pages++) await console.page.keyboard.press("PageDown");
  await rested();
  const shown = await console.page.evaluate<[string, string][]>(
    `[...document.querySelectorAll("#activity .line")].map((line) => [...line.children].map((one) => one.textContent))`,
  );
  for (const [number, text] of shown) assert.equal(text, lineOf(Number(number)));
  await console.page.keyboard.press("End");
  await seen(`line ${LINES} Needle`);
});

test("text is found in the whole log, counted, stepped through, and shown alone", async () => {
  await console.page.keyboard.press("Control+f");
  await find().fill("needle");
  await console.page.keyboard.press("Enter");
  await count(`of ${LINES / 1000}`);
  await console.page.keyboard.press("Enter");
  await count(`1 of ${LINES / 1000}`);
  await seen("line 1000 Needle");
  assert.equal(await line("line 1000 Needle").locator("mark").textContent(), "Needle");
  await console.page.keyboard.press("Shift+Enter");
  await count(`${LINES / 1000} of ${LINES / 1000}`);
  await console.page.getByLabel("Match case").check();
  await count("No match");
  await console.page.getByLabel("Match case").uncheck();
  await console.page.getByLabel("Only these lines").check();
  await line("line 50000 Needle").waitFor({ state: "attached" });
  assert.equal(await output().locator(".line").count(), LINES / 1000);
  await console.page.keyboard.press("Escape");
  assert.equal(await find().isVisible(), false);
  assert.equal(await output().locator("mark").count(), 0);
});

test("the slash opens the find bar from the log; pressed in a field it is a slash", async () => {
  await output().focus();
  await console.page.keyboard.press("/");
  await console.page.keyboard.type("a/b");
  assert.equal(await find().inputValue(), "a/b");
  await count("No match");
  await console.page.keyboard.press("Escape");
});

test("the lines of one job on one worker are shown alone", async () => {
  await console.page.getByLabel("Job", { exact: true }).fill("web");
  await console.page.getByLabel("Worker", { exact: true }).fill("10.0.0.3");
  await holds(
    "lines of one job on one worker",
    `(() => { const lines = [...document.querySelectorAll("#activity .text")].map((one) => one.textContent);
      return lines.length > 10 && lines.every((one) => one.startsWith("web@10.0.0.3 | ")); })()`,
  );
  await scroll(0);
  await seen("line 3");
  assert.equal(await numberOf("line 3").textContent(), "3");
});

test("the address of a line leads to it, without what is before it", async () => {
  await show(long);
  await console.page.reload();
  await scroll(0.3);
  await output().locator(".pointed").waitFor({ state: "detached" });
  const number = output().locator(".number").nth(60);
  const [text, href] = [await number.locator("xpath=..").textContent(), await number.getAttribute("href")];
  const before = console.requests.length;
  await console.goTo(href ?? "");
  await console.page.reload();
  await output().locator(".line.pointed").waitFor();
  const pointed = await output().locator(".line.pointed .text").textContent();
  assert.ok(pointed !== "" && text?.endsWith(pointed ?? "?"), `${text} ${pointed}`);
  const ranges = console.requests.slice(before).filter((request) => request.url().endsWith("/activity.log"));
  assert.ok(ranges.length > 0 && ranges.length < 8, String(ranges.length));
});

test("a range of lines has an address and is copied; lines that are filtered are downloaded alone", async () => {
  await console.page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await show(long);
  await console.page.reload();
  await seen(`line ${LINES} Needle`);
  await numberOf(lineOf(LINES - 2)).click();
  await numberOf(lineOf(LINES)).click({ modifiers: ["Shift"] });
  await console.page.reload();
  await output().locator(".pointed").nth(2).waitFor();
  await console.button("Copy lines").click();
  await console.page.getByText("Copied").waitFor();
  const copied = await console.page.evaluate("navigator.clipboard.readText()");
  assert.equal(copied, `${[LINES - 2, LINES - 1, LINES].map(lineOf).join("\n")}\n`);
  await console.page.getByLabel("Job", { exact: true }).fill("db");
  await console.page.keyboard.press("Control+f");
  await find().fill("needle");
  await console.page.getByLabel("Only these lines").check();
  await holds("only these", `document.querySelectorAll("#activity .line").length === ${LINES / 1000}`);
  const [download] = await Promise.all([console.page.waitForEvent("download"), console.link("Download").click()]);
  const lines = readFileSync(await download.path(), "utf8").split("\n");
  assert.deepEqual([lines.length, lines[0]], [LINES / 1000 + 1, lineOf(1000)]);
  await console.page.keyboard.press("Escape");
});

test("the log is paused, and read from its start, without a wheel", async () => {
  await show(long);
  await console.page.reload();
  await console.button("Start").click();
  await seen("line 1");
  assert.equal(await console.page.getByLabel("Follow").isChecked(), false);
  await console.page.getByLabel("Follow").check();
  await seen(`line ${LINES} Needle`);
});

test("CP-184 T-92 hostile lines stay text, and long ones are shown whole", async () => {
  await show(hostile);
  await seen("last");
  await output().focus();
  await console.page.keyboard.press("Home");
  await seen(HOSTILE[0] as string);
  await line("nul ␀ and ‹U+202E›right to left").waitFor();
  assert.equal(await output().locator(".fg1").textContent(), "red");
  assert.equal(await line("after").first().locator(".text").textContent(), "red  after");
  assert.equal(await output().locator("script, img").count(), 0);
  await console.page.keyboard.press("Control+f");
  await find().fill("the end");
  await count("1 of 1");
  await console.page.keyboard.press("Escape");
  await console.page.keyboard.press("End");
  await line("THE END").waitFor();
  assert.match(await console.page.title(), /ops$/);
});

test("axe finds no barrier in the panel, whatever colours a log asks for", async () => {
  await show(coloured);
  await seen("SGR 107");
  await console.page.keyboard.press("Control+f");
  await find().fill("sgr 4");
  await count(/of 11/);
  for (const colorScheme of ["light", "dark"] as const) {
    await console.page.emulateMedia({ colorScheme });
    await console.checkBarriers(colorScheme);
  }
  await console.page.emulateMedia({ colorScheme: null });
  await console.page.keyboard.press("Escape");
});

test("CP-184 what is added is followed until somebody scrolls up; a pill counts and leads back", async () => {
  const run = await server.startRun(bucket, "deploy");
  const hide = (isHidden: boolean) =>
    console.page.evaluate(`Object.defineProperty(document, "hidden", { value: ${isHidden}, configurable: true })`);
  await hide(true);
  await show(run);
  await console.page.locator("#activity .status.running").waitFor();
  await console.page.waitForTimeout(700);
  const isRead = console.requests.some((request) => request.url().includes(`${run}/logs?`));
  assert.equal(isRead, false, "a page that nobody sees reads the log");
  await hide(false);
  await console.page.getByLabel("Fold").check();
  const times = console.page.getByLabel(/^Times/);
  await times.evaluate('document.forms.tools.querySelector("details").open = true');
  await times.selectOption("UTC");
  const empty = await output().boundingBox();
  take("one");
  await output().getByRole("button", { name: "299 more lines" }).nth(1).waitFor();
  await console.page.getByLabel("Fold").uncheck();
  await seen("first 300");
  await output()
    .locator(".line")
    .last()
    .locator(".when", { hasText: /^\d\d:\d\d:\d\d\.\d{3}$/ })
    .waitFor();
  assert.deepEqual(await output().boundingBox(), empty, "the log moved while it grew");
  await output().hover();
  const middle = "const { left, top, height } = document.querySelector('#activity .output').getBoundingClientRect();";
  const shown = `${middle} return document.elementFromPoint(left + 10, top + height / 2).getAttribute("href");`;
  const bottom = await console.page.evaluate<string>(`(() => { ${shown} })()`);
  await console.page.mouse.wheel(0, -1500);
  await until("that it is scrolled up", async () => (await console.page.evaluate(`(() => { ${shown} })()`)) !== bottom);
  await console.page.keyboard.press("Control+f");
  await find().fill("second 1");
  await console.page.keyboard.press("Enter");
  await count("No match");
  const read = output().locator(`[href="${await console.page.evaluate<string>(`(() => { ${shown} })()`)}"]`);
  const before = await read.boundingBox();
  take("two");
  await count(/(111|222)$/);
  assert.deepEqual(await read.boundingBox(), before, "what was read moved");
  const pill = console.page.getByRole("button", { name: /new lines$/ });
  await pill.click();
  await seen("second 200");
  assert.equal(await pill.isVisible(), false);
  await console.page.keyboard.press("Escape");
});

test("a server that goes is said to be gone, and when it is back the run is shown as it ended", async () => {
  await server.stop("SIGKILL");
  await console.page.getByText("The server cannot be reached. Trying again").waitFor();
  server = await LocalServer.start(root, { token: server.token, addr });
  await console.page.getByText("Your session has ended. Sign in again.").waitFor();
  await console.signIn(server.token);
  await console.page.locator("#activity").getByText("server restarted before run completed").waitFor();
  await line("second 200").first().waitFor();
});

test("no request left for elsewhere, and nothing broke", () => {
  console.complaints.splice(
    0,
    Number.POSITIVE_INFINITY,
    ...console.complaints.filter((one) => !/ERR_CONNECTION|ERR_EMPTY|ERR_INCOMPLETE|ERR_SOCKET/.test(one)),
  );
  console.checkPeace();
});
