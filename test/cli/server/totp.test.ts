import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { LocalServer, PROGRAM } from "../../../scripts/local-server.ts";
import { ops } from "../../helpers/command-line.ts";
import { certificateFor, send } from "../../helpers/http.ts";
import { readQr, rowsOfAscii } from "../../helpers/qr.ts";
import { writeServices } from "../../helpers/service.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { oathtoolCode } from "../../helpers/totp.ts";

const ENROLL = ["server", "totp-enroll"];

function fieldsOf(stdout: string): Record<string, string> {
  const lines = stdout.split("\n\n")[0]?.split("\n") ?? [];
  return Object.fromEntries(lines.map((line) => [line.slice(0, 8).trim(), line.slice(9)]));
}

test("CP-054 CP-056 CP-059 CP-060 CP-061 CP-064 CP-065 CP-066 CP-067 CP-068 CP-070 enrolling prints all that a phone needs", async (t) => {
  const cwd = temporaryFolder(t);
  const labels = ["--totp-issuer", "acme & co", "--totp-account", "a@b"];
  const { code, stdout, stderr } = await ops([...ENROLL, ...labels], { cwd });
  assert.deepEqual([code, stderr], [0, "wrote a new secret to ./server-totp.secret\n"]);
  assert.deepEqual(readdirSync(cwd), ["server-totp.secret"]);
  const secret = readFileSync(path.join(cwd, "server-totp.secret"), "utf8").trim();
  const { uri = "", ...fields } = fieldsOf(stdout);
  assert.deepEqual(fields, { issuer: "acme & co", account: "a@b", secret });
  const { protocol, pathname, searchParams } = new URL(uri);
  assert.deepEqual([protocol, pathname], ["otpauth:", "/acme%20%26%20co:a@b"]);
  assert.deepEqual([searchParams.get("secret"), searchParams.get("issuer")], [secret, "acme & co"]);
  const drawing = stdout.slice(stdout.indexOf("\n\n") + 2);
  assert.equal(readQr(t, rowsOfAscii(drawing)), uri);
});

test("CP-055 CP-057 CP-062 CP-063 T-63 labels have defaults; a second time shows the same secret; the file is private under any umask", async (t) => {
  const file = path.join(temporaryFolder(t), "totp");
  const enroll = () =>
    spawnSync("sh", ["-c", 'umask 0; exec "$@"', "sh", process.execPath, PROGRAM, ...ENROLL, "--totp-secret-file", file], {
      encoding: "utf8",
    });
  const first = enroll();
  assert.equal(statSync(file).mode & 0o777, 0o600);
  const bytes = readFileSync(file);
  const second = enroll();
  assert.equal(second.stdout, first.stdout);
  assert.deepEqual(readFileSync(file), bytes);
  assert.match(second.stderr, /^the secret is that of .*totp\n$/);
  const { issuer, account, uri } = fieldsOf(first.stdout);
  assert.deepEqual([issuer, account], ["ops", `ops-server@${hostname()}`]);
  assert.match(uri ?? "", /[?&]issuer=ops(&|$)/);
});

test("enrolling as JSON prints the four fields and no drawing", async (t) => {
  const { stdout } = await ops([...ENROLL, "--json"], { cwd: temporaryFolder(t) });
  assert.deepEqual(Object.keys(JSON.parse(stdout)), ["issuer", "account", "secret", "uri"]);
});

for (const label of ["", "a:b", "a\nb", "x".repeat(201), "ü".repeat(40)])
  test(`a label ${JSON.stringify(label.slice(0, 8))} of ${label.length} is wrong usage, and nothing is written`, async (t) => {
    const cwd = temporaryFolder(t);
    for (const flag of ["--totp-issuer", "--totp-account"]) {
      const { code, stderr } = await ops([...ENROLL, flag, label], { cwd });
      assert.equal(code, 2);
      assert.match(stderr, new RegExp(`^ops: ${flag} .*: expected a short line of text without a colon\n$`));
    }
    assert.deepEqual(readdirSync(cwd), []);
  });

test("a secret file that is something else is refused and kept", async (t) => {
  const cwd = temporaryFolder(t);
  writeFileSync(path.join(cwd, "server-totp.secret"), "hello\n", { mode: 0o600 });
  const { code, stdout, stderr } = await ops(ENROLL, { cwd });
  assert.deepEqual([code, stdout], [2, ""]);
  assert.match(stderr, /^ops: Cannot use the TOTP secret file .\/server-totp\.secret: expected one line of base32/);
  assert.equal(readFileSync(path.join(cwd, "server-totp.secret"), "utf8"), "hello\n");
});

