import assert from "node:assert/strict";
import { readdirSync, statSync } from "node:fs";
import { chmod, copyFile, mkdir, symlink, writeFile } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { type ServerFlags, serverConfig, tokenWarning, totpWarning } from "../../lib/server/config.ts";
import { certificateFor } from "../helpers/http.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { SECRET, SECRET_TEXT } from "../helpers/totp.ts";

/** Flags that start, below a folder of the test's own. */
function valid(t: TestContext): { folder: string; flags: ServerFlags } {
  const folder = temporaryFolder(t);
  return { folder, flags: { root: path.join(folder, "a", "root"), token: "x" } };
}

async function refused(flags: ServerFlags, message: RegExp, env: NodeJS.ProcessEnv = {}): Promise<void> {
  await assert.rejects(serverConfig(flags, env), (error: Error & { code?: string }) => {
    assert.equal(error.code, "usage");
    assert.match(error.message, message);
    assert.doesNotMatch(error.message, /\n/);
    return true;
  });
}

test("CP-007 CP-033 CP-037 without further flags it is 127.0.0.1:9090, frozen, and nothing is created", async (t) => {
  const { folder, flags } = valid(t);
  const config = await serverConfig(flags, {});
  assert.deepEqual(config, { root: flags.root, host: "127.0.0.1", port: 9090, token: "x" });
  assert.ok(Object.isFrozen(config));
  assert.deepEqual(readdirSync(folder), []);
});

test("CP-034 CP-038 root and token come from the environment where no flag is given, and leave it", async (t) => {
  const { flags } = valid(t);
  const env = { OPS_SERVE_ROOT: flags.root, OPS_SERVE_TOKEN: "from-env", PATH: "/bin" };
  const config = await serverConfig({}, env);
  assert.deepEqual([config.root, config.token], [flags.root, "from-env"]);
  assert.deepEqual(env, { PATH: "/bin" });
});

test("a flag beats a file, which beats a variable", async (t) => {
  const { folder, flags } = valid(t);
  const tokenFile = path.join(folder, "token");
  await writeFile(tokenFile, "from-file\n", { mode: 0o600 });
  const tokenWith = async (more: ServerFlags) =>
    (await serverConfig({ ...flags, ...more }, { OPS_SERVE_TOKEN: "from-env", OPS_SERVE_ROOT: "/nowhere" })).token;
  assert.equal(await tokenWith({ token: "from-flag", "token-file": tokenFile }), "from-flag");
  assert.equal(await tokenWith({ token: undefined, "token-file": tokenFile }), "from-file");
  assert.equal(await tokenWith({ token: undefined }), "from-env");
});

test("the environment loses the server's variables even when the start is refused", async () => {
  const env = { OPS_SERVE_TOKEN: "secret" };
  await refused({ addr: "nonsense" }, /--addr/, env);
  assert.deepEqual(env, {});
});

test("CP-039 a start without a token, or with one that no client could send, is refused", async (t) => {
  const { folder, flags } = valid(t);
  const file = async (name: string, content: string) => {
    await writeFile(path.join(folder, name), content, { mode: 0o600 });
    return path.join(folder, name);
  };
  const bare = { ...flags, token: undefined };
  await refused(bare, /no API token: set OPS_SERVE_TOKEN/);
  await refused({ ...flags, token: "" }, /of --token is empty/, { OPS_SERVE_TOKEN: "right" });
  await refused(bare, /of OPS_SERVE_TOKEN is empty/, { OPS_SERVE_TOKEN: "" });
  await refused({ ...bare, "token-file": await file("empty", "\n") }, /empty is empty/, { OPS_SERVE_TOKEN: "right" });
  await refused({ ...bare, "token-file": path.join(folder, "missing") }, /--token-file .*missing cannot be read/);
  await refused({ ...bare, "token-file": await file("two", "a\nb\n") }, /blanks or characters/);
  await refused({ ...flags, token: "pässword" }, /not ASCII/);
});

