import assert from "node:assert/strict";
import path from "node:path";
import { after, before, test } from "node:test";
import { ROUTES } from "../../lib/server/routes/table.ts";
import { LocalServer } from "../../scripts/local-server.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const base = temporaryFolder();
let server: LocalServer;
let console: ConsolePage;
let bucket: string;

before(async () => {
  server = await LocalServer.start(path.join(base, "root"));
  bucket = await server.createBucket("alpha");
  console = await ConsolePage.open(server.url);
  await console.goTo("");
  await console.signIn(server.token);
});
after(async () => {
  await console?.close();
  await server?.stop();
});

const openDocs = (rest = "/") => console.page.goto(`${server.url}/docs${rest}`);
const operation = (id: string) => console.page.locator(`#${id}`);
const answer = (id: string) => operation(id).locator(".result pre");

test("CP-020 CP-022 every operation of the server is there, with and without the slash in the address", async () => {
  const told = ["/healthz", "/readyz", ...ROUTES.map((route) => route.path.replace("*}", "}"))];
  for (const rest of ["", "/"]) {
    await openDocs(rest);
    await console.page.getByText(`${told.length} of ${told.length} operations`).waitFor();
    assert.equal(await console.page.locator(".operation").count(), told.length);
  }
  const paths = await console.page.locator(".operation > summary > code").allTextContents();
  assert.deepEqual(paths.sort(), told.sort());
});

test("CP-017 CP-018 every path below /docs needs authentication, whether it exists or not", async () => {
  for (const file of ["", "/", "/index.html", "/console.js", "/console.css", "/nothing.js"]) {
    const response = await fetch(`${server.url}/docs${file}`);
    assert.equal(response.status, 401, file);
  }
});

test("an operation is found by what it does, and has an address", async () => {
  await openDocs();
  await console.page.getByText(/^\d+ of \d+ operations$/).waitFor();
  await console.page.keyboard.press("/");
  await console.page.keyboard.type("FOLLOW activity timeout");
  await console.page.getByText(/^1 of \d+ operations$/).waitFor();
  await console.page.locator("summary:visible", { hasText: "Follow the Activity" }).click();
  await operation("get_buckets_bucket_id_runs_run_id_logs").getByRole("heading", { name: "Parameters" }).waitFor();
  assert.ok(console.page.url().endsWith("#get_buckets_bucket_id_runs_run_id_logs"));
  await console.page.reload();
  await operation("get_buckets_bucket_id_runs_run_id_logs").getByRole("heading", { name: "Try it" }).waitFor();
});

test("what an operation takes and answers is told, with examples", async () => {
  await openDocs("/#post_buckets");
  const create = operation("post_buckets");
  await create.getByText("project string, maxLength 200, minLength 1").first().waitFor();
  await create.locator(".answer", { hasText: "201" }).getByText("initialized").first().waitFor();
  await create.locator(".answer", { hasText: "409" }).locator("summary").first().click();
  await create.locator(".answer", { hasText: "409" }).getByText("bucket_exists", { exact: true }).first().click();
  await create.getByRole("group", { name: "Example: bucket_exists" }).waitFor();
});

test("text has no raw backticks, and the command that does the same stands beside", async () => {
  await openDocs("/#post_buckets_bucket_id_deploy");
  const deploy = operation("post_buckets_bucket_id_deploy");
  await deploy.getByText("ops deploy", { exact: true }).waitFor();
  await deploy.locator("code", { hasText: "dry_run" }).first().waitFor();
  assert.doesNotMatch((await console.page.locator("main").innerText()) ?? "", /`/);
});

test("CP-020 a read is tried with the session", async () => {
  await openDocs("/#get_buckets_bucket_id");
  const form = operation("get_buckets_bucket_id");
  await form.getByLabel("bucket_id").fill(bucket);
  await form.getByRole("button", { name: "Send" }).click();
  await answer("get_buckets_bucket_id").getByText('"name": "alpha"').waitFor();
});

test("CP-020 a change is sent with the header against forged requests, once it is confirmed", async () => {
  await openDocs("/#post_buckets");
  const form = operation("post_buckets");
  await form.getByLabel("Body (JSON)").fill('{"project": "demo", "name": "it\'s new"}');
  const before = console.requests.length;
  await form.getByRole("button", { name: "Send" }).click();
  assert.equal(
    console.requests.slice(before).some((request) => request.method() === "POST"),
    false,
  );
  await form.getByLabel("Really do this on this server").check();
  await form.getByRole("button", { name: "Send" }).click();
  await form.getByText(/^201 Created/).waitFor();
  const { body } = await server.call<{ items: { name: string }[] }>("GET", "/api/buckets");
  assert.deepEqual(body.items.map(({ name }) => name).sort(), ["alpha", "it's new"]);
});

test("a refusal is shown as it came", async () => {
  const form = operation("post_buckets");
  await form.getByLabel("Body (JSON)").fill('{"projects": 1}');
  await form.getByLabel("Really do this on this server").check();
  await form.getByRole("button", { name: "Send" }).click();
  await form.getByText(/^400 Bad Request/).waitFor();
  await answer("post_buckets").getByText('"error": "invalid_request"').waitFor();
});

test("the same as a curl command is safe in a shell", async () => {
  const form = operation("post_buckets");
  await form.getByLabel("Body (JSON)").fill(`{"project": "p", "name": "it's $HOME"}`);
  await form.getByRole("button", { name: "Copy as curl" }).click();
  const lines = [
    `curl -sS -X POST '${server.url}/api/buckets' \\`,
    `  -H "Authorization: Bearer $OPS_SERVE_TOKEN" \\`,
    "  -H 'Content-Type: application/json' \\",
    `  --data-raw '{"project": "p", "name": "it'\\''s $HOME"}'`,
  ];
  assert.equal(await answer("post_buckets").textContent(), lines.join("\n"));
});

test("a header that an operation takes goes with it", async () => {
  const id = "get_buckets_bucket_id_files_path";
  await openDocs(`/#${id}`);
  const form = operation(id);
  await form.getByLabel("bucket_id").fill(bucket);
  await form.getByLabel("path").fill("ops.conf");
  await form.getByLabel("Range", { exact: true }).fill("bytes=0-1");
  await form.getByRole("button", { name: "Copy as curl" }).click();
  assert.match((await answer(id).textContent()) ?? "", /-H 'Range: bytes=0-1'/);
  const sent = console.requests.length;
  await form.getByRole("button", { name: "Send" }).click();
  await form.getByText(/^404 Not Found/).waitFor();
  assert.equal(console.requests.slice(sent).at(-1)?.headers().range, "bytes=0-1");
});

test("operations are as wide as the page; at 390 pixels nothing is wider", async () => {
  await console.page.setViewportSize({ width: 1440, height: 800 });
  assert.ok(((await console.page.locator(".operation").first().boundingBox())?.width ?? 0) > 1300);
  await console.page.setViewportSize({ width: 390, height: 800 });
  assert.equal(await console.page.evaluate("document.documentElement.scrollWidth"), 390);
  const first = await console.page.locator(".operation").first().boundingBox();
  assert.ok((first?.y ?? 800) < 400, "the operations begin in sight");
  await console.page.setViewportSize({ width: 1280, height: 800 });
});

test("axe finds no barrier in the reference", async () => {
  for (const colorScheme of ["light", "dark"] as const) {
    await console.page.emulateMedia({ colorScheme });
    await console.checkBarriers(colorScheme);
  }
});

test("no request left for elsewhere, and nothing broke", () => console.checkPeace());