test("CP-058 --totp-account belongs to enrolling alone; no flag sets a timeout", async () => {
  const { stdout: server } = await ops(["server", "--help"]);
  const { stdout: enroll } = await ops([...ENROLL, "--help"]);
  assert.deepEqual([/--totp-account/.test(server), /--totp-account/.test(enroll)], [false, true]);
  assert.doesNotMatch(server, /timeout/i);
  for (const flag of ["--totp-account", "--read-timeout"]) assert.equal((await ops(["server", flag, "1"])).code, 2);
});

test("a start with a weak mode is refused in one line that says what to do, and makes no root; a short token is a warning", async (t) => {
  const folder = temporaryFolder(t);
  const root = path.join(folder, "root");
  const tokenFile = path.join(folder, "token");
  writeFileSync(tokenFile, "0123456789abcde\n", { mode: 0o644 });
  const start = () => ops(["server", "--root", root, "--token-file", tokenFile, "--addr", "127.0.0.1:0"]);
  const { code, stdout, stderr } = await start();
  assert.deepEqual([code, stdout, existsSync(root)], [2, "", false]);
  assert.equal(
    stderr,
    `ops: --token-file ${tokenFile} cannot be used: its mode 644 lets others use it: chmod 640 ${tokenFile}\n`,
  );
  const server = await LocalServer.start(root, { token: "0123456789abcde" });
  t.after(() => server.stop("SIGKILL"));
  await until("the warning", () => / warning: the API token has under 16 characters/.test(server.log));
});

test("CP-051 T-61 T-62 a start that is refused says why in one line, and makes neither root nor listener", async (t) => {
  const folder = temporaryFolder(t);
  const root = path.join(folder, "root");
  const { certFile, keyFile } = await certificateFor(t);
  const tls = ["--tls-cert", certFile, "--tls-key", keyFile];
  const missing = path.join(folder, "missing");
  const env = { OPS_SERVE_TOKEN: "x" };
  for (const [flags, more] of [
    [["--totp-secret-file", missing], {}],
    [[...tls, "--totp-secret-file", missing], {}],
    [tls, { OPS_SERVE_TOTP_SECRET_FILE: missing }],
    [["--addr", "0:0"], {}],
    [["--addr", ":0"], {}],
    [["--log-format", "xml"], {}],
  ] as const) {
    const { code, stdout, stderr } = await ops(["server", "--root", root, ...flags], { env: { ...env, ...more } });
    assert.deepEqual([code, stdout], [2, ""]);
    assert.match(stderr, /^ops: [^\n]+\n$/);
  }
  assert.ok(!existsSync(root));
});

interface Secured {
  server: LocalServer;
  certFile: string;
  ca: Buffer;
  code(at?: number): string;
  call(method: string, target: string, headers?: Record<string, string>, body?: unknown): Promise<Response>;
}

/** The real program with TLS and a secret that it enrolled itself. */
async function secured(t: TestContext, flags: string[] = []): Promise<Secured> {
  const folder = temporaryFolder(t);
  const { certFile, keyFile } = await certificateFor(t);
  const file = path.join(folder, "totp");
  await ops([...ENROLL, "--totp-secret-file", file]);
  const server = await LocalServer.start(path.join(folder, "root"), {
    env: { OPS_SERVE_TOTP_SECRET_FILE: file },
    flags: ["--tls-cert", certFile, "--tls-key", keyFile, ...flags],
  });
  t.after(() => server.stop("SIGKILL"));
  const ca = readFileSync(certFile);
  return {
    server,
    certFile,
    ca,
    code: (at) => oathtoolCode(readFileSync(file, "utf8").trim(), at),
    call: (method, target, headers, body) =>
      send(server.url + target, {
        method,
        ca,
        body: body === undefined ? undefined : JSON.stringify(body),
        headers: {
          authorization: `Bearer ${server.token}`,
          ...(body !== undefined && { "content-type": "application/json" }),
          ...headers,
        },
      }),
  };
}

test("T-08 CP-067 CP-203 push verifies a code once and keeps its session; without a code it is told to give one", async (t) => {
  const { server, certFile, code, call } = await secured(t);
  const created = await call("POST", "/api/buckets", { "x-ops-totp": code() }, { project: "p", name: "n" });
  assert.equal(created.status, 201);
  const { id } = (await created.json()) as { id: string };
  const dir = temporaryFolder(t);
  writeServices(dir, path.join(dir, "workers"), { version: "1.0.0" });
  const env = { OPS_SERVE_TOKEN: server.token };
  const push = (...more: string[]) =>
    ops(["push", server.url, "--bucket", id, "--dir", dir, "--ca-file", certFile, ...more], { env });
  const without = await push();
  assert.equal(without.code, 1);
  assert.match(without.stderr, /the server asks for a TOTP code: give a fresh one with --totp, or sign in with `ops login`$/m);
  const later = code(Date.now() + 30_000);
  const done = await push("--totp", later);
  assert.equal(done.code, 0, done.stderr);
  const again = await push("--totp", later);
  assert.equal(again.code, 1);
  assert.match(again.stderr, /the TOTP code is wrong, too old or was used before$/m);
  const typed = await push("--totp", "12345");
  assert.deepEqual([typed.code, typed.stderr], [2, "ops: Cannot use the TOTP code: expected 6 digits\n"]);
});

