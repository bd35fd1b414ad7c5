import assert from "node:assert/strict";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { writeServices } from "../helpers/service.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const base = temporaryFolder();
let server: LocalServer;
let bucket: string;
const people: Record<string, ConsolePage> = {};

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  bucket = await server.createBucket("shop");
  writeServices(path.join(base, "source"), path.join(base, "workers"), { version: "1.0.0" });
  assert.equal((await server.push(bucket, path.join(base, "source"))).code, 0);
  const roles = { ann: "deploy", bob: "deploy", eve: "admin" };
  for (const [name, role] of Object.entries(roles)) {
    const { body } = await server.call<{ token: string }>("POST", "/api/tokens", { name, role });
    people[name] = await ConsolePage.open(server.url);
    await people[name].goTo("");
    await people[name].signIn(body.token);
  }
});
after(async () => {
  for (const ui of Object.values(people)) await ui.close();
  await server?.stop();
});

const person = (name: string) => people[name] as ConsolePage;
const row = (name: string) => person(name).page.getByRole("main").locator("tbody tr").first();
const commandAsked = async (name: string) => {
  const { page } = person(name);
  await person(name).view(bucket, "command");
  await page.getByLabel("Command").fill("uptime");
  await page.getByRole("button", { name: /^Run on \d+ workers …$/ }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Type shop to go on").fill("shop");
  await dialog.getByRole("button", { name: /^Run on/ }).click();
  const refusal = dialog.getByRole("alert").filter({ hasText: "approval of another person" });
  await refusal.locator("code", { hasText: /^ops propose / }).waitFor();
};

test("a command that needs approval is proposed from its question, approved by another person, and started once", async () => {
  await person("eve").view(bucket, "approvals");
  await person("eve").button("Change …").click();
  await person("eve").page.getByLabel("Approvals").selectOption("1");
  await person("eve").confirm("Set the number");
  await person("eve").page.getByText("need the approval of 1 other person").waitFor();

  await commandAsked("ann");
  await person("ann").button("Propose it").click();
  await person("ann").link("Show the proposals").first().click();
  await row("ann").getByText("1 approval missing").waitFor();
  assert.equal(await row("ann").getByRole("button", { name: "Approve …" }).count(), 0, "nobody approves what they propose");
  await person("ann").checkBarriers("proposals");

  await person("bob").view(bucket, "approvals");
  await row("bob").getByRole("button", { name: "Approve …" }).click();
  await person("bob").page.getByRole("dialog").getByText("Run command uptime").waitFor();
  await person("bob").page.getByRole("dialog").getByText("Proposed by ann, for 2 workers.").waitFor();
  await person("bob").confirm("Approve");
  await row("bob").getByText("approved").waitFor();

  const [method, rest, body] = await person("ann").sent(server, bucket, async () => {
    await row("ann").getByRole("button", { name: "Start …" }).click();
    await person("ann").confirm("Start");
  });
  assert.deepEqual([method, rest, Object.keys(body as object)], ["POST", "run_command", ["proposal"]]);
  await row("ann").getByText("used").waitFor();
});

test("a proposal is rejected with a reason, which its proposer reads", async () => {
  await commandAsked("ann");
  await person("ann").button("Propose it").click();
  await person("ann").link("Show the proposals").first().click();
  await row("ann").getByText("1 approval missing").waitFor();
  await row("bob").getByText("1 approval missing").waitFor();
  await row("bob").getByRole("button", { name: "More orders of this proposal" }).click();
  await person("bob").page.getByRole("menuitem", { name: "Reject …" }).click();
  await person("bob").page.getByLabel("Reason").fill("not on a Friday");
  await person("bob").confirm("Reject");
  await row("ann").getByText("not on a Friday").waitFor();
});

test("an admin breaks the glass with a reason; others are not offered it", async () => {
  await commandAsked("ann");
  assert.equal(await person("ann").button("Break the glass …").count(), 0);
  await commandAsked("eve");
  await person("eve").button("Break the glass …").click();
  await person("eve").page.getByLabel("Reason").fill("the shop is down");
  await person("eve").sent(server, bucket, () => person("eve").confirm("Break the glass", "shop"));
  const { body } = await server.call<{ items: { break_glass: string | null }[] }>("GET", `/api/buckets/${bucket}/runs?limit=1`);
  assert.equal(body.items[0]?.break_glass, "the shop is down");
});

test("the audit shows who did what with which outcome, what went past the approval, and where the audit ends", async () => {
  const { page } = person("eve");
  await person("eve").view(bucket, "audit");
  const rows = page.getByRole("main").locator("tbody tr");
  const broken = rows.filter({ hasText: "glass broken" }).first();
  await broken.getByText("eve").waitFor();
  await broken.getByText("done").waitFor();
  await broken.getByText("/run_command").click();
  await broken.getByText("the shop is down").waitFor();
  await rows.filter({ hasText: "ann" }).filter({ hasText: "refused" }).first().waitFor();
  await person("eve").checkBarriers("audit of a bucket");
  await person("eve").goTo("#/audit");
  await page.getByRole("main").locator("tbody tr").filter({ hasText: "token" }).first().waitFor();
  await page.getByText(/^Line [\d,]+ is the last one/).click();
  await page.getByText(/^ops audit verify/).waitFor();
  await page.getByRole("combobox", { name: "Show" }).selectOption({ label: "The server itself" });
  await page.getByRole("main").locator("tbody tr").filter({ hasText: "Server start" }).first().waitFor();
  await person("eve").checkBarriers("audit of the server");
  for (const ui of Object.values(people)) ui.checkPeace();
});
