import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { recordRun } from "../helpers/log-runs.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const LINES = [
  "Deploys the revision 1",
  ...Array.from({ length: 300 }, (_, index) => `web@10.0.0.1 | first ${index + 1}`),
  "web: batch 2 of 2",
  ...Array.from({ length: 3_000 }, (_, index) => `db@10.0.0.2 ${index % 2 ? "!" : "|"} second ${index + 1}`),
  ...Array.from({ length: 5 }, (_, index) => `${index % 2 ? "web" : "db"}@10.0.0.3 | third ${index + 1}`),
  `web@10.0.0.1 | ${"long ".repeat(1_000)}end`,
  "Ends after 90 s",
];
const LOG = `${LINES.join("\n")}\n`;
const offsetOf = (text: string) => LOG.lastIndexOf("\n", LOG.indexOf(`${text}\n`)) + 1;
const numberOf = (text: string) => String(LINES.findIndex((line) => line.endsWith(text)) + 1);

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
  console = await ConsolePage.open(server.url, { width: 1280, height: 900, timezoneId: "Asia/Kolkata" });
  await console.goTo("");
  await console.signIn(server.token);
});
after(async () => {
  await console?.close();
  await server?.stop();
});

const show = async (query = "") => {
  await console.goTo(`#/buckets/${bucket}/runs/${run}${query}`);
  await console.page.reload();
};
const output = () => console.page.locator("#activity .output");
const line = (text: string) => output().locator(".line", { has: console.page.locator(".text").getByText(text, { exact: true }) });
const rest = (count: number) => output().getByRole("button", { name: `▸ ${count} more lines` });
const toggle = (name: string) => console.page.locator("#tools .kept").and(console.page.getByLabel(name, { exact: true }));
const times = () => console.page.getByLabel(/^Times/);
const open = () => console.page.locator("#tools summary").click();

test("lines of one place fold into one; a click or Enter opens them, and numbers stay", async () => {
  await show();
  await toggle("Fold").check();
  await console.button("Start").click();
  await rest(299).waitFor();
  assert.equal(await output().locator(".line", { hasText: "first" }).count(), 1);
  const next = output().locator(".line", { hasText: "web: batch 2 of 2" }).locator(".number");
  assert.equal(await next.textContent(), numberOf("web: batch 2 of 2"));
  await rest(299).focus();
  await console.page.keyboard.press("Enter");
  await output().locator(".line", { hasText: "first 300" }).waitFor({ state: "attached" });
  assert.equal(await output().locator(".line", { hasText: "first" }).count(), 300);
  assert.equal(await rest(299).count(), 0);
  assert.equal(await next.textContent(), numberOf("web: batch 2 of 2"));
  for (const text of ["first 1", "first 77", "first 300"]) {
    const number = output()
      .locator(".line", { hasText: new RegExp(`${text}$`) })
      .locator(".number");
    assert.equal(await number.textContent(), numberOf(text));
  }
});

test("the address of a line that is folded shows it between the others, and so does the search", async () => {
  await show(`?at=${offsetOf("second 1500")}`);
  assert.equal(await toggle("Fold").isChecked(), true);
  const pointed = output().locator(".line.pointed");
  await pointed.waitFor();
  assert.equal(await pointed.locator(".text").textContent(), "db@10.0.0.2 ! second 1500");
  // Its number is known once the lines before it are counted.
  await pointed.locator(".number", { hasText: new RegExp(`^${numberOf("second 1500")}$`) }).waitFor();
  assert.equal(await pointed.getByRole("button").count(), 0);
  await output()
    .locator(".pointed + .line")
    .getByRole("button", { name: /more lines$/ })
    .waitFor();
  await console.page.keyboard.press("f");
  await console.page.getByLabel("Find in the log").fill("second 2718");
  await output().locator(".pointed mark", { hasText: "second 2718" }).waitFor();
  await console.page.keyboard.press("Escape");
  await toggle("Fold").uncheck();
});

