import assert from "node:assert/strict";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { AccessStore } from "../../../lib/auth/access-store.ts";
import type { Identity } from "../../../lib/auth/guard.ts";
import { createBucket } from "../../../lib/bucket/source/root.ts";
import { base32Decode } from "../../../lib/codec/crypto/totp.ts";
import { check } from "../../../lib/core/shape.ts";
import type { Answer } from "../../../lib/http/message.ts";
import type { Context, ServerRoute } from "../../../lib/server/context.ts";
import { NEW_TOKEN, newToken, shownToken, TOKEN_ROUTES } from "../../../lib/server/people/tokens.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const BUCKET = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
const [LIST, MAKE, REVOKE] = TOKEN_ROUTES as [ServerRoute, ServerRoute, ServerRoute];
const NONE = { buckets: undefined, lifetime_s: undefined };
const PLAIN = { ...NONE, name: "ada", role: "read" as const, totp: "common" as const, created_by: "root" };

async function setUp(t: TestContext) {
  const root = temporaryFolder(t);
  await createBucket(root, { id: BUCKET, project: "p", name: "n" }, async () => {});
  const clock = { now: Date.parse("2026-01-01T00:00:00.000Z") };
  const access = await AccessStore.open(path.join(root, "access.json"), {
    now: () => clock.now,
    onTrouble: (error) => assert.fail(String(error)),
  });
  return { access, root, clock };
}

test("CP-504 a token is asked for with a name; all else has a default and its bounds", () => {
  const taken = (value: object) => {
    const checked = check(NEW_TOKEN, value);
    return checked.ok ? { ...checked.value } : undefined;
  };
  assert.deepEqual(taken({ name: "a" }), { ...NONE, name: "a", role: "read", totp: "common" });
  const full = { name: "a", role: "admin", totp: "own", buckets: [BUCKET], lifetime_s: 1 };
  assert.deepEqual(taken(full), full);
  assert.ok(taken({ name: "a", lifetime_s: 3_660 * 86_400 }));
  for (const wrong of [
    {},
    { name: "a", lifetime_s: 0 },
    { name: "a", lifetime_s: 3_660 * 86_400 + 1 },
    { name: "a", role: "root" },
    { name: "a", totp: "x" },
    { name: "a", x: 1 },
  ])
    assert.equal(taken(wrong), undefined, JSON.stringify(wrong));
});

test("CP-505 a new token is shown once with its text, its end and, where it has one of its own, its second factor", async (t) => {
  const { access, root, clock } = await setUp(t);
  const { token, ...plain } = await newToken(access, root, { ...PLAIN });
  assert.match(token, /^ops_/);
  const { id, last_used_on, ...shown } = plain;
  assert.deepEqual([typeof id, last_used_on], ["string", null]);
  assert.deepEqual(shown, {
    ...{ name: "ada", role: "read", totp: "common", created_by: "root", buckets: null, expires_at: null },
    ...{ created_at: "2026-01-01T00:00:00.000Z", expired: false, totp_secret: null, totp_uri: null },
  });
  const own = await newToken(access, root, {
    ...PLAIN,
    name: "bob",
    role: "admin",
    totp: "own",
    buckets: [BUCKET],
    lifetime_s: 60,
  });
  assert.deepEqual([own.buckets, own.expires_at], [[BUCKET], "2026-01-01T00:01:00.000Z"]);
  assert.ok(base32Decode(own.totp_secret ?? ""));
  assert.match(own.totp_uri ?? "", new RegExp(`^otpauth://totp/ops:bob\\?.*secret=${own.totp_secret}`));
  const listed = access.tokens.map((one) => shownToken(one, access));
  assert.deepEqual(
    listed.map(({ name, expired }) => [name, expired]),
    [
      ["ada", false],
      ["bob", false],
    ],
  );
  assert.ok(!JSON.stringify(listed).includes(String(own.totp_secret)) && !JSON.stringify(listed).includes("sha256"));
  clock.now += 60_000;
  assert.deepEqual(
    access.tokens.map((one) => shownToken(one, access).expired),
    [false, true],
  );
});

test("CP-504 a token without a second factor may only read, and its buckets are those that there are", async (t) => {
  const { access, root } = await setUp(t);
  await newToken(access, root, { ...PLAIN, totp: "none" });
  const refused = async (more: object, ...details: object[]) =>
    await assert.rejects(newToken(access, root, { ...PLAIN, name: "x", ...more }), { code: "invalid_request", details });
  const factor = { path: "totp", message: "none goes only with the role read" };
  const gone = BUCKET.replace(/.$/, "1");
  const unknown = { path: "buckets/1", message: "there is no such bucket" };
  await refused({ totp: "none", role: "operate" }, factor);
  await refused({ buckets: [BUCKET, gone] }, unknown);
  await refused({ totp: "none", role: "deploy", buckets: [BUCKET, gone] }, factor, unknown);
  assert.equal(access.tokens.length, 1);
});

test("CP-504 tokens are listed, made and revoked by admins, none with more than they have themselves", async (t) => {
  const { access, root } = await setUp(t);
  const ask = async (route: ServerRoute, call: object, role = "admin") => {
    const handle = route.handle as (call: object, context: Context) => Promise<Answer>;
    const identity = { name: "boss", role } as Identity;
    const { status, body } = await handle({ params: {}, query: {}, body: {}, ...call }, { access, root, identity } as never);
    return { status, value: body === undefined ? undefined : JSON.parse(String(body)) };
  };
  const body = { name: "ada", role: "admin", totp: "common" };
  await assert.rejects(ask(MAKE, { body }, "deploy"), { code: "forbidden" });
  const { status, value } = await ask(MAKE, { body });
  assert.deepEqual([status, value.name, value.created_by, typeof value.token], [201, "ada", "boss", "string"]);
  const { items } = (await ask(LIST, {})).value;
  assert.deepEqual(
    items.map((one: { name: string; token?: string }) => [one.name, one.token]),
    [["ada", undefined]],
  );
  assert.deepEqual(await ask(REVOKE, { params: { token: "ADA" } }), { status: 204, value: undefined });
  await assert.rejects(ask(REVOKE, { params: { token: "ada" } }), { code: "not_found" });
  await assert.rejects(ask(REVOKE, {}), { code: "not_found" });
});
