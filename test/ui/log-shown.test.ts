import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { recordRun } from "../helpers/log-runs.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const LINES = [
  "Deploys the revision 1",
  ...Array.from({ length: 300 }, (_, index) => `web@ams-a-001 | first ${index + 1}`),
  "web: batch 2 of 2",
  ...Array.from({ length: 3_000 }, (_, index) => `db@ams-b-002 ${index % 2 ? "!" : "|"} second ${index + 1}`),
  ...Array.from({ length: 39 }, (_, index) => `web@ams-c-${index} | configuration is right`),
  ...Array.from({ length: 5 }, (_, index) => `${index % 2 ? "web" : "db"}@ams-a-003 | third ${index + 1}`),
  `web@ams-a-001 ! fatal: ${"long ".repeat(100)}end`,
  `web@ams-a-001 | ${"long ".repeat(100)}end`,
  "Ends after 90 s",
];
const LOG = `${LINES.join("\n")}\n`;
const offsetOf = (text: string) => LOG.lastIndexOf("\n", LOG.indexOf(`${text}\n`)) + 1;
const lineOf = (text: string) => LINES.findIndex((line) => line.endsWith(text)) + 1;
const numberOf = (text: string) => lineOf(text).toLocaleString("en-US");

const base = temporaryFolder();
const root = path.join(base, "root");
let server: LocalServer;
let console: ConsolePage;
let bucket: string;
let run: string;
/** When the run began, in milliseconds. */
let began: number;

before(async () => {
  server = await LocalServer.start(root);
  bucket = await server.createBucket("alpha");
  run = recordRun(root, bucket, LOG, [
    [0, 0],
    [offsetOf("second 1"), 75_250],
    [offsetOf("Ends after 90 s"), 90_500],
  ]);
  const { body } = await server.call<{ started_at: string }>("GET", `/api/buckets/${bucket}/runs/${run}`);
  began = Date.parse(body.started_at);
  console = await ConsolePage.open(server.url, { width: 1100, height: 900, timezoneId: "Asia/Kolkata" });
  await console.goTo("");
  await console.signIn(server.token);
});
after(async () => {
  await console?.close();
  await server?.stop();
});

const press = (key: string) => console.page.keyboard.press(key);
/** Shows the run in a page that knows nothing of what was shown before, with the log in the whole window. */
async function show(query = "") {
  await console.goTo(`#/buckets/${bucket}/runs/${run}${query}`);
  await console.page.reload();
  await console.page
    .locator("#status .bar-line")
    .getByText(`…${run.slice(-8)}`)
    .waitFor();
  if (query === "") await press("l");
  await press("Shift+L");
  await log().getByRole("button", { name: "Close" }).waitFor();
}
const log = () => console.page.locator(".log");
const output = () => log().locator(".output");
const line = (text: string) => output().locator(".line", { has: console.page.locator(".text").getByText(text, { exact: true }) });
const opener = (count: number) => output().getByRole("button", { name: `Open ${count} lines` });
const toggle = (name: string) => log().getByRole("button", { name, exact: true });
const isOn = async (name: string) => (await toggle(name).getAttribute("aria-pressed")) === "true";
/** Ticks or unticks an entry of the menu. */
async function tick(name: string, isOn: boolean) {
  await toggle("Show").click();
  await console.page.getByLabel(name, { exact: true }).setChecked(isOn);
  await press("Escape");
}

test("the same line of many workers is one row that tells of how many; a click or Enter opens it", async () => {
  await show();
  await opener(38).waitFor();
  const fold = output().locator(".folded");
  assert.deepEqual(await fold.locator("span").allTextContents(), ["", "38 workers", "configuration is right"]);
  assert.match((await fold.locator(".place").getAttribute("title")) ?? "", /^ams-c-1, ams-c-2, /);
  assert.equal(await line("third 1").locator(".number").textContent(), numberOf("third 1"));
  await opener(38).focus();
  await press("Enter");
  await until("39 lines", async () => (await line("configuration is right").count()) === 39);
  assert.equal(await opener(38).count(), 0);
  assert.equal(await line("third 1").locator(".number").textContent(), numberOf("third 1"));
});

test("lines of one place fold where that is wanted; numbers stay, and a line that is gone to stands alone", async () => {
  await tick("Fold the lines of each place", true);
  await output().focus();
  await press("Home");
  await opener(299).click();
  await until(
    "the lines",
    async () =>
      (await output()
        .getByText(/^first \d+$/)
        .count()) === 300,
  );
  assert.equal(await line("web: batch 2 of 2").locator(".number").textContent(), numberOf("web: batch 2 of 2"));
  assert.equal(await line("first 77").locator(".number").textContent(), numberOf("first 77"));
  await show(`?line=${lineOf("second 1500")}`);
  const chosen = output().locator(".chosen");
  await chosen.waitFor();
  assert.deepEqual(
    [await chosen.locator(".number").textContent(), await chosen.locator(".text").textContent()],
    [numberOf("second 1500"), "second 1500"],
  );
  await tick("Fold the lines of each place", false);
});

