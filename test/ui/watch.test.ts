import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { writeServices } from "../helpers/service.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const base = temporaryFolder();
const [root, source, sick] = [path.join(base, "root"), path.join(base, "source"), path.join(base, "sick")];
const HOUR_MS = 3_600_000;
let server: LocalServer;
let bucket: string;
const people: Record<string, ConsolePage> = {};
const tokens: Record<string, string> = {};

const SCHEDULES = [
  { name: "health", every: "24h", kind: "health_check", catch_up: true },
  { name: "plan", cron: "30 5 * * *", timezone: "Europe/Berlin", kind: "deploy", parameters: { dry_run: true } },
  { name: "release", cron: "0 0 1 1 *", kind: "deploy", deploy: true },
];

before(async () => {
  server = await LocalServer.start(root);
  bucket = await server.createBucket("shop");
  const hooks = { check: { executed_on: ["health_check"] } };
  writeServices(source, path.join(base, "workers"), { version: "1.0.0", manifest: { hooks } });
  const check = `import os, sys\nif os.path.exists(${JSON.stringify(sick)}) and os.environ["ALLOCATION_IP"] == "127.0.0.2":\n    sys.exit("answered 503")\n`;
  writeFileSync(path.join(source, "workspace/jobs/base/_hooks/check.py"), check);
  const app = path.join(source, "workspace/jobs/app/manifest.json");
  writeFileSync(app, JSON.stringify({ version: "1.0.0", selectors: ["all"], after: ["base"] }));
  await push([]);
  await server.run(bucket, "deploy");
  await server.run(bucket, "health_check");
  for (const [name, role] of Object.entries({ rea: "read", dee: "deploy", eve: "admin" })) {
    const { body } = await server.call<{ token: string }>("POST", "/api/tokens", { name, role });
    tokens[name] = body.token;
  }
  await overslept();
  await openAll();
});
after(async () => {
  for (const ui of Object.values(people)) await ui.close();
  await server?.stop();
});

const person = (name: string) => people[name] as ConsolePage;
const main = (name: string) => person(name).page.getByRole("main");
const row = (name: string, text: string) => main(name).locator("tbody tr", { hasText: text });

async function push(freeze: unknown[]): Promise<void> {
  writeFileSync(path.join(source, "workspace/schedules.json"), JSON.stringify({ schedules: SCHEDULES, freeze }));
  const { code, stderr } = await server.push(bucket, source);
  assert.equal(code, 0, stderr);
}

async function openAll(): Promise<void> {
  for (const [name, token] of Object.entries(tokens)) {
    people[name] = await ConsolePage.open(server.url);
    await people[name].goTo("");
    await people[name].signIn(token);
  }
}

/**
 * Starts the server anew, as if it had been away while each schedule was due, and waits for the run that is caught up. An
 * earlier run of a schedule is put back by three days.
 */
async function overslept(): Promise<void> {
  const file = path.join(root, bucket, ".ops/schedules.json");
  const read = (): Record<string, State> => (existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {});
  await until("the server knows the schedules", () => Object.keys(read()).length === SCHEDULES.length);
  await server.stop();
  const states = read();
  const before = states.health?.last?.run_id ?? null;
  if (before) {
    const record = path.join(root, bucket, "logs/runs", before, "server-run.json");
    const run = JSON.parse(readFileSync(record, "utf8"));
    run.schedule.due = new Date(Date.now() - 72 * HOUR_MS).toISOString();
    writeFileSync(record, JSON.stringify(run));
  }
  for (const state of Object.values(states)) state.decided = new Date(Date.now() - 48 * HOUR_MS).toISOString();
  writeFileSync(file, JSON.stringify(states));
  server = await LocalServer.start(root, { token: server.token });
  await until("the run is caught up", async () => {
    const { body } = await server.call<{ items: (State & { name: string })[] }>("GET", `/api/buckets/${bucket}/schedules`);
    const { last = null } = body.items.find(({ name }) => name === "health") ?? {};
    return last?.status === "succeeded" && last.run_id !== before;
  });
}

