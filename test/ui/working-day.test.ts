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

const activity = () => ui.page.locator("#activity");
const ended = (kind: string, state: string) =>
  Promise.all([
    activity()
      .locator(".subject", { hasText: `${kind} in` })
      .waitFor(),
    activity().locator(".status", { hasText: state }).waitFor(),
  ]);
const part = (title: string) =>
  ui.page.locator("section.part", { has: ui.page.getByRole("heading", { name: title, exact: true }) });

test("a morning: sign in with a code, create a bucket, give it a key, watch a push", async () => {
  await ui.goTo("");
  await ui.page.getByLabel("API token").fill(server.token);
  await ui.button("Sign in").click();
  await ui.page.getByLabel("Code of your authenticator app").fill(await freshCode());
  await ui.button("Verify").click();
  await ui.button("Sign out").waitFor();
  await ui.button("Create bucket …").click();
  const dialog = ui.page.getByRole("dialog");
  await dialog.getByLabel("Project").fill("shop");
  await dialog.getByLabel("Name").fill("production");
  await ui.confirm("Create bucket");
  await ui.heading("Overview").waitFor();
  bucket = /buckets\/([0-9a-f-]{36})/.exec(ui.page.url())?.[1] ?? "";
  await ui.view(bucket, "source/ssh_key");
  const key = makeKey(base, "id");
  await ui.button("Upload key …").click();
  await dialog.getByLabel(/^Private key/).fill(readFileSync(key, "utf8"));
  await ui.confirm("Upload key");
  await ui.page.getByText("SHA256:").waitFor();
  write("1.0.0");
  await Promise.all([push(), activity().locator(".subject", { hasText: "push in shop / production" }).waitFor()]);
  await ended("push", "succeeded");
});

test("before noon: build, plan, deploy what was planned, and see it in the grid", async () => {
  await ui.view(bucket, "");
  await ui.button("Build").click();
  await ended("build", "succeeded");
  await ui.view(bucket, "deployments");
  await ui.button("Dry run").click();
  await ended("deploy", "succeeded");
  await part("Last plan").getByText("2 of 2 jobs would be rolled out").waitFor();
  await part("Last plan").locator("tr", { hasText: "base" }).getByText("start").first().waitFor();
  await part("Last plan").locator("pre.diff .added").first().waitFor();
  await ui.button("Deploy …").click();
  await ui.confirm("Deploy", "production");
  await part("Last deploy").locator("tr", { hasText: "base" }).getByText("changed").first().waitFor();
  await ended("deploy", "succeeded");
  await ui.view(bucket, "");
  assert.equal(await ui.page.locator(".grid .promoted").count(), 4);
});

test("at noon: a new version is pushed, its deploy hangs and is cancelled", async () => {
  write("1.1.0", `\t@while [ ! -f ${gate} ]; do sleep 0.05; done\n`);
  await push();
  await ui.view(bucket, "deployments");
  await ui.button("Deploy …").click();
  await ui.confirm("Deploy", "production");
  await ended("deploy", "running");
  await activity().getByRole("button", { name: "Cancel run" }).click();
  await ui.button("Yes, cancel it").click();
  await ended("deploy", "cancelled");
  await ui.view(bucket, "deployments/rollout");
  await ui.page.locator("tr", { hasText: "base" }).getByText("update").first().waitFor();
});

test("in the afternoon: a health check fails, and the source is rolled back", async () => {
  service.close();
  await ui.view(bucket, "jobs/base");
  await ui.button("Health check").click();
  await ended("health_check", "failed");
  assert.notEqual(await activity().locator(".why").textContent(), "");
  await ui.view(bucket, "source");
  await ui.link("Overview").waitFor();
  await ui.page.locator("tbody tr").nth(1).getByRole("link").first().click();
  await ui.page.getByText("page of 1.0.0").first().waitFor();
  await ui.button("Roll back to this …").click();
  await ui.confirm("Roll back to this", "production");
  await ended("rollback", "succeeded");
  await ui.page.locator("tbody tr").nth(1).getByText("current").waitFor();
});

test("in the evening: a command, the catalog, a snapshot and its restore, and sign out", async () => {
  await ui.view(bucket, "command");
  await ui.page.getByLabel(/^Command/).fill("echo the same everywhere");
  await ui.button("Run command …").click();
  await ui.confirm("Run command", "production");
  await ended("run_command", "succeeded");
  await part("Last command").getByText("2 workers").waitFor();
  await part("Last command").getByText("the same everywhere", { exact: true }).waitFor();
  await ui.view(bucket, "catalog/allocations");
  await ui.page.getByLabel("Filter Catalog: allocations").fill("app 127.0.0.2");
  await ui.page.getByText("1 of 4 rows").waitFor();
  await ui.view(bucket, "source/snapshots");
  await ui.button("Create snapshot …").click();
  await ui.page.getByRole("dialog").getByLabel(/^Note/).fill("before the night");
  await ui.confirm("Create snapshot");
  await ended("snapshot_create", "succeeded");
  await ui.page.locator("tr", { hasText: "before the night" }).getByRole("button", { name: "Restore …" }).click();
  await ui.confirm("Restore", "production");
  await ended("snapshot_restore", "succeeded");
  await ui.button("Sign out").click();
  await ui.page.getByLabel("API token").waitFor();
  ui.checkPeace();
});
