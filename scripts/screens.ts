// The screens of the console that `npm run screenshots` takes: where each is, and what is pressed to get there.
import { mkdirSync } from "node:fs";
import path from "node:path";
import type { ConsolePage } from "../test/helpers/browser.ts";

/** Widths of the design, with a usual height each. */
const SIZES = [
  [390, 844],
  [1024, 768],
  [1440, 900],
  [2560, 1440],
] as const;
const SCHEMES = ["light", "dark"] as const;
/** So long after the last answer a screen is drawn and its fonts and fades are at rest. */
const REST_MS = 350;

/** A screen: its name, its address, and what is done there; `undo` leaves it as it was. */
export interface Screen {
  name: string;
  at: string;
  act?: (console: ConsolePage) => Promise<unknown>;
  undo?: (console: ConsolePage) => Promise<unknown>;
}

/** The buckets and runs of the screens. */
export interface Places {
  fleet: string;
  large: string;
  fresh: string;
  failed: string;
  answers: string;
  revision: string;
}

/** Takes each screen at each width in both colour schemes; answers those that are wider than their page. */
export async function shoot(console: ConsolePage, target: string, screens: readonly Screen[]): Promise<string[]> {
  const { page } = console;
  const wide: string[] = [];
  mkdirSync(target, { recursive: true });
  for (const { name, at, act, undo } of screens)
    for (const [width, height] of SIZES) {
      await page.setViewportSize({ width, height });
      await console.goTo(at);
      await page.reload();
      await page.locator("main h1:visible:not(.unseen)").first().waitFor();
      await page.waitForTimeout(REST_MS);
      await page.locator("main .ghost:visible").first().waitFor({ state: "detached" });
      await act?.(console);
      for (const colorScheme of SCHEMES) {
        await page.emulateMedia({ colorScheme });
        await page.waitForTimeout(REST_MS);
        await page.screenshot({ path: path.join(target, `${name}-${width}-${colorScheme}.png`) });
      }
      const isWide = await page.evaluate<boolean>(
        "[document.documentElement, document.getElementById('view')].some((one) => one && one.scrollWidth > one.clientWidth)",
      );
      if (isWide) wide.push(`${name} at ${width}`);
      await undo?.(console);
    }
  return wide;
}

const leave = (console: ConsolePage) => console.page.keyboard.press("Escape");
const press = (key: string) => (console: ConsolePage) => console.page.locator("body").press(key);
const click = (label: string | RegExp) => (console: ConsolePage) =>
  console.page.locator("main").getByRole("button", { name: label }).first().click();

/** Before anybody has signed in. */
export const SIGN_IN: readonly Screen[] = [
  { name: "sign-in", at: "" },
  {
    name: "sign-in-wrong",
    at: "",
    async act({ page }) {
      await page.getByLabel("API token").fill("wrong");
      await page.getByRole("button", { name: "Sign in", exact: true }).click();
      await page.getByText("This token is not right.").waitFor();
    },
  },
];

/** The second step of signing in, on a server that wants a code. */
export function codeScreen(token: string): Screen {
  return {
    name: "sign-in-code",
    at: "",
    async act({ page }) {
      await page.reload();
      await page.getByLabel("API token").fill(token);
      await page.getByRole("button", { name: "Sign in", exact: true }).click();
      await page.getByLabel("Code of your authenticator app").waitFor();
    },
  };
}

/** A server without a bucket, and one with a bucket that nothing was pushed to. */
export const EMPTY: readonly Screen[] = [{ name: "buckets-empty", at: "#/" }];
export const guideScreen = (bucket: string): Screen => ({ name: "buckets-guide", at: `#/buckets/${bucket}` });

/** When all is well. */
export function calmScreens({ fleet }: { fleet: string }): Screen[] {
  return [
    { name: "buckets-well", at: "#/" },
    { name: "overview-calm", at: `#/buckets/${fleet}` },
    { name: "deployments-calm", at: `#/buckets/${fleet}/deployments` },
  ];
}