test("a start without a root is refused", async (t) => {
  const { flags } = valid(t);
  await refused({ ...flags, root: undefined }, /no root: give --root or set OPS_SERVE_ROOT/);
  await refused({ ...flags, root: "" }, /no root/, { OPS_SERVE_ROOT: "/srv/x" });
});

for (const [id, sign] of [
  ["CP-081", "ops.conf"],
  ["CP-082", "data/ops.db"],
  ["CP-083", "bucket.json"],
] as const)
  test(`${id} a root that contains ${sign} is refused by name`, async (t) => {
    const { folder, flags } = valid(t);
    await mkdir(path.dirname(path.join(folder, sign)), { recursive: true });
    await writeFile(path.join(folder, sign), "");
    await refused({ ...flags, root: folder }, new RegExp(`is itself a bucket: it contains ${sign}`));
  });

test("a root that is a file, or below one, is refused", async (t) => {
  const { folder, flags } = valid(t);
  await writeFile(path.join(folder, "file"), "");
  await refused({ ...flags, root: path.join(folder, "file") }, /is not a folder/);
  await refused({ ...flags, root: path.join(folder, "file", "below") }, /Cannot use the root/);
});

const LAN = Object.values(networkInterfaces())
  .flat()
  .filter((one) => one && !one.internal && one.family === "IPv4")
  .map((one) => `${one?.address}:9090`);

for (const addr of [
  ...["0.0.0.0:9090", ":9090", "[::]:9090", "[::ffff:0.0.0.0]:9090", "[0:0:0:0:0:0:0:0]:9090"],
  ...["0:9090", "0.0:9090", "00000:9090", "0x0:9090", "0x00000000:9090", "000.000.000.000:9090"],
  ...["192.0.2.1:9090", "3221225985:9090", "0xc0000201:9090", "030000001001:9090", "192.513:9090"],
  ...["126.255.255.255:9090", "128.0.0.0:9090", "2147483648:9090"],
  ...["[2001:db8::1]:9090", "[fe80::1%lo]:9090", "[::2]:9090", "[::127.0.0.1]:9090", "[::ffff:c000:201]:9090"],
  ...["[64:ff9b::127.0.0.1]:9090", ...LAN],
])
  test(`T-61 CP-040 CP-041 CP-042 --addr ${addr} without TLS is refused`, async (t) => {
    await refused({ ...valid(t).flags, addr }, /can be reached from other hosts: give --tls-cert and --tls-key/);
  });

for (const [addr, host] of [
  ["127.0.0.1:0", "127.0.0.1"],
  ["127.0.0.2:9191", "127.0.0.2"],
  ["localhost:9191", "127.0.0.1"],
  ["[::1]:9191", "::1"],
  ["LOCALHOST:9191", "127.0.0.1"],
  ["127.255.255.254:9191", "127.255.255.254"],
  ["127.1:9191", "127.0.0.1"],
  ["2130706433:9191", "127.0.0.1"],
  ["0x7f000001:9191", "127.0.0.1"],
  ["0x7f.1:9191", "127.0.0.1"],
  ["017700000001:9191", "127.0.0.1"],
  ["[0:0:0:0:0:0:0:1]:9191", "0:0:0:0:0:0:0:1"],
  ["[::ffff:127.0.0.1]:9191", "::ffff:127.0.0.1"],
  ["[::ffff:7f00:1]:9191", "::ffff:7f00:1"],
  ["[::FFFF:127.0.0.2]:9191", "::FFFF:127.0.0.2"],
] as const)
  test(`T-61 CP-006 CP-043 --addr ${addr} is loopback and needs no TLS`, async (t) => {
    const config = await serverConfig({ ...valid(t).flags, addr }, {});
    assert.deepEqual([config.host, config.port, config.tls], [host, Number(addr.split(":").at(-1)), undefined]);
  });

for (const addr of ["", "9090", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "::1:9090", "[::1]", "[x]:1"])
  test(`--addr ${JSON.stringify(addr)} is refused as malformed`, async (t) => {
    await refused({ ...valid(t).flags, addr }, /--addr .*: expected HOST:PORT/);
  });

