import assert from "node:assert/strict";
import { once } from "node:events";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import path from "node:path";
import { after, before, test } from "node:test";
import { LocalServer, ops } from "../../scripts/local-server.ts";
import { makeKey } from "../../scripts/private-sshd.ts";
import { ConsolePage } from "../helpers/browser.ts";
import { certificateFor } from "../helpers/http.ts";
import { writeServices } from "../helpers/service.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";
import { oathtoolCode, SECRET_TEXT } from "../helpers/totp.ts";

const STEP_MS = 30_000;

const base = temporaryFolder();
const source = path.join(base, "source");
const workers = path.join(base, "workers");
const gate = path.join(base, "gate");
const certificate = path.join(base, "certificate.pem");
let server: LocalServer;
let ui: ConsolePage;
let service: Server;
let bucket: string;
/** The step of the last code that was used: no later one may be older. */
let used = 0;

before(async () => {
  const { certFile, keyFile } = await certificateFor({ after: (end) => after(end as () => void) });
  copyFileSync(certFile, certificate);
  const secret = path.join(base, "totp");
  writeFileSync(secret, `${SECRET_TEXT}\n`, { mode: 0o600 });
  const flags = ["--tls-cert", certFile, "--tls-key", keyFile, "--totp-secret-file", secret];
  server = await LocalServer.start(path.join(base, "root"), { flags });
  ui = await ConsolePage.open(server.url, { ignoreHTTPSErrors: true });
  service = await healthyService();
});
after(async () => {
  await ui?.close();
  await server?.stop();
  service?.close();
});

/** What the health check of the job finds; closed, the job is not healthy. */
async function healthyService(): Promise<Server> {
  const listening = createServer((socket) => socket.end()).listen(0, "0.0.0.0");
  await once(listening, "listening");
  return listening;
}

async function freshCode(): Promise<string> {
  const step = () => Math.floor(Date.now() / STEP_MS);
  await until("the next code", () => step() + 1 > used, 2 * STEP_MS);
  used = Math.max(used + 1, step());
  return oathtoolCode(SECRET_TEXT, used * STEP_MS);
}

function write(version: string, before = ""): void {
  const { port } = service.address() as { port: number };
  const manifest = { resources: { ports: { base_tcp: port } } };
  writeServices(source, workers, { version, before, healthPort: port, manifest });
  writeFileSync(path.join(source, "workspace", "bucket.conf"), `port_min = "${port}"\nport_max = "${port}"\n`);
}

async function push(): Promise<void> {
  const flags = ["--bucket", bucket, "--dir", source, "--ca-file", certificate, "--totp", await freshCode()];
  const { code, stderr } = await ops(["push", server.url, ...flags], { env: { OPS_SERVE_TOKEN: server.token } });
  assert.equal(code, 0, stderr);
}

const main = () => ui.page.getByRole("main");
const dialog = () => ui.page.getByRole("dialog");
const row = (text: string) => main().locator("tbody tr", { hasText: text }).first();

/** The status bar tells of the newest run of the bucket that it has ended so. */
async function ended(kind: string, state: string): Promise<void> {
  const bar = ui.page.locator("#status", { has: ui.page.getByRole("img", { name: state, exact: true }) });
  await bar.filter({ hasText: kind }).waitFor();
}

async function choose(name: string): Promise<void> {
  await main().locator(".head .more").first().click();
  await ui.page.getByRole("menuitem", { name, exact: true }).click();
}

test("a morning: sign in with a code, create a bucket, give it a key, watch a push", async () => {
  await ui.goTo("");
  await ui.page.getByLabel("API token").fill(server.token);
  await ui.button("Sign in").click();
  await ui.page.getByLabel("Code of your authenticator app").fill(await freshCode());
  await ui.page.locator("body:not(.signed-out)").waitFor();
  await ui.button("New bucket …").click();
  await dialog().getByLabel("Project").fill("shop");
  await dialog().getByLabel("Name").fill("production");
  await ui.confirm("Create bucket");
  await ui.page.waitForURL(/buckets\/[0-9a-f-]{36}/);
  bucket = /buckets\/([0-9a-f-]{36})/.exec(ui.page.url())?.[1] ?? "";
  await ui.view(bucket, "source/keys");
  const key = makeKey(base, "id");
  await ui.button("Upload a key …").click();
  await dialog()
    .getByLabel(/^Private key/)
    .fill(readFileSync(key, "utf8"));
  await ui.confirm("Store the key");
  await ui.page.getByText("SHA256:").waitFor();
  write("1.0.0");
  await Promise.all([push(), ended("Push", "succeeded")]);
});