test("what is shown of a line is remembered", async () => {
  await show();
  const isSeen = (name: string) => output().locator(name).last().isVisible();
  const colour = (name: string) =>
    console.page.evaluate<string>(`getComputedStyle(document.querySelector("#activity ${name}")).color`);
  await open();
  await line("db@10.0.0.3 | third 5").waitFor();
  const names = ["Jobs", "Wrap", "Colours", "Stderr tint"];
  await console.button("Start").click();
  for (const name of names) await toggle(name).uncheck();
  await show(`?at=${offsetOf("second 2998")}`);
  await output().locator(".pointed .stderr").waitFor();
  await open();
  for (const name of names) assert.equal(await toggle(name).isChecked(), false);
  assert.deepEqual([await isSeen(".job"), await isSeen(".worker")], [false, true]);
  assert.equal(await colour(".pointed .stderr"), await colour(".window"));
  await toggle("Workers").uncheck();
  assert.equal(await isSeen(".place"), false);
  for (const name of ["Workers", ...names]) await toggle(name).check();
  assert.deepEqual([await isSeen(".job"), await isSeen(".worker")], [true, true]);
  assert.notEqual(await colour(".pointed .stderr"), await colour(".window"));
});

test("each line has its time: here, in UTC, or since the start; it is remembered", async () => {
  const at = (ms: number) => new Date(began + ms);
  const clock = (time: Date, timeZone: string) =>
    `${time.toLocaleTimeString("en-GB", { timeZone })}.${String(time.getMilliseconds()).padStart(3, "0")}`;
  const last = () => output().locator(".line").last().locator(".when");
  await show();
  await open();
  await times().selectOption("local");
  for (const [form, expected] of [
    ["local", clock(at(90_500), "Asia/Kolkata")],
    ["UTC", clock(at(90_500), "UTC")],
    ["since the start", "00:01:30.500"],
  ] as const) {
    await times().selectOption(form);
    await last().getByText(expected, { exact: true }).waitFor();
  }
  await show();
  await last().getByText("00:01:30.500", { exact: true }).waitFor();
  const before = output().locator(".line", { hasText: "third 5" }).locator(".when");
  assert.equal(await before.textContent(), "00:01:15.250");
  await console.button("Start").click();
  const first = output().locator(".line", { hasText: "first 1" }).first().locator(".when");
  await first.getByText("00:00:00.000", { exact: true }).waitFor();
  assert.equal(await console.page.locator("#activity .problem").isVisible(), false);
  const reads = console.requests.filter((request) => request.url().endsWith("/activity.times"));
  assert.equal(reads.length, 2, "times that are known are read again");
});

test("what is shown is downloaded: whole lines of a job, each with its time", async () => {
  await console.page.getByRole("searchbox", { name: "Job" }).fill("web");
  await console.page.locator("#activity .download[href*='job=web']").waitFor();
  const download = async () => {
    const [file] = await Promise.all([console.page.waitForEvent("download"), console.link("Download").click()]);
    return readFileSync(await file.path(), "utf8");
  };
  const own = LINES.filter((text) => text.startsWith("web"));
  const timed = (await download()).split("\n");
  const [ofFirst, ofThird] = [0, 75_250].map((ms) => new Date(began + ms).toISOString());
  assert.deepEqual(timed, [...own.map((text) => `${/first|batch/.test(text) ? ofFirst : ofThird} ${text}`), ""]);
  await open();
  await times().selectOption("off");
  assert.equal(await download(), own.map((text) => `${text}\n`).join(""));
  await console.page.getByRole("searchbox", { name: "Job" }).fill("");
  await console.page.locator("#activity .download:not([href*='job='])").waitFor();
  assert.equal(await download(), LOG);
});

test("axe finds no barrier in folded lines with times, in both schemes", async () => {
  await toggle("Fold").check();
  await times().selectOption("UTC");
  await output().getByRole("button").first().waitFor();
  for (const colorScheme of ["light", "dark"] as const) {
    await console.page.emulateMedia({ colorScheme });
    await console.checkBarriers(colorScheme);
  }
  await console.page.setViewportSize({ width: 390, height: 800 });
  assert.equal(await console.page.evaluate("document.documentElement.scrollWidth"), 390);
});

test("no request left for elsewhere, and nothing broke", () => console.checkPeace());
