import assert from "node:assert/strict";
import { once } from "node:events";
import { chownSync, existsSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { TOKEN_ROLES } from "../../../lib/auth/access-file.ts";
import { PEOPLE_COMMANDS } from "../../../lib/cli/commands/people.ts";
import { asWhom } from "../../../lib/cli/remote/people.ts";
import { ops } from "../../helpers/command-line.ts";
import { TestServer, TOKEN } from "../../helpers/server.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { oathtoolCode } from "../../helpers/totp.ts";

const AT = "2026-01-01T00:00:00Z";

/** A server, and the command line of somebody without a session there; `as` is a token for one command. */
async function setUp(t: TestContext) {
  const server = await TestServer.start(t);
  const cwd = temporaryFolder(t);
  const plain = { XDG_STATE_HOME: path.join(cwd, "state"), OPS_SERVER: server.url, OPS_BUCKET: "", OPS_SERVE_TOKEN: "" };
  const run = (args: string[], { as, input }: { as?: string; input?: string } = {}) =>
    ops(args, {
      cwd,
      env: { ...plain, ...(as !== undefined && { OPS_SERVE_TOKEN: as }) },
      ...(input !== undefined && { input }),
    });
  const root = (...args: string[]) => run(args, { as: TOKEN });
  return { server, cwd, run, root };
}

test("the roles of ops tokens create are those that a token can have", () => {
  const create = PEOPLE_COMMANDS.find(({ name }) => name === "tokens create");
  assert.deepEqual(create?.flags?.find(({ name }) => name === "role")?.choices, [...TOKEN_ROLES]);
});

test("CP-505 CP-510 ops tokens create prints the token alone to stdout; list and revoke show and end it", async (t) => {
  const { server, run, root } = await setUp(t);
  const bucket = await server.createBucket({ project: "shop", name: "live" });
  assert.match((await root("tokens")).stdout, /^there is no token but the server's own/);
  const made = await root("tokens", "create", "ci", "--role", "deploy", "--bucket", "shop/live", "--expires", "90d");
  assert.equal(made.code, 0, made.stderr);
  assert.match(made.stdout, /^ops_[0-9a-f]{72}\n$/);
  assert.match(made.stderr, new RegExp(`^name +ci\nrole +deploy\nbuckets +${bucket.id}\nexpires +20\\S+Z\ntotp +as the server`));
  assert.match(made.stderr, /shown only now/);
  assert.ok(!made.stderr.includes(made.stdout.trim()));
  const as = made.stdout.trim();
  const listed = await root("tokens", "list");
  assert.match(listed.stdout, /^name +role +buckets +expires +last used +totp +made by\nci +deploy +.*never +common +root\n$/);
  assert.ok(!listed.stdout.includes(as));
  const [item] = JSON.parse((await root("tokens", "--json")).stdout);
  assert.deepEqual([item.name, item.buckets], ["ci", [bucket.id]]);
  const left = Date.parse(item.expires_at) - Date.parse(item.created_at);
  assert.equal(left, 90 * 86_400_000);
  const who = await run(["whoami"], { as });
  assert.match(who.stdout, /^name +ci\nrole +deploy\nbuckets +\S+\nexpires +20\S+\nby +the token, from 127\.0\.0\.1\n$/);
  const refused = await run(["tokens", "create", "eve", "--role", "admin"], { as });
  assert.deepEqual([refused.code, refused.stderr], [1, 'ops: this needs the role admin; the token "ci" has deploy\n']);
  assert.deepEqual((await root("tokens", "revoke", "CI")).code, 0);
  const after = await run(["whoami"], { as });
  assert.deepEqual([after.code, after.stderr], [1, "ops: the API token is wrong\n"]);
});

test("CP-508 CP-510 ops login with a named token says who one is; ops sessions lists and ends the session", async (t) => {
  const { server, run, root } = await setUp(t);
  await server.createBucket({ project: "shop", name: "live" });
  const { token } = await server.makeToken({ name: "ada", role: "operate" });
  const signedIn = await run(["login"], { input: `${token}\n` });
  assert.match(signedIn.stdout, /^signed in to http:\S+ as ada \(operate\) until 20/);
  assert.match((await run(["whoami"])).stdout, /^name +ada\nrole +operate\nbuckets +all\nexpires +never\nby +a session/);
  const status = await run(["status", "--bucket", "shop/live"]);
  assert.match(status.stdout, /^bucket +shop\/live on http:\S+ as ada \(operate\)$/m, status.stderr);
  const own = await run(["sessions"]);
  assert.match(own.stdout, /^id +name +from +opened +last used +ends +browser\n\S+ +ada \(this one\) +127\.0\.0\.1 /);
  const [, shown = ""] = /\n(\S+) /.exec(own.stdout) ?? [];
  const missing = await root("sessions", "end", "nothing-of-the-kind");
  assert.deepEqual([missing.code, /there is no session/.test(missing.stderr)], [1, true]);
  const ended = await root("sessions", "end", shown);
  assert.match(ended.stdout, /^the session \S+ of ada has ended\n$/);
  const after = await run(["whoami"]);
  assert.equal(after.code, 1);
  assert.match(after.stderr, /sign in/);
});

test("an older server does not say who one is; ids that begin alike are not ended", async (t) => {
  const session = { name: "ada", address: "127.0.0.1", agent: "ops", current: false };
  const times = { created_at: AT, last_used_at: AT, expires_at: AT };
  const items = ["aa01", "aa02"].map((id) => ({ id, ...session, ...times }));
  const asked: string[] = [];
  const server = createServer(({ method, url }, response) => {
    asked.push(`${method} ${url}`);
    const missing = { error: "not_found", message: "there is nothing here" };
    response.writeHead(url === "/api/sessions" ? 200 : 404).end(JSON.stringify(url === "/api/sessions" ? { items } : missing));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => server.close());
  const env = { OPS_SERVER: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, OPS_SERVE_TOKEN: TOKEN };
  const who = await ops(["whoami"], { env });
  assert.deepEqual([who.code, who.stderr], [1, `ops: the server at ${env.OPS_SERVER} is older than this question\n`]);
  const ended = await ops(["sessions", "end", "aa"], { env });
  assert.deepEqual([ended.code, ended.stderr], [2, 'ops: "aa" means 2 sessions: give more of its id\n']);
  assert.deepEqual(asked, ["GET /api/identity", "GET /api/sessions"]);
  assert.deepEqual([asWhom(), asWhom({ name: "root", role: "root" })], ["", " as root"]);
});

test("CP-510 with --root tokens are made and revoked in the folder of a stopped server, by its owner alone", async (t) => {
  const { server, cwd, run } = await setUp(t);
  const bucket = await server.createBucket({ project: "shop", name: "live" });
  const here = (...args: string[]) =>
    ops([...args, "--root", server.root], { cwd, env: { OPS_SERVER: "", OPS_SERVE_TOKEN: "" } });
  const busy = await here("tokens", "create", "ada");
  assert.deepEqual([busy.code, /a server has this root; use --server, or stop it first/.test(busy.stderr)], [1, true]);
  const both = await run(["tokens", "--root", server.root, "--server", server.url]);
  assert.deepEqual([both.code, both.stderr], [2, "ops: give --root or --server, not both\n"]);
  await server.stop();
  const made = await here("tokens", "create", "ada", "--role", "admin", "--bucket", "live", "--totp");
  assert.equal(made.code, 0, made.stderr);
  const as = made.stdout.trim();
  const secret = /^secret +(\S+)$/m.exec(made.stderr)?.[1] ?? "";
  assert.match(made.stderr, /^uri +otpauth:\/\/totp\/ops:ada\?secret=/m);
  assert.match(made.stderr, /##/, "a QR code");
  const file = path.join(server.root, "access.json");
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.ok(!readFileSync(file, "utf8").includes(as));
  const twice = await here("tokens", "create", "Ada");
  assert.match(twice.stderr, /is there already; revoke it first/);
  const [item] = JSON.parse((await here("tokens", "list", "--json")).stdout);
  assert.deepEqual([item.name, item.buckets, item.totp], ["ada", [bucket.id], "own"]);
  assert.match(item.created_by, / on the command line$/);
  assert.ok(!JSON.stringify(item).includes(secret));
  await server.open();
  const authorization = `Bearer ${as}`;
  assert.equal((await server.call("GET", "/api/identity", { authorization })).body.error, "totp_required");
  const headers = { "x-ops-totp": oathtoolCode(secret) };
  assert.equal((await server.call("GET", "/api/identity", { authorization, headers })).body.name, "ada");
  await server.stop();
  assert.equal((await here("tokens", "revoke", "ada")).code, 0);
  assert.deepEqual(JSON.parse((await here("tokens", "--json")).stdout), []);
  await server.open();
});

test("CP-510 with --root what is no root of a server, or of another user, is left as it is", async (t) => {
  const folder = temporaryFolder(t);
  const here = (root: string, ...more: string[]) => ops(["tokens", "create", "ada", "--root", root, ...more], { cwd: folder });
  const gone = await here(path.join(folder, "gone"));
  assert.deepEqual([gone.code, /there is no root/.test(gone.stderr)], [2, true]);
  assert.ok(!existsSync(path.join(folder, "gone")));
  const root = path.join(folder, "root");
  mkdirSync(root, { mode: 0o700 });
  for (const [args, message] of [
    [["--bucket", "live"], /--bucket "live": there is no such bucket/],
    [["--role", "root"], /role: expected one of read, operate, deploy, admin/],
    [["--role", "deploy", "--no-totp"], /none goes only with the role read/],
    [["--totp", "--no-totp"], /give --totp or --no-totp, not both/],
    [["--expires", "soon"], /--expires "soon": expected a time from now, such as 90d/],
    [["--expires", "0d"], /expected a time from now/],
  ] as const) {
    const { code, stdout, stderr } = await here(root, ...args);
    assert.deepEqual([stdout, code === 0], ["", false], args.join(" "));
    assert.match(stderr, message);
  }
  assert.ok(!existsSync(path.join(root, "access.json")));
  if (process.getuid?.() !== 0) return;
  chownSync(root, 12_345, 12_345);
  const foreign = await here(root);
  assert.deepEqual(
    [foreign.code, /belongs to the user 12345, not to root: run this as its owner/.test(foreign.stderr)],
    [2, true],
  );
  assert.ok(!existsSync(path.join(root, "access.json")));
});