interface State {
  decided: string;
  last: { run_id: string | null; status: string | null } | null;
}

test("CP-885 schedules: kind, rhythm, next time, and what became of the last due time, with its run", async () => {
  await person("dee").view(bucket, "schedules");
  await row("dee", "health")
    .getByText(/Health check/)
    .waitFor();
  assert.match(await row("dee", "health").innerText(), /every day.*in \d+ (h|min|s) /s);
  assert.match(
    await row("dee", "plan").innerText(),
    /Dry run.*every day at 05:30 \(Europe\/Berlin\).*missed.*the server was away/s,
  );
  assert.match(await row("dee", "release").innerText(), /Deploy for real.*1 January at 00:00 \(UTC\).*not due yet/s);
  await person("dee").checkBarriers("schedules");
  await row("dee", "health")
    .getByRole("link", { name: /succeeded/ })
    .click();
  await main("dee")
    .getByText(/by schedule health/)
    .waitFor();
});

test("CP-885 the run of a schedule that ended as the one before says how often", async () => {
  for (const ui of Object.values(people)) await ui.close();
  await overslept();
  await openAll();
  await person("dee").view(bucket, "schedules");
  await row("dee", "health")
    .getByText(/the same 2 times since/)
    .waitFor();
  await person("dee").view(bucket, "runs");
  await row("dee", "schedule health")
    .getByText(/the same 2 times since/)
    .waitFor();
});

test("CP-885 a schedule is paused, started by hand, and resumed; a role that is too small is told why not", async () => {
  await person("dee").view(bucket, "schedules");
  await row("dee", "plan").getByRole("button", { name: "Pause …" }).click();
  const sent = (act: () => Promise<unknown>) => person("dee").sent(server, bucket, act);
  assert.deepEqual((await sent(() => person("dee").confirm("Pause")))[1], "schedules/plan/pause");
  await row("dee", "plan")
    .getByText(/paused by dee/)
    .waitFor();
  assert.deepEqual(await sent(() => row("dee", "plan").getByRole("button", { name: "Run now" }).click()), [
    "POST",
    "schedules/plan/run",
    {},
  ]);
  await row("dee", "release").getByRole("button", { name: "Run now …" }).click();
  await person("dee").page.getByRole("dialog").getByLabel("Type shop to go on").waitFor();
  await person("dee").page.keyboard.press("Escape");
  assert.equal(
    (await sent(() => row("dee", "plan").getByRole("button", { name: "Resume" }).click()))[1],
    "schedules/plan/resume",
  );
  await row("dee", "plan").getByRole("button", { name: "Pause …" }).waitFor();
  await person("rea").view(bucket, "schedules");
  await main("rea").getByText("Starting, pausing or resuming one needs the role deploy; you are rea and have read.").waitFor();
  assert.equal(await row("rea", "plan").getByRole("button").count(), 0);
});

test("CP-886 what was found unwell needs attention, with reason and since when, and is gone when it is well", async () => {
  await person("dee").view(bucket, "");
  // The schedule whose due time was missed needs attention, too.
  const needs = main("dee").locator(".attention li", { hasText: "base is" });
  await main("dee").getByText("Jobs on workers").waitFor();
  assert.equal(await needs.count(), 0);
  writeFileSync(sick, "");
  await server.run(bucket, "health_check");
  assert.match(await needs.innerText(), /^base is unhealthy on 127\.0\.0\.2\s+since \d\d:\d\d/);
  await needs.getByText(/answered 503/).waitFor();
  await main("dee")
    .getByText(/1 job is unhealthy/)
    .waitFor();
  await person("dee").checkBarriers("an overview with a job that is unwell");
  await person("dee").view(bucket, "jobs");
  await row("dee", "base").getByText("unhealthy").waitFor();
  rmSync(sick);
  await person("dee").view(bucket, "");
  const [, path_, body] = await person("dee").sent(server, bucket, () =>
    needs.getByRole("button", { name: "Check again" }).click(),
  );
  assert.deepEqual([path_, body], ["health_check", { jobs: ["base"] }]);
  await needs.waitFor({ state: "detached" });
});