test("a host name that cannot be resolved is refused", async (t) => {
  await refused({ ...valid(t).flags, addr: "no such host:9090" }, /"no such host" cannot be resolved/);
});

test("CP-044 with a TLS pair any address may be bound", async (t) => {
  const files = await certificateFor(t);
  for (const [addr, host] of [
    ["0.0.0.0:9443", "0.0.0.0"],
    [":9443", ""],
  ] as const) {
    const flags = { ...valid(t).flags, addr, "tls-cert": files.certFile, "tls-key": files.keyFile };
    const config = await serverConfig(flags, {});
    assert.deepEqual([config.host, config.port, config.tls], [host, 9443, files]);
  }
});

test("CP-046 CP-047 a certificate without its key, or a key without its certificate, is refused", async (t) => {
  const { certFile, keyFile } = await certificateFor(t);
  await refused({ ...valid(t).flags, "tls-cert": certFile }, /--tls-cert is given without --tls-key/);
  await refused({ ...valid(t).flags, "tls-key": keyFile }, /--tls-key is given without --tls-cert/);
});

test("files that are no PEM pair are refused by name", async (t) => {
  const [one, other] = [await certificateFor(t), await certificateFor(t)];
  const { folder, flags } = valid(t);
  const missing = path.join(folder, "missing.pem");
  const withPair = (cert: string, key: string) => ({ ...flags, "tls-cert": cert, "tls-key": key });
  await refused(withPair(missing, one.keyFile), /--tls-cert .*missing.pem cannot be read/);
  await refused(withPair(one.certFile, folder), /--tls-key .* cannot be read/);
  await refused(withPair(one.keyFile, one.keyFile), /--tls-cert .* is not a PEM certificate/);
  const noKey = path.join(folder, "no-key.pem");
  await copyFile(one.certFile, noKey);
  await chmod(noKey, 0o600);
  await refused(withPair(one.certFile, noKey), /--tls-key .* is not an unencrypted PEM key/);
  await refused(withPair(one.certFile, other.keyFile), /does not belong to the certificate/);
});

/** Flags that start with TLS and, once it is added, TOTP. */
async function validTotp(t: TestContext): Promise<{ folder: string; flags: ServerFlags; file: string }> {
  const { certFile, keyFile } = await certificateFor(t);
  const { folder, flags } = valid(t);
  const file = path.join(folder, "secret");
  await writeFile(file, `${SECRET_TEXT}\n`, { mode: 0o600 });
  return { folder, flags: { ...flags, "tls-cert": certFile, "tls-key": keyFile }, file };
}

test("CP-048 CP-049 CP-053 a secret file, by flag or variable, enables TOTP; its sessions last 30 minutes", async (t) => {
  const { flags, file } = await validTotp(t);
  const env = { OPS_SERVE_TOTP_SECRET_FILE: "/nowhere" };
  const byFlag = await serverConfig({ ...flags, "totp-secret-file": file }, env);
  const byVariable = await serverConfig(flags, { OPS_SERVE_TOTP_SECRET_FILE: file });
  for (const { totp } of [byFlag, byVariable]) assert.deepEqual(totp, { secret: SECRET, sessionMs: 1_800_000 });
  assert.deepEqual(env, {});
  assert.ok(Object.isFrozen(byFlag.totp));
});

test("CP-050 T-62 without flag and variable TOTP is off, though server-totp.secret lies here", async (t) => {
  const { folder, flags } = await validTotp(t);
  await writeFile(path.join(folder, "server-totp.secret"), SECRET_TEXT);
  const before = process.cwd();
  process.chdir(folder);
  const config = await serverConfig(flags, {}).finally(() => process.chdir(before));
  assert.equal(config.totp, undefined);
});

