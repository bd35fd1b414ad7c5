import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { readConsole } from "../lib/server/console-files.ts";
import { LocalServer } from "../scripts/local-server.ts";
import { ConsolePage } from "../test/helpers/browser.ts";
import { recordRun } from "../test/helpers/log-runs.ts";
import { makeWorkspace } from "../test/helpers/workspace.ts";
import { median, sideBySide, timed } from "./measure.ts";

const LINES = 1_000_000;
const ROUNDS = 7;
/** First paints are short and vary much. A browser keeps the compiled script of a page from its third visit on. */
const [VISITS, PAINTS] = [3, 25];

/** The console in a browser: its first paint, and a run with a log of a million lines. */
export async function ui(): Promise<void> {
  const folder = mkdtempSync(path.join(tmpdir(), "ops-bench-"));
  const root = path.join(folder, "root");
  const server = await LocalServer.start(root);
  const console_ = await ConsolePage.open(server.url, { width: 1440, height: 900 });
  try {
    const bucket = await server.createBucket();
    const log = logOf(LINES);
    const run = recordRun(root, bucket, log);
    const size = (log.length / 1024 / 1024).toFixed(0);
    console.log(`ui: medians of ${ROUNDS} rounds, range; a log of ${LINES} lines, ${size} MiB`);
    await firstPaints(console_);
    console.log(`… memory of its tab ${(await tabBytes(console_)) >> 20} MiB`);
    await console_.signIn(server.token);
    const address = `#/buckets/${bucket}/runs/${run}`;
    await report("a run with the long log: first paint", () => firstPaint(console_, `${server.url}/${address}`));
    await report("… until its last line is there", () => lastLine(console_, address));
    await report("… a line in the middle, by its number", () => jumped(console_));
    await console_.page.keyboard.press("Control+f");
    await report("… a text on its last line is found", () => found(console_, `line ${LINES} of`, false));
    await report("… the same with its case", () => found(console_, `line ${LINES} of`, true));
    const heap = await scrolled(server, address);
    console.log(`… memory of a new tab after scrolling about ${heap.tab >> 20} MiB, its heap ${heap.heap >> 20} MiB`);
    await report("10,000 allocations: the longest task", await longestTask(server, root));
  } finally {
    await console_.close();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Measures the longest task of the page while it shows the views of a bucket of 10 jobs on 1,000 workers. */
async function longestTask(server: LocalServer, root: string): Promise<() => Promise<number>> {
  const bucket = await server.createBucket("large");
  const job = { version: "1.0.0", selectors: ["worker"] };
  makeWorkspace(path.join(root, bucket), {
    workers: Array.from({ length: 1_000 }, (_, index) => `10.0.${index >> 8}.${index & 255}`),
    jobs: Object.fromEntries(Array.from({ length: 10 }, (_, index) => [`job${index}`, job])),
  });
  await server.run(bucket, "build");
  return async () => {
    const large = await ConsolePage.open(server.url, { width: 1440, height: 900 });
    await large.page.addInitScript(`globalThis.tasks = [];
      new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: "longtask" })`);
    await large.goTo("");
    await large.signIn(server.token);
    for (const view of ["", "jobs", "jobs/job0", "workers", "catalog/deployments"]) {
      await large.view(bucket, view);
      await large.page
        .getByRole("main")
        .getByText(/[0-9],000/)
        .first()
        .waitFor();
    }
    const tasks = await large.page.evaluate<number[]>("tasks");
    await large.close();
    return Math.max(0, ...tasks);
  };
}

function logOf(lines: number): Buffer {
  const text = Array.from({ length: lines }, (_, index) => {
    const [job, host] = [index % 3 === 0 ? "db" : "web", index % 50];
    return `${job}@10.0.0.${host} | line ${index + 1} of the log\n`;
  });
  return Buffer.from(text.join(""));
}

async function report(name: string, measure: () => Promise<number>): Promise<void> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) times.push(await measure());
  const range = `${Math.min(...times).toFixed(0)}-${Math.max(...times).toFixed(0)} ms`;
  console.log(`${name.padEnd(44)} ${median(times).toFixed(0).padStart(6)} ms   ${range.padStart(14)}`);
}

