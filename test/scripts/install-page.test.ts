// The commands and files of docs/install.md, as they stand there.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";
import { freePorts } from "../../scripts/example.ts";
import { certificateFor, send } from "../helpers/http.ts";
import { mayMount, onMachine } from "../helpers/machine.ts";
import { TestServer, TOKEN } from "../helpers/server.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const PAGE = readFileSync(path.join(PROGRAM_ROOT, "docs", "install.md"), "utf8");

/** The fenced blocks of a language that hold a text, in the order of the page. */
function blocks(language: string, holding = ""): string[] {
  const found = [...PAGE.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].filter((one) => one[1] === language);
  const texts = found.map((one) => one[2] as string).filter((text) => text.includes(holding));
  assert.ok(texts.length > 0, `the page has no block of ${language} with ${holding}`);
  return texts;
}

test("the commands of the service work in their order: certificate, settings, examination, removal", { skip: !mayMount }, () => {
  const [first = ""] = blocks("sh", "cat /etc/ops/token");
  const [certificate = ""] = blocks("sh", "openssl req");
  const [settings = ""] = blocks("sh", "totp-enroll");
  const [examine = ""] = blocks("sh", "ops doctor --server");
  const [remove = ""] = blocks("sh", "ops server uninstall");
  const update = "ops server install --now\n";
  assert.ok(blocks("sh").includes(update), "the page has no update");
  const script = [first, certificate, settings, examine, update, remove].join("echo --\n");
  const told = onMachine(`mkdir -p /run/systemd/system\n${script}`).split("--\n");
  assert.match(told[0] ?? "", /\nsign in with the token: cat \/etc\/ops\/token\n[\w-]{43}\n$/);
  assert.match(told[1] ?? "", /^kept {5}\/etc\/ops\/token/m);
  assert.match(told[2] ?? "", /^made {5}\/etc\/systemd\/system\/ops\.service/m);
  assert.match(told[3] ?? "", /\n {2}ok +TOTP +160 bits\n/);
  assert.match(told[4] ?? "", /^kept {5}\/etc\/systemd\/system\/ops\.service/m);
  assert.match(told[5] ?? "", /^removed {2}\/etc\/systemd\/system\/ops\.service/);
  assert.doesNotMatch(told.join(""), /^(?:ops: |exit )/m);
});

test("behind the page's nginx one can sign in and make a change, and a page of another origin cannot", async (t) => {
  const { certFile, keyFile } = await certificateFor(t);
  const server = await TestServer.start(t, { tls: { certFile, keyFile } });
  const folder = temporaryFolder(t);
  const port = await freePorts(["127.0.0.1"], 1);
  const own: Record<string, string> = {
    "listen 443": `listen 127.0.0.1:${port}`,
    "https://127.0.0.1:9090": server.url,
    "/etc/ssl/certs/ops.pem": certFile,
    "/etc/ssl/private/ops.key": keyFile,
    "/etc/ops/tls.crt": certFile,
    "ops.example": "localhost",
  };
  const block = Object.entries(own).reduce((text, [from, to]) => text.replaceAll(from, to), blocks("nginx")[0] ?? "");
  const bodies = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${folder}/${name};`);
  const config = path.join(folder, "nginx.conf");
  const rest = `daemon off; pid ${folder}/pid; error_log stderr; events {}\nhttp { access_log off; ${bodies.join(" ")}\n${block}}\n`;
  writeFileSync(config, rest);
  const argv = ["-p", folder, "-e", "stderr", "-c", config];
  const checked = spawnSync("/usr/sbin/nginx", ["-t", ...argv], { encoding: "utf8" });
  assert.equal(checked.status, 0, checked.stderr);
  const nginx = spawn("/usr/sbin/nginx", argv, { stdio: "ignore" });
  t.after(async () => {
    nginx.kill("SIGTERM");
    await once(nginx, "exit");
  });
  const url = `https://localhost:${port}`;
  const ca = readFileSync(certFile);
  const call = (target: string, headers: Record<string, string>, body: object) =>
    send(url + target, {
      method: "POST",
      ca,
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
  await until("nginx answers", () =>
    send(url, { ca }).then(
      ({ status }) => status === 200,
      () => false,
    ),
  );
  const signedIn = await call("/api/auth/session", { authorization: `Bearer ${TOKEN}`, origin: url }, {});
  const cookie = signedIn.headers.get("set-cookie")?.split(";")[0] ?? "";
  assert.match(cookie, /=/, await signedIn.text());
  const change = (origin: string) =>
    call("/api/buckets", { cookie, origin, "x-ops-csrf": "1" }, { project: "shop", name: "production" });
  assert.equal((await change("https://elsewhere.example")).status, 403);
  assert.equal((await change(url)).status, 201);
});