test("CP-512 HUP makes the server show a new certificate and take a new token; a pair that does not fit is told, and the old one stays", async (t) => {
  const folder = temporaryFolder(t);
  const [first, second] = [await certificateFor(t), await certificateFor(t)];
  const [cert, key] = [path.join(folder, "cert.pem"), path.join(folder, "key.pem")];
  const install = (certFile: string, keyFile: string) => {
    copyFileSync(certFile, cert);
    copyFileSync(keyFile, key);
  };
  install(first.certFile, first.keyFile);
  const tokenFile = path.join(folder, "token");
  writeFileSync(tokenFile, "token-of-the-first-day", { mode: 0o600 });
  const flags = ["--tls-cert", cert, "--tls-key", key, "--token-file", tokenFile];
  const server = await LocalServer.start(path.join(folder, "root"), { flags });
  t.after(() => server.stop("SIGKILL"));
  const shows = async ({ certFile }: { certFile: string }) => {
    const ca = readFileSync(certFile);
    return await send(`${server.url}/`, { ca }).then(
      ({ status }) => status,
      () => undefined,
    );
  };
  assert.deepEqual([await shows(first), await shows(second)], [200, undefined]);
  install(second.certFile, first.keyFile);
  server.process.kill("SIGHUP");
  await until("the refusal", () => /the certificate in use stays: .* does not belong to/.test(server.log));
  assert.deepEqual([await shows(first), await shows(second)], [200, undefined]);
  install(second.certFile, second.keyFile);
  writeFileSync(tokenFile, "token-of-the-next-day");
  server.process.kill("SIGHUP");
  await until("the new certificate", () => /the certificate was read again/.test(server.log));
  assert.deepEqual([await shows(first), await shows(second)], [undefined, 200]);
  await until("the new token", () => /the API token was read again/.test(server.log));
  await server.stop();
  assert.equal(server.process.exitCode, 0);
});

test("without TLS, HUP stops the server as the end of its terminal does", async (t) => {
  const server = await LocalServer.start(path.join(temporaryFolder(t), "root"));
  t.after(() => server.stop("SIGKILL"));
  await server.stop("SIGHUP");
  assert.deepEqual([server.process.exitCode, server.process.signalCode], [0, null]);
});

test("with --log-format json every line of the log is an object, those of requests with their facts", async (t) => {
  const { server, code, call } = await secured(t, ["--log-format", "json"]);
  const reply = await call("GET", "/api/buckets?x=1", { "x-ops-totp": code() });
  // The line is written once the answer is out, so a signal sent now could be first.
  await until("the line of the request", () => server.log.includes("/api/buckets"));
  await server.stop();
  const lines = server.log
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  const { time, duration_ms, ...facts } = lines.find(({ method }) => method !== undefined);
  assert.match(time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.equal(typeof duration_ms, "number");
  assert.deepEqual(facts, {
    request_id: reply.headers.get("x-request-id"),
    peer: "127.0.0.1",
    method: "GET",
    route: "/api/buckets",
    path: "/api/buckets",
    status: 400,
    authenticated: "bearer+totp",
    name: "root",
    size_bytes: Number(reply.headers.get("content-length")),
  });
  assert.match(lines.at(-1).message, /^stopping: /);
});

test("in text every line of the log begins with its time", async (t) => {
  const server = await LocalServer.start(path.join(temporaryFolder(t), "root"), { flags: ["--log-format", "text"] });
  t.after(() => server.stop("SIGKILL"));
  await server.call("GET", "/api/buckets");
  await until("the line of the request", () => server.log.includes("/api/buckets"));
  await server.stop();
  const lines = server.log.trim().split("\n");
  for (const line of lines) assert.match(line, /^\d{4}-\d\d-\d\dT[\d:.]+Z /);
  assert.match(
    lines.find((line) => line.includes("/api/buckets")) ?? "",
    /^\d{4}-\d\d-\d\dT[\d:.]+Z GET \/api\/buckets 200 bytes=\d+ ms=\d+ auth=bearer name=root peer=127\.0\.0\.1 request=\S+$/,
  );
});