/** The sign-in page beside two floors: a paragraph with a script of one line, and the console's own page without its script. */
async function firstPaints(console_: ConsolePage): Promise<void> {
  const assets = await readConsole();
  const textAt = (place: string) => assets.get(place)?.content.toString() ?? "";
  const head =
    '<!doctype html><html lang="en"><title>floor</title><script type="module" blocking="render" src="/floor.js"></script>';
  const pages: Record<string, [type: string, text: string]> = {
    "/paragraph": ["text/html", `${head}<p id="text"></p></html>`],
    "/floor.js": ["text/javascript", 'document.getElementById("text").textContent = "a paragraph";'],
    "/page": ["text/html", textAt("/").replace(/<script.*<\/script>/, "")],
    "/console.css": ["text/css", textAt("/console.css")],
    "/icon.svg": ["image/svg+xml", textAt("/icon.svg")],
  };
  const floors = createServer((request, response) => {
    const [type, text] = pages[request.url ?? ""] ?? ["text/plain", ""];
    response.setHeader("content-type", type).end(text);
  });
  await once(floors.listen(0, "127.0.0.1"), "listening");
  const floor = `http://127.0.0.1:${(floors.address() as AddressInfo).port}`;
  for (let visit = 0; visit < VISITS; visit++) await firstPaint(console_, console_.url);
  await sideBySide(PAINTS, {
    "first paint of a paragraph": () => firstPaint(console_, `${floor}/paragraph`),
    "… of the console's page without its script": () => firstPaint(console_, `${floor}/page`),
    "… of the sign-in page": () => firstPaint(console_, console_.url),
  });
  floors.close();
  floors.closeAllConnections();
}

async function firstPaint({ page }: ConsolePage, url: string): Promise<number> {
  await page.goto("about:blank");
  await page.goto(url);
  return await page.evaluate<number>(`new Promise((resolve) => new PerformanceObserver((list) =>
    resolve(list.getEntriesByName("first-contentful-paint")[0].startTime)).observe({ type: "paint", buffered: true }))`);
}

async function lastLine({ page, url }: ConsolePage, address: string): Promise<number> {
  await page.goto("about:blank");
  return await timed(async () => {
    await page.goto(`${url}/${address}`);
    await page.getByText(`line ${LINES} of the log`).first().waitFor();
  });
}

let jumps = 0;

/** To another line each time, far from the one before; the log is open. */
async function jumped({ page }: ConsolePage): Promise<number> {
  const line = 1 + ((++jumps * 387_641) % LINES);
  if (!(await page.locator(".log .output").isVisible())) await page.keyboard.press("l");
  await page.locator(".log .output").focus();
  await page.keyboard.press(":");
  await page.getByRole("spinbutton").fill(String(line));
  return await timed(async () => {
    await page.keyboard.press("Enter");
    await page.locator(".log .line.chosen", { hasText: `line ${line} of` }).waitFor();
  });
}

async function found({ page }: ConsolePage, text: string, exact: boolean): Promise<number> {
  const [field, match] = [page.getByLabel("Find in the log"), page.getByLabel("Match case")];
  if (((await match.getAttribute("aria-pressed")) === "true") !== exact) await match.click();
  await field.fill("");
  await page.keyboard.press("Enter");
  await page.locator(".log .count", { hasText: "of" }).waitFor({ state: "detached" });
  await field.fill(text);
  await field.focus();
  return await timed(async () => {
    await page.keyboard.press("Enter");
    await page.locator(".log .count", { hasText: "1 of 1" }).waitFor();
  });
}

/** What a tab uses that has shown nothing but this run. */
async function scrolled(server: LocalServer, address: string): Promise<{ tab: number; heap: number }> {
  const console_ = await ConsolePage.open(server.url, { width: 1440, height: 900 });
  try {
    await console_.goTo("");
    await console_.signIn(server.token);
    await lastLine(console_, address);
    if (!(await console_.page.locator(".log .output").isVisible())) await console_.page.keyboard.press("l");
    await scrollAround(console_);
    const session = await console_.page.context().newCDPSession(console_.page);
    await session.send("HeapProfiler.collectGarbage");
    const { usedSize: heap } = await session.send("Runtime.getHeapUsage");
    return { tab: await tabBytes(console_), heap };
  } finally {
    await console_.close();
  }
}

async function scrollAround({ page }: ConsolePage): Promise<void> {
  for (let place = 0; place < 100; place++) {
    await page.evaluate(
      `(() => { const log = document.querySelector(".log .output"); log.scrollTop = ${place / 100} * log.scrollHeight; })()`,
    );
    await page.waitForTimeout(30);
  }
}

/** What the process of the page uses: its share of memory that it has together with others. */
async function tabBytes({ page }: ConsolePage): Promise<number> {
  const browser = await page.context().browser()?.newBrowserCDPSession();
  const { processInfo = [] } = (await browser?.send("SystemInfo.getProcessInfo")) ?? {};
  const sizes = processInfo
    .filter(({ type }) => type === "renderer")
    .map(({ id }) => Number(/^Pss:\s+(\d+) kB/m.exec(readFileSync(`/proc/${id}/smaps_rollup`, "utf8"))?.[1]));
  return Math.max(...sizes) * 1024;
}
