import assert from "node:assert/strict";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage, VIEWS } from "../helpers/browser.ts";
import { writeServices } from "../helpers/service.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

/** What people call a bucket, at its worst: markup, a change of direction, and a word without an end. */
const HOSTILE = `<script>document.title = 1</script>\u202e${"x".repeat(150)}`;

/** The views of a run. */
const TABS = ["summary", "workers", "log", "definition", "compare", "audit"];

const base = temporaryFolder();
let server: LocalServer;
let bucket: string;
let run: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  const made = await server.call<{ id: string }>("POST", "/api/buckets", { project: HOSTILE, name: HOSTILE });
  bucket = made.body.id;
  const source = path.join(base, "source");
  for (const version of ["1.0.0", "1.1.0"]) {
    writeServices(source, path.join(base, "workers"), { version });
    await server.push(bucket, source);
    run = (await server.run(bucket, "deploy")).id;
  }
  for (const kind of ["workers/sysstat", "workers/uptime", "workers/facts"]) await server.run(bucket, kind);
  await server.run(bucket, "snapshots", { note: HOSTILE });
  await server.run(bucket, "run_command", { command: "exit 3" });
});
after(async () => {
  await server?.stop();
});

/** The rules that are checked in each scheme: all of them, and in the dark those about colours, which alone differ. */
const RULES = { light: undefined, dark: ["color-contrast", "link-in-text-block"] };
/** No script of the console looks at the width, so a page that is resized is laid out as one that is opened so wide. */
const WIDTHS = [360, 1024, 1440, 3840];

test("no view keeps anybody out, in light and dark colours, or is wider than its page, and names stay text", async (t) => {
  const ui = await ConsolePage.open(server.url);
  t.after(() => ui.close());
  const check = async (what: string) => {
    for (const colorScheme of ["light", "dark"] as const) {
      await ui.page.emulateMedia({ colorScheme });
      await ui.checkBarriers(`${what}, ${colorScheme}`, RULES[colorScheme]);
    }
  };
  const checkWidths = async (what: string) => {
    const { width: usual, height } = ui.page.viewportSize() as { width: number; height: number };
    for (const width of WIDTHS) {
      await ui.page.setViewportSize({ width, height });
      const over = await ui.page.evaluate<string[]>(`[document.documentElement, document.getElementById("view")]
        .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.localName)`);
      assert.deepEqual(over, [], `${what} at ${width} pixels`);
    }
    await ui.page.setViewportSize({ width: usual, height });
  };
  await ui.goTo("");
  await check("signed out");
  await ui.signIn(server.token);
  await ui.page.locator("tbody tr, .guide").first().waitFor();
  await check("buckets");
  const ofRun = TABS.map((tab) => `runs/${run}/${tab}`);
  for (const name of [
    ...VIEWS,
    "jobs/base",
    "jobs/base/files",
    "jobs/base/definition",
    "jobs/base/health",
    "workers/127.0.0.1",
    "workers/127.0.0.1/known",
    ...ofRun,
  ]) {
    await ui.view(bucket, name);
    await check(name);
    await checkWidths(name);
    assert.equal(await ui.page.locator("main script, main img").count(), 0);
  }
  await ui.view(bucket, "source/keys");
  await ui.button("Upload a key …").click();
  await ui.page.getByRole("dialog").waitFor();
  await check("a question with fields");
  await ui.page.keyboard.press("Escape");
  await ui.view(bucket, "jobs/base");
  await ui.button("Stop …").click();
  await ui.page.getByRole("dialog").waitFor();
  await check("a question that asks for a name");
  await ui.page.keyboard.press("Escape");
  await ui.page.keyboard.press("?");
  await ui.page.getByRole("dialog").waitFor();
  await check("keys");
  await ui.page.goto(`${server.url}/docs/`);
  await ui.page.locator(".operation").first().waitFor();
  await checkWidths("the API reference");
  ui.checkPeace();
});
