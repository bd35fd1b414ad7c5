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
let ui: ConsolePage;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  bucket = await server.createBucket("shop");
  writeServices(path.join(base, "source"), path.join(base, "workers"), { version: "1.0.0" });
  assert.equal((await server.push(bucket, path.join(base, "source"))).code, 0);
  await server.run(bucket, "deploy");
  ui = await ConsolePage.signedIn(server);
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

const panel = (name: string) => ui.page.getByRole("main").getByRole("region", { name, exact: true });

test("CP-889 a key is changed as a run: its plan first, then the change by the bucket's name, each with its page", async () => {
  await ui.view(bucket, "source/keys");
  await ui.checkBarriers("keys");
  const planned = await ui.sent(server, bucket, () => panel("kv.key").getByRole("button", { name: "Plan" }).click());
  assert.deepEqual(planned, ["POST", "kv/rekey", { dry_run: true }]);
  await ui.heading("Dry run of kv rekey done").waitFor();
  await ui.page.getByRole("main").getByText("Values").waitFor();
  const again = await ui.sent(server, bucket, async () => {
    await ui.page.getByRole("button", { name: "More orders of this run" }).click();
    await ui.page.getByRole("menuitem", { name: "Run again …" }).click();
    await ui.confirm("Run again");
  });
  assert.deepEqual(again, ["POST", "kv/rekey", { dry_run: true }]);
  await ui.view(bucket, "source/keys");
  const changed = await ui.sent(server, bucket, async () => {
    await panel("kv.key").getByRole("button", { name: "Rekey …" }).click();
    await ui.page
      .getByRole("dialog")
      .getByText(/^Makes a new kv.key and seals everything anew/)
      .waitFor();
    await ui.confirm("Rekey", "shop");
  });
  assert.deepEqual(changed, ["POST", "kv/rekey", {}]);
  await ui.heading("Kv rekey done").waitFor();
});

test("CP-889 a change that has begun says since when, what is left, and what goes on with it", async () => {
  await ui.view(bucket, "source/keys");
  await ui.sent(server, bucket, async () => {
    await panel("Certificate authority").getByRole("button", { name: "Rotate …" }).click();
    await ui.confirm("Rotate", "shop");
  });
  await ui.heading("Ca rotate done").waitFor();
  await ui.view(bucket, "source/keys");
  await panel("Certificate authority").getByText("A change goes on").waitFor();
  assert.match(await panel("Certificate authority").innerText(), /since \d\d:\d\d.*the next CA does not sign yet.*ops /s);
  await panel("Certificate authority").getByRole("button", { name: "Go on …" }).waitFor();
  assert.equal(await panel("kv.key").getByText("A change goes on").count(), 0);
  await ui.checkBarriers("a change of a key that goes on");
});

test("CP-889 who may not change keys sees their state and the plan, and is told why no more", async (t) => {
  const { body } = await server.call<{ token: string }>("POST", "/api/tokens", { name: "dee", role: "deploy" });
  const dee = await ConsolePage.open(server.url);
  t.after(() => dee.close());
  await dee.goTo("");
  await dee.signIn(body.token);
  await dee.view(bucket, "source/keys");
  const main = dee.page.getByRole("main");
  await main.getByText("Changing a key needs the role admin; you are dee and have deploy.").waitFor();
  assert.deepEqual(await main.getByRole("button", { name: /^(?:Rekey|Rotate|Go on|Replace)/ }).count(), 0);
  assert.equal(await main.getByRole("button", { name: "Plan" }).count(), 2);
  dee.checkPeace();
  ui.checkPeace();
});