test("the place of a line is without what all workers share, and whole where the pointer rests", async () => {
  await show();
  const place = line("third 2").locator(".place");
  await place.getByText("web@a-003", { exact: true }).waitFor();
  assert.equal(await place.getAttribute("title"), "web@ams-a-003");
});

test("errors are marked and wrapped, lines on stderr tinted, all others on one row until they are wrapped", async () => {
  const heights = async () => await Promise.all(["fatal: long", "long long"].map((text) => heightOf(text)));
  const heightOf = async (text: string) => (await output().locator(".line", { hasText: text }).last().boundingBox())?.height ?? 0;
  const [ofError = 0, ofOther] = await heights();
  assert.ok(ofError > 30, String(ofError));
  assert.equal(ofOther, 18);
  await toggle("Wrap").click();
  await until("wrapped lines", async () => (await heights()).every((height) => height > 30));
  await toggle("Wrap").click();
  const colour = (name: string) =>
    console.page.evaluate<string>(`getComputedStyle(document.querySelector(".log ${name} .text")).color`);
  await console.page.evaluate(`document.querySelector(".log .output").scrollTop -= 300`);
  await output().locator(".stderr:not(.error)").first().waitFor();
  const plain = () => colour(".line:not(.stderr):not(.folded)");
  assert.notEqual(await colour(".stderr:not(.error)"), await plain());
  await toggle("stderr").click();
  await until("only lines on stderr", async () => (await output().locator(".line:not(.stderr):not(.folded)").count()) === 0);
  assert.ok((await output().locator(".stderr").count()) > 0);
  await toggle("stderr").click();
  await output().locator(".line:not(.stderr):not(.folded)").first().waitFor();
  await tick("Tint of stderr", false);
  await until("no tint", async () => (await colour(".stderr:not(.error)")) === (await plain()));
});

test("what is shown of a line is remembered", async () => {
  await tick("Job and worker", false);
  await toggle("Fold").click();
  await show();
  assert.equal(await isOn("Fold"), false);
  assert.equal(await line("third 2").locator(".place").isVisible(), false);
  assert.equal(await output().locator(".folded").count(), 0);
  await tick("Job and worker", true);
  await tick("Tint of stderr", true);
  await toggle("Fold").click();
  await line("third 2").locator(".place").waitFor();
});

test("each line has its time: here, in UTC, or since the start; it is remembered", async () => {
  const at = (ms: number) => new Date(began + ms);
  const clock = (time: Date, timeZone: string) =>
    `${time.toLocaleTimeString("en-GB", { timeZone })}.${String(time.getMilliseconds()).padStart(3, "0")}`;
  const last = () => output().locator(".line").last().locator(".when");
  for (const [form, expected] of [
    ["Local", clock(at(90_500), "Asia/Kolkata")],
    ["UTC", clock(at(90_500), "UTC")],
    ["Since start", "00:01:30.500"],
  ] as const) {
    await toggle(form).click();
    await last().getByText(expected, { exact: true }).waitFor();
  }
  await show();
  await last().getByText("00:01:30.500", { exact: true }).waitFor();
  assert.equal(await line("third 5").locator(".when").textContent(), "00:01:15.250");
  await output().focus();
  await press("Home");
  const first = line("first 1").locator(".when");
  await first.getByText("00:00:00.000", { exact: true }).waitFor();
});

test("what is shown is downloaded: whole lines of a job, each with its time", async () => {
  const download = async () => {
    const [file] = await Promise.all([console.page.waitForEvent("download"), console.link("Download").click()]);
    return readFileSync(await file.path(), "utf8");
  };
  await log().getByLabel("Only this job").fill("web");
  await log().locator("a.button[href*='job=web']").waitFor();
  const own = LINES.filter((text) => /^web(@|: )/.test(text));
  const timed = (await download()).split("\n");
  const [ofFirst, ofThird] = [0, 75_250].map((ms) => new Date(began + ms).toISOString());
  assert.deepEqual(timed, [...own.map((text) => `${/first|batch/.test(text) ? ofFirst : ofThird} ${text}`), ""]);
  await toggle("Off").click();
  assert.equal(await download(), own.map((text) => `${text}\n`).join(""));
  await log().getByLabel("Only this job").fill("");
  await log().locator("a:not([href*='job='])", { hasText: "Download" }).waitFor();
  assert.equal(await download(), LOG);
  await toggle("Local").click();
});

test("axe finds no barrier in folded lines with times and in the menu, in both schemes", async () => {
  await show();
  await opener(38).waitFor();
  for (const colorScheme of ["light", "dark"] as const) {
    await console.page.emulateMedia({ colorScheme });
    await toggle("Show").click();
    await console.checkBarriers(colorScheme);
    await press("Escape");
  }
  await console.page.setViewportSize({ width: 390, height: 800 });
  assert.equal(await console.page.evaluate("document.documentElement.scrollWidth"), 390);
});

test("no request left for elsewhere, and nothing broke", () => console.checkPeace());