for (const [text, sessionMs] of [
  ["5s", 5_000],
  ["1h30m", 5_400_000],
  ["90s", 90_000],
  ["168h", 604_800_000],
] as const)
  test(`CP-052 --totp-session-ttl ${text} is understood`, async (t) => {
    const { flags, file } = await validTotp(t);
    const config = await serverConfig({ ...flags, "totp-secret-file": file, "totp-session-ttl": text }, {});
    assert.equal(config.totp?.sessionMs, sessionMs);
  });

for (const text of ["", "0s", "-5m", "30", "500ms", "1.5s", "168h1s", "soon"])
  test(`--totp-session-ttl ${JSON.stringify(text)} is refused`, async (t) => {
    const { flags, file } = await validTotp(t);
    const totp = { ...flags, "totp-secret-file": file, "totp-session-ttl": text };
    await refused(totp, /^--totp-session-ttl .*expected whole seconds up to 168h, such as 30m/);
  });

test("CP-051 TOTP without TLS is refused, on loopback too, by flag and by variable", async (t) => {
  const { flags } = valid(t);
  const { file } = await validTotp(t);
  await refused({ ...flags, "totp-secret-file": file }, /^--totp-secret-file needs TLS, on loopback too/);
  const variable = { OPS_SERVE_TOTP_SECRET_FILE: file };
  await refused(flags, /^OPS_SERVE_TOTP_SECRET_FILE needs TLS/, variable);
});

test("T-62 a secret file that cannot be used refuses the start; TOTP is never silently off", async (t) => {
  const { folder, flags, file } = await validTotp(t);
  const missing = path.join(folder, "missing");
  await refused({ ...flags, "totp-secret-file": missing }, /secret file .*missing: it cannot be read/);
  await refused({ ...flags, "totp-secret-file": "" }, /^--totp-secret-file is empty/);
  await refused(flags, /^OPS_SERVE_TOTP_SECRET_FILE is empty/, { OPS_SERVE_TOTP_SECRET_FILE: "" });
  await assert.rejects(serverConfig(flags, { OPS_SERVE_TOTP_SECRET_FILE: file }, true), {
    code: "usage",
    message: /^ops serve has no TOTP, but /,
  });
  for (const [content, message] of [
    ["", /it is empty/],
    ["not base32!", /expected one line of base32/],
    ["GEZDGNBV", /it has 40 bits/],
  ] as const) {
    await writeFile(file, content);
    await refused({ ...flags, "totp-secret-file": file }, message);
  }
});

test("a flag of TOTP without the secret file is refused: it would be off", async (t) => {
  const { flags } = await validTotp(t);
  await refused({ ...flags, "totp-session-ttl": "30m" }, /^--totp-session-ttl is given, but TOTP is off/);
  await refused({ ...flags, "totp-issuer": "x" }, /^--totp-issuer is given, but TOTP is off/);
});

/** What is below a folder, with modes and times. */
function stateOf(folder: string): unknown[] {
  return readdirSync(folder, { recursive: true }).map((name) => {
    const { mode, mtimeMs, ctimeMs } = statSync(path.join(folder, String(name)));
    return [name, mode, mtimeMs, ctimeMs];
  });
}

test("a token file or TLS key that others may read or write refuses the start and touches nothing; its group may read it", async (t) => {
  const { certFile, keyFile } = await certificateFor(t);
  const { folder, flags } = valid(t);
  const tokenFile = path.join(folder, "token");
  await writeFile(tokenFile, "from-file\n");
  const fromFile = { ...flags, token: undefined, "token-file": tokenFile };
  const withTls = { ...flags, "tls-cert": certFile, "tls-key": keyFile };
  for (const mode of [0o604, 0o644, 0o666, 0o602]) {
    for (const file of [tokenFile, keyFile]) await chmod(file, mode);
    const before = stateOf(folder);
    await refused(fromFile, /^--token-file .*token cannot be used: its mode 6\d\d lets others use it: chmod 6[046]0 /);
    await refused(withTls, /^--tls-key .*key.pem cannot be used: its mode .*chmod 6[046]0 /);
    assert.deepEqual(stateOf(folder), before);
  }
  for (const mode of [0o640, 0o600, 0o400, 0o601]) {
    for (const file of [tokenFile, keyFile]) await chmod(file, mode);
    assert.equal((await serverConfig(fromFile, {})).token, "from-file");
    assert.ok((await serverConfig(withTls, {})).tls);
  }
});

