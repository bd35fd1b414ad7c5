import assert from "node:assert/strict";
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

const base = temporaryFolder();
const [source, workers] = [path.join(base, "source"), path.join(base, "workers")];
let server: LocalServer;
let ui: ConsolePage;
let bucket: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  bucket = await server.createBucket("shop");
  const manifest = { version: "1.0.0", selectors: ["worker"] };
  makeWorkspace(source, {
    jobs: { first: manifest, middle: { ...manifest, after: ["first"] }, last: { ...manifest, after: ["middle", "first"] } },
    workers: [{ host: "127.0.0.1", connection: "local", root: workers }],
    files: { "workspace/jobs/first/conf": "a\n" },
  });
  const { code, stderr } = await server.push(bucket, source);
  assert.equal(code, 0, stderr);
  ui = await ConsolePage.signedIn(server, { width: 1440, height: 900 });
});
after(async () => {
  await ui?.close();
  await server?.stop();
});

const main = () => ui.page.getByRole("main");
const fold = (text: string) => main().locator("details.fold > summary", { hasText: text }).first();

test("HR-341 the console shows the waves that after makes: in the list of jobs, of one job, in a plan and in a deploy", async () => {
  await ui.view(bucket, "jobs");
  for (const [wave, job] of ["first", "middle", "last"].entries())
    await main()
      .getByRole("row", { name: new RegExp(`^${job}\\b.* ${wave} 1\\.0\\.0`) })
      .waitFor();
  await ui.view(bucket, "jobs/last/definition");
  await main()
    .getByText(/^2 · after middle, first$/)
    .waitFor();
  await ui.view(bucket, "jobs/first/definition");
  await main().getByText("Wave", { exact: true }).waitFor();
  assert.equal(await main().getByText("· after").count(), 0);
  const plan = await server.run(bucket, "deploy", { dry_run: true });
  await ui.view(bucket, `runs/${plan.id}`);
  await ui.heading("Plan: 3 changes on 1 worker").waitFor();
  for (const [wave, job] of ["first", "middle", "last"].entries()) await fold(job).getByText(`wave ${wave}`).waitFor();
});

test("HR-348 the console shows the plan of an adoption: what is adopted, and what is left alone with its differences", async () => {
  const folder = path.join(workers, bucket, "jobs");
  const makefile = "start stop restart reload status:\n\t@true\n";
  for (const job of ["first", "middle"]) {
    mkdirSync(path.join(folder, job, "certs"), { recursive: true });
    writeFileSync(path.join(folder, job, "Makefile"), makefile);
    cpSync(path.join(base, "root", bucket, "secrets", "ca.crt"), path.join(folder, job, "certs", "ca.crt"));
  }
  writeFileSync(path.join(folder, "first", "conf"), "b\n");
  const plan = await server.run(bucket, "deploy", { adopt: true, dry_run: true });
  await ui.view(bucket, `runs/${plan.id}`);
  await ui.heading("Plan: 1 change on 1 worker").waitFor();
  for (const chip of [/^1 adopted/, /^2 left alone/]) await main().getByRole("button", { name: chip }).waitFor();
  await fold("middle").getByText("1 of 1 allocation").waitFor();
  await fold("first").getByText("wave 0").waitFor();
  await main().getByText("+a").first().waitFor();
  await ui.checkBarriers("a plan of an adoption");
});
