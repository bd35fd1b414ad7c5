import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { writeServices } from "../helpers/service.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const base = temporaryFolder();
const [source, broken] = [path.join(base, "source"), path.join(base, "broken")];
let server: LocalServer;
let bucket: string;
let ui: ConsolePage;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  bucket = await server.createBucket("shop");
  writeServices(source, path.join(base, "workers"), { version: "1.0.0" });
  const send = path.join(base, "send.sh");
  writeFileSync(send, `#!/bin/sh\ncat > /dev/null\n[ ! -e "${broken}" ]\n`, { mode: 0o755 });
  const notify = { targets: { pager: { command: [send] }, idle: { command: [send] } }, send: [{ to: ["pager"] }] };
  writeFileSync(path.join(source, "workspace/notify.json"), JSON.stringify(notify));
  await push(0);
  await server.run(bucket, "deploy");
  ui = await ConsolePage.signedIn(server);
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

async function push(expected: number): Promise<void> {
  const { code, stderr } = await server.push(bucket, source);
  assert.equal(code, expected, stderr);
}
const main = () => ui.page.getByRole("main");
const row = (text: string) => main().locator("tbody tr", { hasText: text });
const lists = async <T>(name: string): Promise<T[]> =>
  (await server.call<{ items: T[] }>("GET", `/api/buckets/${bucket}/${name}`)).body.items;

test("CP-890 a target is tested, and says what became of it; one that no rule names says so", async () => {
  await ui.view(bucket, "incidents");
  await main().getByText("Nothing was wrong.").waitFor();
  await ui.view(bucket, "incidents/targets");
  await row("pager").getByText("never").waitFor();
  await row("idle").getByText("nothing: no rule names it").waitFor();
  await ui.checkBarriers("targets of messages");
  const sent = await ui.sent(server, bucket, () => row("pager").getByRole("button", { name: "Test" }).click());
  assert.deepEqual(sent, ["POST", "messages/test", { target: "pager" }]);
  await ui.page.getByText("pager has taken the test.").waitFor();
  writeFileSync(broken, "");
  await row("pager").getByRole("button", { name: "Test" }).click();
  await ui.page.getByText(/^pager did not take the test: /).waitFor();
});

test("CP-890 what nothing else tells of needs attention until it is over; its message waits, and is sent by hand", async () => {
  writeFileSync(path.join(source, "workspace/jobs/app/manifest.json"), "{");
  await push(1);
  await until("the incident is open", async () => (await lists("incidents")).length === 1);
  await ui.view(bucket, "");
  await ui.heading("All well").waitFor({ state: "detached" });
  const needs = main().locator(".attention li");
  await needs.getByRole("button", { name: "Log" }).waitFor();
  assert.match(await needs.innerText(), /failed.*push/is);
  await main()
    .getByText(/^1 incident open/)
    .waitFor();
  await ui.checkBarriers("an incident on the overview");
  await ui.goTo("#/");
  await row("shop").getByText("1 open incident").waitFor();
  await until("the target has refused", async () =>
    (await lists<{ error: string | null }>("messages")).some(({ error }) => error),
  );
  await ui.view(bucket, "incidents");
  await row("pager").getByText("ongoing").waitFor();
  await ui.checkBarriers("incidents");
  await ui.view(bucket, "incidents/messages");
  await row("pager").getByText("waiting").waitFor();
  await ui.checkBarriers("messages");
  rmSync(broken);
  const [, path_] = await ui.sent(server, bucket, () => row("pager").getByRole("button", { name: "Send now" }).click());
  assert.match(path_, /^messages\/[^/]+\/retry$/);
  await row("pager").getByText("sent").waitFor();
  writeServices(source, path.join(base, "workers"), { version: "1.0.0" });
  await push(0);
  await ui.view(bucket, "");
  await ui.heading("All well").waitFor();
  await ui.view(bucket, "incidents");
  await row("pager").getByText("over", { exact: true }).waitFor();
});

test("CP-173 a deploy that failed before it touched a worker leaves no bucket that is well, and is given again", async () => {
  const app = path.join(source, "workspace/jobs/app");
  const hooks = { stop: { executed_on: ["pre_deploy"] } };
  writeFileSync(path.join(app, "manifest.json"), JSON.stringify({ version: "2.0.0", selectors: ["all"], hooks }));
  writeFileSync(path.join(app, "_hooks/stop.py"), "raise SystemExit('no database')\n");
  await push(0);
  await ui.goTo("#/");
  await row("shop").getByText("2 allocations wait for a deploy").waitFor();
  assert.equal((await server.run(bucket, "deploy")).status, "failed");
  await ui.heading("1 of 1 bucket needs attention").waitFor();
  await row("shop").getByText("The last deploy failed: 2 allocations wait for a deploy").waitFor();
  await ui.view(bucket, "");
  await main().locator(".attention li", { hasText: "no database" }).waitFor();
  assert.match((await ui.button("Deploy …").getAttribute("class")) ?? "", /primary/);
});

test("CP-890 who may only read sees incidents and messages without orders", async (t) => {
  const { body } = await server.call<{ token: string }>("POST", "/api/tokens", { name: "rea", role: "read" });
  const rea = await ConsolePage.open(server.url);
  t.after(() => rea.close());
  await rea.goTo("");
  await rea.signIn(body.token);
  await rea.view(bucket, "incidents/targets");
  await rea.page.getByRole("main").getByText("pager").first().waitFor();
  assert.equal(await rea.page.getByRole("main").getByRole("button", { name: "Test" }).count(), 0);
  rea.checkPeace();
  ui.checkPeace();
});