test("T-62 a TOTP secret file that anybody but its owner may read or write refuses the start and touches nothing", async (t) => {
  const { folder, flags, file } = await validTotp(t);
  for (const mode of [0o640, 0o604, 0o620, 0o644]) {
    await chmod(file, mode);
    const before = stateOf(folder);
    const told = new RegExp(`secret file .*secret: its mode ${mode.toString(8)} lets others use it: chmod 600 `);
    await refused({ ...flags, "totp-secret-file": file }, told);
    assert.deepEqual(stateOf(folder), before);
  }
  await chmod(file, 0o400);
  assert.ok((await serverConfig({ ...flags, "totp-secret-file": file }, {})).totp);
});

test("a credential of systemd is a secret file though the mask of its access list looks like rights of the group", async (t) => {
  const { folder, flags, file } = await validTotp(t);
  const withTotp = { ...flags, "totp-secret-file": file };
  await chmod(file, 0o440);
  const env = { CREDENTIALS_DIRECTORY: folder, PATH: "/bin" };
  assert.ok((await serverConfig(withTotp, env)).totp);
  assert.deepEqual(env, { PATH: "/bin" });
  await refused(withTotp, /its mode 440 lets others use it/, { CREDENTIALS_DIRECTORY: path.join(folder, "other") });
  await chmod(file, 0o444);
  await refused(withTotp, /its mode 444 lets others use it/, { CREDENTIALS_DIRECTORY: folder });
});

test("the mode that counts is that of the file behind a link", async (t) => {
  const { folder, flags } = valid(t);
  const [tokenFile, link] = [path.join(folder, "token"), path.join(folder, "link")];
  await writeFile(tokenFile, "from-file\n", { mode: 0o600 });
  await symlink(tokenFile, link);
  const fromFile = { ...flags, token: undefined, "token-file": link };
  assert.equal((await serverConfig(fromFile, {})).token, "from-file");
  await chmod(tokenFile, 0o644);
  await refused(fromFile, /--token-file .*link cannot be used/);
});

test("a root that others may write refuses the start and touches nothing", async (t) => {
  const { folder, flags } = valid(t);
  const root = path.join(folder, "open");
  await mkdir(root);
  for (const mode of [0o777, 0o757, 0o1777]) {
    await chmod(root, mode);
    const before = stateOf(folder);
    await refused({ ...flags, root }, /^others may write the root .*open: chmod o-w /);
    assert.deepEqual(stateOf(folder), before);
  }
  await chmod(root, 0o775);
  assert.equal((await serverConfig({ ...flags, root }, {})).root, root);
});

test("T-62 a TOTP secret under 128 bits is worth a warning, one of 128 is not", async (t) => {
  const { flags, file } = await validTotp(t);
  const warningOf = async (secret: string) => {
    await writeFile(file, secret);
    return totpWarning(await serverConfig({ ...flags, "totp-secret-file": file }, {}));
  };
  assert.match((await warningOf("GEZDGNBVGY3TQOJQ")) ?? "", /^warning: the TOTP secret has 80 bits, 128 are advised/);
  assert.equal(await warningOf("GEZDGNBVGY3TQOJQGEZDGNBVGY"), undefined);
  assert.equal(totpWarning(await serverConfig(valid(t).flags, {})), undefined);
});

test("a token under 16 characters is worth a warning, one of 16 is not", async (t) => {
  const { flags } = valid(t);
  const warningOf = async (token: string) => tokenWarning(await serverConfig({ ...flags, token }, {}));
  assert.match((await warningOf("x".repeat(15))) ?? "", /^warning: the API token has under 16 characters/);
  assert.equal(await warningOf("x".repeat(16)), undefined);
});