test("before noon: build, plan, deploy what was planned, and see that all is well", async () => {
  await ui.view(bucket, "");
  await choose("Build");
  await ended("Build", "succeeded");
  await ui.view(bucket, "deployments");
  await ui.button("Plan").click();
  await ui.heading("Plan: 4 changes on 2 workers").waitFor();
  await main().locator("pre.diff .added").first().waitFor();
  await ui.button("Deploy this plan …").click();
  await ui.confirm("Deploy this plan", "production");
  await ui.view(bucket, "deployments");
  await ui.heading("Everything is deployed").waitFor();
  await ended("Deploy", "succeeded");
  await ui.view(bucket, "");
  await ui.heading("All well").waitFor();
  await main()
    .locator(".map")
    .getByRole("button", { name: /^4 changed/ })
    .waitFor();
});

test("at noon: a new version is pushed, its deploy hangs and is cancelled", async () => {
  write("1.1.0", `\t@while [ ! -f ${gate} ]; do sleep 0.05; done\n`);
  await push();
  await ui.view(bucket, "deployments");
  await ui.button("Deploy …").click();
  await ui.confirm("Deploy", "production");
  await main().locator(".last").getByRole("link", { name: "Deploy", exact: true }).click();
  await main().locator(".waits").getByText("make restart").waitFor();
  await main().getByRole("button", { name: "Cancel …" }).click();
  await ui.button("Cancel the run").click();
  await ui.heading("Deploy cancelled").waitFor();
  await ui.view(bucket, "deployments/rollout");
  await main().getByText("As a table").click();
  await main()
    .getByRole("row", { name: /base 127\.0\.0\.2 1\.0\.0 1\.1\.0/ })
    .waitFor();
});

test("in the afternoon: a health check fails, and the source is rolled back", async () => {
  service.close();
  await ui.view(bucket, "jobs/base");
  await ui.button("Health check").click();
  await ended("Health check", "failed");
  await ui.view(bucket, "source");
  await main().locator("tbody th a").nth(1).click();
  await main().getByText("page of 1.0.0").first().waitFor({ state: "attached" });
  await ui.button("Roll back …").first().click();
  await ui.confirm("Roll back", "production");
  await ended("Rollback", "succeeded");
  await ui.view(bucket, "source");
  await main().locator("tbody tr").nth(1).getByText("current").waitFor();
});

test("in the evening: a command, the catalog, a snapshot and its restore, and sign out", async () => {
  await ui.view(bucket, "command");
  await ui.page.getByLabel(/^Command/).fill("echo the same everywhere");
  await ui.button("Run on 2 workers …").click();
  await ui.confirm("Run on 2 workers", "production");
  await ended("Run command", "succeeded");
  await main().locator(".answers", { hasText: "2 workers" }).locator("pre", { hasText: "the same everywhere" }).waitFor();
  await ui.view(bucket, "catalog/allocations");
  await main().getByRole("searchbox").first().fill("app 127.0.0.2");
  await main().getByText("1 of 4").waitFor();
  await ui.view(bucket, "source/snapshots");
  await ui.button("Create a snapshot …").click();
  await dialog().getByLabel("Note").fill("before the night");
  await ui.confirm("Create a snapshot");
  await ended("Snapshot create", "succeeded");
  await row("before the night").getByRole("button", { name: "Restore …" }).click();
  await ui.confirm("Restore", "production");
  await ended("Snapshot restore", "succeeded");
  await ui.page.locator("#who button").click();
  await ui.page.getByRole("menuitem", { name: "Sign out" }).click();
  await ui.page.getByLabel("API token").waitFor();
  ui.checkPeace();
});