/** A plan that still holds. */
export function planScreens({ fleet, plan }: { fleet: string; plan: string }): Screen[] {
  const at = `#/buckets/${fleet}/runs/${plan}?tab=summary`;
  return [
    { name: "plan", at },
    { name: "confirm-plan", at, act: click("Deploy this plan …"), undo: leave },
  ];
}

/** While a deploy goes on. */
export function liveScreens({ fleet, run }: { fleet: string; run: string }): Screen[] {
  const at = `#/buckets/${fleet}`;
  return [
    { name: "buckets-live", at: "#/" },
    { name: "overview-live", at },
    { name: "run-live", at: `${at}/runs/${run}?tab=summary` },
    { name: "run-live-workers", at: `${at}/runs/${run}?tab=workers` },
    { name: "run-live-cancel", at: `${at}/runs/${run}?tab=summary`, act: click("Cancel …"), undo: leave },
    { name: "deployments-live", at: `${at}/deployments` },
  ];
}

/** When something is broken; and all that looks the same whatever goes on. */
export function screensOf({ fleet, large, fresh, failed, answers, revision }: Places): Screen[] {
  const at = `#/buckets/${fleet}`;
  const ofRun = (run: string, tab: string) => `${at}/runs/${run}?tab=${tab}`;
  const views = {
    ...{ jobs: "jobs", job: "jobs/kafka", workers: "workers", runs: "runs", audit: "audit", hooks: "hooks" },
    ...{ "deployments-jobs": "deployments", "deployments-rollout": "deployments/rollout" },
    ...{ catalog: "catalog", "catalog-allocations": "catalog/deployments", kv: "catalog/kv", certificates: "catalog/certs" },
    ...{ source: "source", "source-files": "source/files", "source-settings": "source/settings", "source-keys": "source/keys" },
    ...{ "source-snapshots": "source/snapshots", "source-revision": `source/${revision}`, command: "command" },
    ...{ schedules: "schedules", incidents: "incidents", worker: "workers/ams-b-007", "job-health": "jobs/kafka/health" },
  };
  return [
    { name: "buckets", at: "#/" },
    { name: "overview", at },
    { name: "overview-cell", at, act: openCell, undo: leave },
    { name: "overview-1000", at: `#/buckets/${large}` },
    { name: "overview-fresh", at: `#/buckets/${fresh}` },
    { name: "run-failed", at: ofRun(failed, "summary") },
    { name: "run-workers", at: ofRun(failed, "workers") },
    { name: "run-log", at: ofRun(failed, "log") },
    { name: "run-definition", at: ofRun(failed, "definition") },
    { name: "run-compare", at: ofRun(failed, "compare") },
    { name: "command-answers", at: ofRun(answers, "summary") },
    ...Object.entries(views).map(([name, view]) => ({ name, at: `${at}/${view}` })),
    { name: "confirm", at: ofRun(failed, "summary"), act: click("Roll back …"), undo: leave },
    { name: "log-open", at, act: press("l"), undo: press("l") },
    { name: "log-whole", at: ofRun(failed, "log"), act: press("L"), undo: press("L") },
    { name: "palette", at, act: openPalette, undo: leave },
    { name: "keys", at, act: press("?"), undo: leave },
    { name: "menu", at, act: click(/^More orders$/), undo: leave },
    { name: "nowhere", at: "#/nowhere" },
  ];
}

/** The page without an answer of the server; the last screen, since it waits until the page is stale. */
export function staleScreen({ fleet }: { fleet: string }): Screen {
  return {
    name: "stale",
    at: `#/buckets/${fleet}`,
    async act({ page }) {
      await page.route("**/api/**", () => {});
      await page.locator("#live", { hasText: "no answer for" }).waitFor();
    },
    async undo({ page }) {
      await page.unroute("**/api/**");
      await page.locator("#live", { hasText: /^live$/ }).waitFor();
    },
  };
}

async function openCell({ page }: ConsolePage): Promise<void> {
  await page.locator("main .map [role=gridcell].failed").first().click();
  await page.locator("main .opened").waitFor();
}

async function openPalette({ page }: ConsolePage): Promise<void> {
  await page.keyboard.press("Control+K");
  await page.getByRole("combobox", { name: "Go to" }).fill("ka");
}