test("CP-887 the pages of a job and of a worker draw how it was over time, and say it", async () => {
  const { page } = person("rea");
  await person("rea").view(bucket, "jobs/base");
  const strips = main("rea").getByRole("img", { name: /^base, health, well [\d.]+ % of the time known in 7 days, 2 changes$/ });
  await strips.waitFor();
  await main("rea")
    .getByText(/healthy · well [\d.]+ % of the time known in 7 days, 2 changes/)
    .waitFor();
  await person("rea").link("Health").click();
  await main("rea")
    .getByRole("img", { name: /^127\.0\.0\.2, health, well/ })
    .waitFor();
  await main("rea")
    .getByRole("img", { name: /^127\.0\.0\.1, health, well 100 % of the time known in 7 days, no change$/ })
    .waitFor();
  await row("rea", "answered 503").getByRole("link").first().waitFor();
  await main("rea").getByRole("combobox", { name: "Over the last" }).selectOption({ label: "90 days" });
  await main("rea")
    .getByRole("img", { name: /^base, health, well [\d.]+ % of the time known in 90 days/ })
    .waitFor();
  assert.match(page.url(), /over=quarter/);
  await person("rea").checkBarriers("the health of a job");
  await main("rea").getByRole("link", { name: "127.0.0.2" }).first().click();
  await main("rea")
    .getByRole("img", { name: /^127\.0\.0\.2, connection, well 100 % of the time known in 7 days/ })
    .waitFor();
  await main("rea")
    .getByRole("img", { name: /^127\.0\.0\.2, health of its jobs, well/ })
    .waitFor();
  await row("rea", "base").getByText("promoted").waitFor();
  await person("rea").checkBarriers("a worker");
  await page.getByRole("link", { name: "Facts and definition" }).click();
  await main("rea").getByText("They were not read yet.").waitFor();
  await person("rea").view(bucket, "workers");
  await row("rea", "127.0.0.2")
    .getByText(/reachable/)
    .waitFor();
});

test("CP-888 a freeze is shown ahead and while it is on, in heads and questions; an admin goes past it", async () => {
  const at = (hours: number) => new Date(Date.now() + hours * HOUR_MS).toISOString().slice(0, 16);
  await person("dee").view(bucket, "hooks");
  await push([{ from: at(5), to: at(9), reason: "the fair" }]);
  await person("dee").view(bucket, "");
  await main("dee")
    .getByText(/^Freeze in [45] h/)
    .waitFor();
  await person("dee")
    .page.getByRole("navigation")
    .getByText(/^Freeze in/)
    .first()
    .waitFor();
  await push([{ from: at(-1), to: at(9), reason: "the fair" }]);
  for (const name of ["dee", "eve"]) {
    await person(name).view(bucket, "deployments");
    await main(name)
      .getByText(/^Frozen until/)
      .waitFor();
    await person(name).button("Deploy …").click();
    const dialog = person(name).page.getByRole("dialog");
    await dialog.getByText("the fair").waitFor();
    await person(name).checkBarriers("a question in a freeze");
    await dialog.getByLabel("Type shop to go on").fill("shop");
    await dialog.getByRole("button", { name: "Deploy", exact: true }).click();
    await dialog.getByText(/the bucket is frozen until/).waitFor();
  }
  assert.equal(await person("dee").button("Break the glass …").count(), 0);
  await person("eve").button("Break the glass …").click();
  await person("eve").page.getByLabel("Reason").fill("the shop is down");
  const [, , body] = await person("eve").sent(server, bucket, () => person("eve").confirm("Break the glass", "shop"));
  assert.deepEqual(body, {});
  await person("eve").view(bucket, "runs");
  await row("eve", "glass broken").getByRole("link").first().click();
  await main("eve").getByText("the shop is down").waitFor();
  for (const ui of Object.values(people)) ui.checkPeace();
});
