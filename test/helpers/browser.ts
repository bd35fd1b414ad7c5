// A real browser for the tests of the console and for its screenshots: Chromium, and what every page must hold to.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type Browser, chromium, type Page, type Request } from "playwright-core";
import type { LocalServer } from "../../scripts/local-server.ts";
import { patience } from "../../scripts/patience.ts";
import { temporaryFolder } from "./temporary.ts";

/** Without these, Chromium looks for services on the network. */
const QUIET = [
  ...["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
  ...["--disable-sync", "--no-first-run"],
];
const PATIENCE_MS = 20_000;

/** Starts Chromium with a home of its own, which is removed once the browser is closed. */
export async function launchChromium(): Promise<Browser> {
  const executablePath = execFileSync("sh", ["-c", "command -v chromium"], { encoding: "utf8" }).trim();
  const ends: (() => unknown)[] = [];
  const home = temporaryFolder({ after: (end) => void ends.push(end as () => unknown) });
  const env = { ...process.env, HOME: home, TMPDIR: home } as Record<string, string>;
  const browser = await chromium.launch({ executablePath, args: QUIET, env });
  browser.once("disconnected", () => {
    for (const end of ends) end();
  });
  return browser;
}

const AXE = readFileSync(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");

/** The views of a bucket that have an address without a name in it. */
export const VIEWS = [
  ...[
    "",
    "deployments",
    "deployments/rollout",
    "jobs",
    "workers",
    "runs",
    "audit",
    "command",
    "hooks",
    "schedules",
    "approvals",
    "incidents",
  ],
  ...["catalog", "catalog/deployments", "catalog/kv", "catalog/certs"],
  ...["source", "source/files", "source/settings", "source/keys", "source/snapshots", "source/schema"],
];

/** A page of the console, and all that it asked for and complained about. */
export class ConsolePage {
  readonly page: Page;
  readonly url: string;
  readonly requests: Request[] = [];
  readonly complaints: string[] = [];
  readonly #browser: Browser;

  private constructor(browser: Browser, page: Page, url: string) {
    [this.#browser, this.page, this.url] = [browser, page, url];
    const { origin } = new URL(url);
    page.setDefaultTimeout(patience(PATIENCE_MS));
    page.on("request", (request) => {
      this.requests.push(request);
      const to = new URL(request.url());
      if (to.origin !== origin && to.protocol !== "blob:") this.complaints.push(`request to ${request.url()}`);
    });
    page.on("pageerror", (error) => this.complaints.push(error.stack ?? error.message));
    page.on("console", (message) => {
      // A status of 4xx is an answer like any other; that Chromium notes it is no error of the page.
      const isStatus = /^Failed to load resource: the server responded/.test(message.text());
      if (message.type() === "error" && !isStatus) this.complaints.push(message.text());
    });
  }

  /** Opens the console of a server in a browser of its own. */
  static async open(
    url: string,
    options: {
      width?: number;
      height?: number;
      colorScheme?: "light" | "dark";
      ignoreHTTPSErrors?: boolean;
      timezoneId?: string;
    } = {},
  ): Promise<ConsolePage> {
    const browser = await launchChromium();
    const { width = 1280, height = 800, ...others } = options;
    const page = await browser.newPage({ viewport: { width, height }, reducedMotion: "reduce", ...others });
    return new ConsolePage(browser, page, url);
  }

  /** Opens the console of a server, and signs in. */
  static async signedIn({ url, token }: LocalServer, size: { width?: number; height?: number } = {}): Promise<ConsolePage> {
    const ui = await ConsolePage.open(url, size);
    await ui.goTo("");
    await ui.signIn(token);
    return ui;
  }

  /** Shows a view by its address, like `#/buckets/…/runs`. */
  async goTo(hash: string): Promise<void> {
    await this.page.goto(`${this.url}/${hash}`);
  }

  /** Shows a view of a bucket and waits until it is there. */
  async view(bucketId: string, name: string): Promise<void> {
    await this.page.evaluate("document.getElementById('view').firstElementChild.dataset.stale = '1'");
    await this.goTo(`#/buckets/${bucketId}/${name}`);
    await this.page.locator("#view > [data-stale]").waitFor({ state: "detached" });
    await this.settled();
  }

  /** axe finds no barrier in what is shown now, by all of its rules or by the given ones. */
  async checkBarriers(what: string, rules?: readonly string[]): Promise<void> {
    await this.page.evaluate(AXE);
    const options = rules ? JSON.stringify({ runOnly: rules }) : "{}";
    const found = await this.page.evaluate<string[]>(`axe.run(${options}).then(({ violations }) =>
      violations.flatMap(({ id, nodes }) => nodes.map((node) => id + ": " + node.html.slice(0, 160) + " " + node.failureSummary)))`);
    assert.deepEqual(found, [], what);
  }

  button(name: string) {
    return this.page.getByRole("button", { name, exact: true });
  }

  link(name: string) {
    return this.page.getByRole("link", { name, exact: true });
  }

  heading(name: string) {
    return this.page.getByRole("heading", { name, exact: true });
  }

  async signIn(token: string): Promise<void> {
    await this.page.getByLabel("API token").fill(token);
    await this.button("Sign in").click();
    await this.page.locator("body:not(.signed-out)").waitFor();
  }

  /** Answers the question that is asked: types the word, where one is wanted, and confirms. */
  async confirm(action: string, word?: string): Promise<void> {
    const dialog = this.page.getByRole("dialog");
    await dialog.waitFor();
    if (word !== undefined) await dialog.getByLabel(/^Type .* to go on$/).fill(word);
    await dialog.getByRole("button", { name: action, exact: true }).click();
    await dialog.waitFor({ state: "hidden" });
  }

  /** What a step sends to a bucket: method, the rest of the path, and the body. A run that it starts is waited for. */
  async sent(server: LocalServer, bucket: string, act: () => Promise<unknown>): Promise<[string, string, unknown]> {
    const [response] = await Promise.all([
      this.page.waitForResponse((one) => one.request().method() !== "GET" && one.url().includes(bucket)),
      act(),
    ]);
    const request = response.request();
    if (response.status() === 202) await server.follow(bucket, (await response.json()).run_id);
    const { pathname } = new URL(request.url());
    return [request.method(), decodeURIComponent(pathname.split(`${bucket}/`)[1] ?? ""), request.postDataJSON()];
  }

  /** Signs out, by the menu of the session. */
  async signOut(): Promise<void> {
    await this.button("Session").click();
    await this.page.getByRole("menuitem", { name: "Sign out" }).click();
    await this.page.locator("body.signed-out").waitFor();
  }

  /** Waits until no part of the view is still being read. */
  async settled(): Promise<void> {
    await this.page.locator("main .ghost").first().waitFor({ state: "detached" });
  }

  /** Nothing broke the content security policy, failed, or left for another origin. */
  checkPeace(): void {
    assert.deepEqual(this.complaints, []);
  }

  async close(): Promise<void> {
    await this.#browser.close();
  }
}
