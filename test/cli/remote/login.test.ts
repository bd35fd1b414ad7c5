import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { chmodSync, copyFileSync, existsSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { openServer } from "../../../lib/cli/remote/target.ts";
import type { Ended } from "../../../scripts/local-server.ts";
import { ops } from "../../helpers/command-line.ts";
import { certificateFor } from "../../helpers/http.ts";
import { TestServer, TOKEN } from "../../helpers/server.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { opsAtTerminal } from "../../helpers/terminal.ts";
import { oathtoolCode, SECRET, SECRET_TEXT } from "../../helpers/totp.ts";

const CODE_MS = 30_000;

/** A server with one bucket, and a person whose sessions lie in a folder of this test. */
async function setUp(t: TestContext, config: Parameters<typeof TestServer.start>[1] = {}) {
  const server = await TestServer.start(t, config);
  await server.createBucket();
  const cwd = temporaryFolder(t);
  const env = { XDG_STATE_HOME: path.join(cwd, "state"), OPS_SERVE_TOKEN: "", OPS_SERVER: server.url, OPS_BUCKET: "" };
  const name = createHash("sha256").update(server.url).digest("hex").slice(0, 32);
  const file = path.join(cwd, "state/ops/logins", `${name}.json`);
  const run = (args: string[], more: { input?: string; env?: Record<string, string> } = {}): Promise<Ended> =>
    ops(args, { cwd, ...more, env: { ...env, ...more.env } });
  return { server, cwd, env, file, run };
}

/** With TLS and a second factor, which knows the time of the server. */
async function setUpSecured(t: TestContext) {
  const tls = await certificateFor(t);
  const rig = await setUp(t, { tls, totp: { secret: SECRET, sessionMs: 60_000 } });
  copyFileSync(tls.certFile, path.join(rig.cwd, "ca.crt"));
  /** A code that nobody has used. */
  const code = () => {
    rig.server.aheadMs += CODE_MS;
    return oathtoolCode(SECRET_TEXT, Date.now() + rig.server.aheadMs);
  };
  return { ...rig, code };
}

test("ops login keeps a session, not the token, for the user alone; later commands need nothing else; ops logout ends it", async (t) => {
  const { server, file, run } = await setUp(t);
  const before = await run(["info"]);
  assert.deepEqual([before.code, before.stdout], [2, ""]);
  assert.match(
    before.stderr,
    /^ops: no token for http:\/\/127\.0\.0\.1:\d+: sign in once with `ops login .*`, set OPS_SERVE_TOKEN/,
  );
  const signedIn = await run(["login"], { input: `${TOKEN}\n` });
  assert.deepEqual([signedIn.code, signedIn.stderr], [0, ""]);
  assert.match(
    signedIn.stdout,
    /^signed in to http:\/\/127\.0\.0\.1:\d+ as root until 20\S+Z; the session is kept in .*\/state\/ops\/logins\n$/,
  );
  const modes = [file, path.dirname(file)].map((one) => statSync(one).mode & 0o777);
  assert.deepEqual(modes, [0o600, 0o700]);
  const kept = readFileSync(file, "utf8");
  assert.ok(!kept.includes(TOKEN));
  assert.match(kept, /ops_server_session=/);
  assert.equal((await run(["info"])).code, 0);
  const cookie = JSON.parse(kept).cookies;
  const probe = () => server.call("GET", "/api/buckets", { authorization: null, headers: { cookie } });
  assert.equal((await probe()).status, 200);
  assert.equal((await run(["logout"])).stdout, `signed out of ${server.url}\n`);
  assert.equal((await probe()).status, 401, "the session itself is over");
  assert.ok(!existsSync(file));
  const again = await run(["logout"]);
  assert.deepEqual([again.code, again.stderr], [1, `ops: there is no session with ${server.url}\n`]);
});

test("a file of sessions that others can read is not used, and the sentence says what to do", async (t) => {
  const { file, run } = await setUp(t);
  await run(["login"], { input: TOKEN });
  chmodSync(file, 0o640);
  const { code, stderr } = await run(["info"]);
  assert.equal(code, 2);
  assert.equal(stderr, `ops: the session in ${file} cannot be used: its mode 640 lets others use it: chmod 600 ${file}\n`);
  const { code: withToken } = await run(["info"], { env: { OPS_SERVE_TOKEN: TOKEN } });
  assert.equal(withToken, 0, "whoever has the token needs no session");
  assert.equal((await run(["login"], { input: TOKEN })).code, 0, "the next login makes another file");
  assert.equal(statSync(file).mode & 0o777, 0o600);
});

test("a session that the server has ended is told with the command that opens a new one", async (t) => {
  const { server, run } = await setUp(t);
  await run(["login"], { env: { OPS_SERVE_TOKEN: TOKEN } });
  server.aheadMs += 30 * 86_400_000;
  const { code, stderr } = await run(["info"]);
  assert.equal(code, 1);
  assert.equal(stderr, `ops: the session with ${server.url} has ended: sign in with \`ops login ${server.url}\`\n`);
});

test("a session that has ended, or lacks its code, is signed out of all the same; one that cannot be ended is told", async (t) => {
  const { server, file, run } = await setUp(t);
  const login = () => run(["login"], { env: { OPS_SERVE_TOKEN: TOKEN } });
  await login();
  server.aheadMs += 30 * 86_400_000;
  const out = { code: 0, stdout: `signed out of ${server.url}\n`, stderr: "" };
  assert.deepEqual([await run(["logout"]), existsSync(file)], [out, false]);
  await login();
  await server.stop();
  const left = await run(["logout"]);
  assert.deepEqual([left.code, left.stdout, existsSync(file)], [1, "", false]);
  assert.match(left.stderr, /; the session is forgotten here, and open on the server until 20\S+Z\n$/);

  const secured = await setUpSecured(t);
  const words = ["login", "--ca-file", "ca.crt", "--totp", secured.code()];
  assert.equal((await secured.run(words, { env: { OPS_SERVE_TOKEN: TOKEN } })).code, 0);
  secured.server.aheadMs += 90_000;
  assert.deepEqual(await secured.run(["logout"]), { ...out, stdout: `signed out of ${secured.server.url}\n` });
});

test("a login that is refused keeps nothing", async (t) => {
  const { server, file, run } = await setUp(t);
  const wrong = await run(["login"], { input: "wrong" });
  assert.deepEqual([wrong.code, wrong.stderr], [1, "ops: the API token is wrong\n"]);
  const none = await run(["login"], { input: "" });
  assert.deepEqual([none.code, /^ops: no token: type it/.test(none.stderr)], [2, true]);
  const two = await run(["login", server.url, "--server", server.url], { input: TOKEN });
  assert.deepEqual([two.code, two.stderr], [2, "ops: give base_url or --server, not both\n"]);
  assert.ok(!existsSync(file));
});

test("with TLS and TOTP one login opens all that later commands need, from any folder; --totp renews the code's session", async (t) => {
  const { server, cwd, env, file, run, code } = await setUpSecured(t);
  writeFileSync(path.join(cwd, "token"), TOKEN, { mode: 0o600 });
  const untrusted = await run(["login", "--token-file", "token"]);
  assert.match(untrusted.stderr, /its certificate is not trusted \(.*\); name the CA it is from with --ca-file\n$/);
  const login = ["login", "--token-file", "token", "--ca-file", "ca.crt"];
  const missing = await run(login);
  assert.deepEqual([missing.code, existsSync(file)], [1, false]);
  assert.match(missing.stderr, /^ops: the server asks for a TOTP code: give a fresh one with --totp/);
  const wrong = await run([...login, "--totp", "000000"]);
  assert.deepEqual([wrong.code, /the TOTP code is wrong/.test(wrong.stderr)], [1, true]);
  const given = code();
  assert.equal((await run([...login, "--totp", given])).code, 0);
  assert.ok(!readFileSync(file, "utf8").includes(given));
  const elsewhere = () => ops(["info"], { cwd: temporaryFolder(t), env });
  assert.deepEqual([(await elsewhere()).stderr, (await run(["info"])).code], ["", 0]);
  // The session of the code is shorter than that of the token.
  server.aheadMs += 90_000;
  const ended = await run(["info"]);
  assert.deepEqual([ended.code, /asks for a TOTP code/.test(ended.stderr)], [1, true]);
  assert.equal((await run(["info", "--totp", code()])).code, 0);
  assert.equal((await elsewhere()).code, 0, "the next command needs none");
  assert.equal((await run(["info", "--totp", "12345"])).stderr, "ops: Cannot use the TOTP code: expected 6 digits\n");
  assert.equal((await run(["logout"])).code, 0);
});

test("at a terminal the token is asked for without showing it, and a code where one is needed", async (t) => {
  const { server, cwd, env, code } = await setUpSecured(t);
  const given = code();
  const signedIn = await opsAtTerminal(
    ["login", "--ca-file", "ca.crt"],
    [
      [`API token of ${server.url}: `, `${TOKEN}\r`],
      ["TOTP code: ", `${given}\r`],
    ],
    { cwd, env },
  );
  assert.equal(signedIn.code, 0, signedIn.shown);
  assert.match(signedIn.shown, /signed in to /);
  assert.ok(!signedIn.shown.includes(TOKEN));
  server.aheadMs += 90_000;
  const asked = await opsAtTerminal(["info"], [["TOTP code: ", `${code()}\r`]], { cwd, env });
  assert.deepEqual([asked.code, asked.shown.includes("TOTP code: ")], [0, true], asked.shown);
  const next = await opsAtTerminal(["info"], [], { cwd, env });
  assert.deepEqual([next.code, next.shown.includes("TOTP code: ")], [0, false], next.shown);
  const left = await opsAtTerminal(["login", "--ca-file", "ca.crt"], [["API token", "\x03"]], { cwd, env });
  assert.notEqual(left.code, 0);
});

test("a host that is not this machine gets nothing without TLS", async (t) => {
  const { run } = await setUp(t);
  for (const args of [
    ["login", "http://ops.example"],
    ["info", "--server", "http://192.168.0.1:9090"],
  ]) {
    const { code, stderr } = await run(args, { input: TOKEN });
    assert.deepEqual([code, /without TLS the token would travel in the clear/.test(stderr)], [2, true], stderr);
  }
});

test("logins to several servers at the same time keep each its own session, also where the home folder is a link", async (t) => {
  const rigs = await Promise.all([setUp(t), setUp(t), setUp(t)]);
  const home = path.join(temporaryFolder(t), "link");
  symlinkSync(temporaryFolder(t), home);
  const env = { XDG_STATE_HOME: home };
  const done = await Promise.all(rigs.map(({ run }) => run(["login"], { input: TOKEN, env })));
  assert.deepEqual(
    done.map(({ code, stderr }) => [code, stderr]),
    rigs.map(() => [0, ""]),
  );
  for (const { run } of rigs) assert.equal((await run(["info"], { env })).code, 0);
});

test("a folder's ops.conf does not choose the certificates that a session is shown to", async (t) => {
  const { server, cwd, env, run, code } = await setUpSecured(t);
  const token = { OPS_SERVE_TOKEN: TOKEN };
  assert.equal((await run(["login", "--ca-file", "ca.crt", "--totp", code()], { env: token })).code, 0);
  copyFileSync(path.join(cwd, "ca.crt"), path.join(cwd, "other.crt"));
  const inFolder = (file: string) => {
    writeFileSync(path.join(cwd, "ops.conf"), `[server]\nurl = "${server.url}"\nca_file = "${file}"\n`);
    return ops(["info"], { cwd, env: { ...env, OPS_SERVER: "" } });
  };
  assert.equal((await inFolder("ca.crt")).code, 0);
  const refused = await inFolder("other.crt");
  assert.equal(refused.code, 2);
  assert.match(
    refused.stderr,
    /^ops: ca_file of \[server\] is not that of `ops login`: sign in with `ops login https:.* --ca-file .*other\.crt`\n$/,
  );
});

test("a code that was given with the token is kept for the next commands", async (t) => {
  const { run, code } = await setUpSecured(t);
  const env = { OPS_SERVE_TOKEN: TOKEN };
  const first = await run(["info", "--ca-file", "ca.crt", "--totp", code()], { env });
  assert.deepEqual([first.code, first.stderr], [0, ""]);
  assert.equal((await run(["info"], { env })).code, 0);
});

test("a code of somebody who has signed out meanwhile opens no session for later commands", async (t) => {
  const { server, cwd, file, run, code } = await setUpSecured(t);
  const caFile = path.join(cwd, "ca.crt");
  assert.equal((await run(["login", "--ca-file", caFile, "--totp", code()], { input: TOKEN })).code, 0);
  const outer = { ...process.env };
  t.after(() => {
    process.env = outer;
  });
  Object.assign(process.env, { XDG_STATE_HOME: path.join(cwd, "state"), OPS_SERVE_TOKEN: "" });
  const unset = { bucket: undefined, folderCa: undefined, tokenFile: undefined, totp: undefined };
  const client = await openServer({ address: server.url, caFile, fromFolder: false, ...unset });
  rmSync(file);
  await client.verifyTotp(code());
  assert.equal(existsSync(file), false);
});

test("where nothing can be kept, a code with the token is good for its command", async (t) => {
  const { cwd, run, code } = await setUpSecured(t);
  writeFileSync(path.join(cwd, "file"), "");
  const env = { OPS_SERVE_TOKEN: TOKEN, XDG_STATE_HOME: path.join(cwd, "file") };
  const { code: ended, stderr } = await run(["info", "--ca-file", "ca.crt", "--totp", code()], { env });
  assert.deepEqual([ended, stderr], [0, ""]);
});
